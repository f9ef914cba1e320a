// The part of HttpSession that refuses requests for what their header says, or lacks.
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "access/credentials.h"
#include "http_session.h"
#include "lmtp/base/json.h"
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "lmtp/base/text.h"
#include "origin.h"
#include "request_ids.h"

namespace lmtp::server {
namespace {

// On a route that reads no body, a longer Content-Length is refused.
constexpr std::uint64_t kMaxUnreadBodyBytes = std::uint64_t{1} << 20;

// For the log. What is no path, such as http://user:KEY@host/, may show a key.
std::string route_text(const HttpRequest& request) {
  const bool is_path = request.path.starts_with('/');
  return shortened(request.method, 16) + " " + (is_path ? shortened(request.path, 128) : "?");
}

// The sentence of an answer in one of the forms that errors have, for the log; without what a chat
// template says, which may quote the chat.
std::string reason_of(const HttpResponse& refusal) {
  constexpr std::size_t kShown = 200;
  std::string reason = refusal.body.substr(0, refusal.body.find('\n'));
  if (refusal.type.starts_with("application/json")) {
    const auto json = parse_json(refusal.body, "answer");
    const Json* error = json ? find_json(*json, "error") : nullptr;
    const std::string* text = error == nullptr     ? nullptr
                              : error->is_string() ? error->get_ptr<const std::string*>()
                                                   : find_json_text(*error, "message");
    reason = text == nullptr ? "" : *text;
  }
  const std::size_t of_template = reason.find("chat template");
  if (of_template != std::string::npos) reason.resize(of_template + 13);
  return shortened(reason, kShown);
}

}  // namespace

// No browser reaches a Unix socket.
bool HttpSession::is_local() const {
  boost::beast::error_code error;
  const auto endpoint = tcp().socket().local_endpoint(error);
  return !error && endpoint.protocol().family() == AF_UNIX;
}

std::optional<HttpResponse> HttpSession::refuse_header() const {
  if (!reads_body() && parser_->content_length().value_or(0) > kMaxUnreadBodyBytes) {
    return plain_text(400, "This is not HTTP.");
  }
  if (tls_ != nullptr && !stream_.is_tls()) {
    return plain_text(400, "This port speaks TLS: write https:// or wss://.");
  }
  if (parser_->get().count(boost::beast::http::field::host) > 1) {
    return plain_text(400, "There is more than one Host field.");
  }
  if (refusal_) return refusal_;
  if (is_local()) return std::nullopt;
  return refuse_foreign(request_, context_->options, context_->on_loopback);
}

// The connection itself has counted as its first request.
std::optional<HttpResponse> HttpSession::refuse_address() {
  if (std::exchange(is_first_, false)) return std::nullopt;
  const int retry_after_s = place_.seat().take_request();
  if (retry_after_s == 0) return std::nullopt;
  return too_many_requests(retry_after_s,
                           "Too many requests of this address (--max-request-rate-per-address).");
}

const UpgradeHandler* HttpSession::find_websocket() const {
  const std::string query = without_key(request_.query);
  return context_->routes.find_websocket(request_.path + (query.empty() ? "" : "?" + query));
}

// What is known without a key.
void HttpSession::begin_caller() {
  caller_ = std::make_shared<Caller>();
  caller_->address = address_;
  if (!request_.method.empty()) caller_->route = route_text(request_);
  caller_->log_prompts = context_->options.log_prompts;
  set_ids(request_, *caller_);
  fields_ = id_fields(request_, *caller_);
}

// `id`: the answer's.
void HttpSession::begin_id(const std::string& id) {
  caller_->answer_id = id;
  if (caller_->has_own_id) return;
  caller_->request_id = id;
  rename_request(id, fields_);
}

// Whose request it is; the refusal where it needs a key, or a right, that it does not bring.
std::optional<HttpResponse> HttpSession::identify(bool begins_websocket) {
  // A page may send a key that a person has given it; one that stands in its address may be
  // anyone's.
  const bool takes_query =
      begins_websocket && (is_local() || !is_of_any_page(request_, context_->options));
  // A page has a ticket by a field that brought a key, so that one counts from any.
  const std::string sent = take_ticket(request_);
  const std::string ticket = begins_websocket ? sent : "";
  const bool ignores_key =
      begins_websocket && !takes_query && without_key(request_.query) != request_.query;
  const Result<std::vector<std::string>> keys = take_keys(request_, takes_query);
  if (!context_->keys.is_required()) return std::nullopt;
  for (std::size_t i = 0; keys && i < keys->size(); ++i) {
    auto account = context_->keys.find((*keys)[i]);
    if (account != nullptr) caller_->account = std::move(account);
  }
  if (!ticket.empty() && caller_->account == nullptr) {
    caller_->account = context_->tickets.take(ticket, runtime::Clock::now());
  }
  const bool is_open = is_preflight(request_) && !context_->routes.methods(request_.path).empty();
  Right right = begins_websocket || route_ == nullptr ? Right::kKey : route_->right;
  if (is_open) right = Right::kNone;
  if (right == Right::kNone) return std::nullopt;
  if (!keys) return plain_text(400, keys.error().message);
  if (caller_->account == nullptr && ignores_key) return no_query_key();
  if (caller_->account == nullptr) return no_access(!keys->empty() || !ticket.empty());
  if (right == Right::kAdmin && !caller_->account->is_admin()) return no_right();
  return std::nullopt;
}

// The line of a request that has no other. What no handler has seen may come in floods; a monitor
// asks again and again.
void HttpSession::log_refused(const HttpResponse& refusal, bool was_handled) {
  if (refusal.status < 400 || caller_->is_logged.exchange(true)) return;
  if (route_ != nullptr && route_->right == Right::kNone) return;
  std::string line = "request";
  if (caller_->account != nullptr) line += " of " + caller_->account->name();
  if (!address_.empty()) line += " at " + address_;
  if (!caller_->route.empty()) line += ": " + caller_->route;
  line += ids_text(*caller_) + ": " + std::to_string(refusal.status);
  const std::string reason = reason_of(refusal);
  if (!reason.empty()) line += ": " + reason;
  was_handled ? log::info(line) : context_->refused_log.warning(line);
}

}  // namespace lmtp::server
