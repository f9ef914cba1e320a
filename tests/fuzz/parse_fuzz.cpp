// What libFuzzer calls with one message after the other (tools/dev/fuzz.py): both parsers read it.
// A client's message that is accepted must read back as what it was, and what caches and limits
// know must not change the answer.
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

void check(bool holds, const char* what, std::string_view text) {
  if (holds) return;
  std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(text.size()), text.data());
  std::abort();
}

void parse_of_client(std::string_view text) {
  static BiasCache kept(std::size_t{1} << 20);
  const LimitsOf limits_of = [](std::string_view) {
    return RequestLimits{.num_tokens = 100, .num_biases = 100};
  };
  BiasCache fresh;
  const auto parsed = parse_client_message(text, fresh);
  const auto with_cache = parse_client_message(text, kept);
  const auto* const error = std::get_if<ParseError>(&parsed);
  check(parsed.index() == with_cache.index(), "the cache changes the answer to", text);
  if (error != nullptr) {
    check(error->message == std::get<ParseError>(with_cache).message, "the cache changes", text);
    check(error->message.find(": ") != std::string::npos, "no field is named", text);
    check(error->message.size() < 1000, "a long error", text);
  }
  const auto limited = parse_client_message(text, fresh, limits_of);
  check(error == nullptr || std::holds_alternative<ParseError>(limited), "limits allow", text);
  if (error != nullptr) return;
  const std::string written = serialize_client_message(std::get<ClientMessage>(parsed));
  const auto back = parse_client_message(written, fresh);
  check(std::holds_alternative<ClientMessage>(back), "cannot be read back", written);
  check(serialize_client_message(std::get<ClientMessage>(back)) == written, "changes", written);
}

void parse_of_server(std::string_view text) {
  const auto parsed = parse_server_message(text);
  if (!parsed) return check(!parsed.error().message.empty(), "says nothing", text);
  for (const ServerEntry& entry : *parsed) {
    check(entry.index >= 0 && entry.fork_at >= 0 && entry.num_backtracked >= 0,
          "an index out of range", text);
    check(entry.retry_after_ms >= 0 && entry.retry_after_ms <= kMaxTimeoutMs, "a wait", text);
    check(entry.progress_percent >= 0 && entry.progress_percent <= 100, "a progress", text);
  }
}

}  // namespace
}  // namespace lmtp::protocol

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  // The transports let nothing else through.
  if (!simdjson::validate_utf8(text)) return 0;
  lmtp::protocol::parse_of_client(text);
  lmtp::protocol::parse_of_server(text);
  return 0;
}
