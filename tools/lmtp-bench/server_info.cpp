#include "server_info.h"

#include <algorithm>
#include <chrono>

#include "lmtp/client/client.h"
#include "lmtp/protocol/message.h"

namespace lmtp::tools {
namespace {

constexpr auto kAnswerTimeout = std::chrono::seconds(60);

}  // namespace

Result<ServerInfo> ask_server(const LoadOptions& options) {
  client::Client client;
  const auto connected =
      client.connect(options.host, options.port, client::kConnectTimeoutMs, options.security);
  if (!connected) return connected.error();
  const auto sent = client.send(protocol::ModelInfoMessage{1, options.model});
  if (!sent) return sent.error();
  const auto deadline = std::chrono::steady_clock::now() + kAnswerTimeout;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    protocol::ServerEntry entry;
    const auto received = client.receive(entry, std::max(0, static_cast<int>(left.count())));
    if (!received) return received.error();
    if (!*received) return ServerInfo{};
    if (!entry.error.empty()) return Error{ErrorCode::kUnavailable, entry.error};
    if (!entry.model_info_json.empty()) return read_server_info(entry.model_info_json);
  }
}

}  // namespace lmtp::tools
