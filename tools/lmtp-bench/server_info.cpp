#include "server_info.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string_view>

#include "common/json_text.h"
#include "lmtp/client/client.h"
#include "lmtp/protocol/message.h"

namespace lmtp::tools {
namespace {

constexpr auto kAnswerTimeout = std::chrono::seconds(60);

int positive_field(std::string_view json, std::string_view key) {
  const auto field = json_field(json, key);
  const auto value = field ? json_integer(*field) : std::nullopt;
  if (!value || *value < 1 || *value > std::numeric_limits<int>::max()) return 0;
  return static_cast<int>(*value);
}

ServerInfo read_info(const std::string& json) {
  ServerInfo info;
  info.vocab_size = positive_field(json, "vocab_size");
  info.context_length = positive_field(json, "context_length");
  if (const auto field = json_field(json, "eos_token_ids")) {
    if (auto ids = parse_ids(*field)) info.eos_token_ids = *ids;
  }
  std::sort(info.eos_token_ids.begin(), info.eos_token_ids.end());
  info.json = json;
  return info;
}

}  // namespace

Result<ServerInfo> ask_server(const std::string& host, std::uint16_t port,
                              const std::string& model) {
  client::Client client;
  if (auto connected = client.connect(host, port); !connected) return connected.error();
  if (auto sent = client.send(protocol::ModelInfoMessage{1, model}); !sent) return sent.error();
  const auto deadline = std::chrono::steady_clock::now() + kAnswerTimeout;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    protocol::ServerEntry entry;
    const auto received = client.receive(entry, std::max(0, static_cast<int>(left.count())));
    if (!received) return received.error();
    if (!*received) return ServerInfo{};
    if (!entry.error.empty()) return Error{ErrorCode::kInvalid, entry.error};
    if (!entry.model_info_json.empty()) return read_info(entry.model_info_json);
  }
}

}  // namespace lmtp::tools
