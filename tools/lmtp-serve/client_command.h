// How a client reaches the server: the command that lmtp-serve prints once it is ready.
#pragma once

#include <cstdint>
#include <string>

#include "serve_options.h"

namespace lmtp::tools {

// As a shell takes it: `program`, lmtp-client, with what it needs to talk to the server of these
// options, which listens on `port`. `model` is what lmtp-client finds the tokenizer by; a path is
// made absolute. KEY stands for a key, where one is needed.
std::string client_command(const ServeOptions& options, const std::string& program,
                           const std::string& model, std::uint16_t port);

// Where OpenAI's API is, and a command that asks it: "http://127.0.0.1:8080/v1, as in: curl ...".
// Where no request has loaded a model yet, and for random weights, it asks for the models.
std::string http_command(const ServeOptions& options, std::uint16_t port);

// Prints both, in a line each: what to type next. Not in a child of --layout, whose parent does so,
// nor where no socket is open.
void print_reached(const ServeOptions& options, const std::string& model, std::uint16_t port);

// lmtp-client beside this program; where none is, its name alone.
std::string client_program();

}  // namespace lmtp::tools
