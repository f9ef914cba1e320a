#include "upgrade.h"

#include <utility>

#include "http_session.h"

namespace lmtp::server {

void HttpSession::upgrade(const UpgradeHandler& handler) {
  namespace http = boost::beast::http;
  const auto caller = std::make_shared<Caller>();  // of requests to come, with ids of their own
  caller->account = caller_->account;
  caller->address = caller_->address;
  caller->log_prompts = caller_->log_prompts;
  tcp().expires_never();    // the WebSocket has limits of its own
  state_ = State::kClosed;  // this session's part
  WebSocketUpgrade taken{context_,
                         std::move(stream_),
                         std::move(buffer_),
                         std::move(place_),
                         caller,
                         http::request<http::empty_body>(
                             std::move(static_cast<http::request_header<>&>(parser_->get())))};
  handler(taken);
}

}  // namespace lmtp::server
