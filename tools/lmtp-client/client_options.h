// The command line of lmtp-client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "lmtp/base/result.h"
#include "lmtp/client/client.h"
#include "repl_params.h"

namespace lmtp::tools {

struct ClientOptions {
  enum class Mode { kTalk, kEncode, kDecode };

  Mode mode = Mode::kTalk;
  // As given; empty: the server's model and, but for the demo, its text; the demo's tokenizer also
  // where the server does not encode and decode.
  std::string model;
  std::string tokenizer;  // as given; empty: the model's
  std::string host = "localhost";
  std::uint16_t port = 8080;
  client::Security security;
  std::optional<std::string> prompt;
  std::optional<std::string> score;
  ReplParams params;
  std::int64_t retry_attempts = 1;  // 1: what fails is not asked again
  bool text = false;                // the server encodes and decodes
  bool chat = false;                // prompts are messages of a chat
  std::string system;               // its system message; empty: none
  bool json =
      false;  // texts of --encode and --decode are JSON strings, so that lines may end in them
  bool raw = false;
  bool echo = false;
};

// The options, or the exit code if there is nothing to do: 0 after --help and --version; 2 after an
// error, which has been written to stderr as one line.
std::variant<ClientOptions, int> parse_client_options(int argc, const char* const* argv);

}  // namespace lmtp::tools
