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

// lmtp-client beside this program; where none is, its name alone.
std::string client_program();

}  // namespace lmtp::tools
