#include "server_link.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/text.h"

namespace lmtp::tools {
namespace {

using protocol::ServerEntry;

// While one lives, Ctrl-C wakes the client.
class Waking {
 public:
  Waking(client::Interrupts& interrupts, client::Client& client) : interrupts_(interrupts) {
    interrupts_.wakes(&client);
  }
  ~Waking() { interrupts_.wakes(nullptr); }
  Waking(const Waking&) = delete;
  Waking& operator=(const Waking&) = delete;

 private:
  client::Interrupts& interrupts_;
};

}  // namespace

ServerLink::ServerLink(Options options, client::Interrupts& interrupts)
    : options_(std::move(options)), interrupts_(interrupts) {}

std::string ServerLink::address() const { return address_text(options_.host, options_.port); }

Result<void> ServerLink::connect() {
  if (client_.connected()) return {};
  info_.reset();
  {
    const Waking waking(interrupts_, client_);
    if (auto connected = client_.connect(options_.host, options_.port); !connected) {
      return connected;
    }
  }
  return send_info_request();
}

Result<void> ServerLink::send_info_request() {
  protocol::ModelInfoMessage ask;
  ask.stream_id = info_id_ = next_id_++;
  ask.model = options_.model;
  info_error_.clear();
  return client_.send(ask);
}

Result<ServerLink::Outcome> ServerLink::run(protocol::GenerateMessage message,
                                            const Handler& handler) {
  return run_stream(std::move(message), handler);
}

Result<ServerLink::Outcome> ServerLink::run(protocol::ScoreMessage message,
                                            const Handler& handler) {
  return run_stream(std::move(message), handler);
}

template <typename Message>
Result<ServerLink::Outcome> ServerLink::run_stream(Message message, const Handler& handler) {
  message.model = options_.model;
  for (;;) {
    const bool was_open = client_.connected();
    if (auto connected = connect(); !connected) return connected.error();
    message.stream_id = next_id_++;
    bool started = false;
    auto sent = client_.send(message);
    auto outcome = sent ? follow(message.stream_id, handler, started) : sent.error();
    if (outcome || started || client_.connected()) return outcome;
    // That the server was restarted since the last request shows only now.
    if (!was_open) return closed_unanswered(outcome.error());
  }
}

// LMQL's own server fails on a request without a model, and closes the connection without an error.
Error ServerLink::closed_unanswered(const Error& error) const {
  if (!options_.model.empty() || info_) return error;
  return {error.code,
          error.message + "; LMQL's own server needs MODEL to be named: lmtp-client MODEL"};
}

Result<ServerLink::Outcome> ServerLink::follow(StreamId id, const Handler& handler, bool& started) {
  const Waking waking(interrupts_, client_);
  for (;;) {
    if (interrupts_.take()) {
      cancel(id);
      return Outcome::kCancelled;
    }
    ServerEntry entry;
    const auto received = client_.receive(entry);
    if (!received) return received.error();
    if (!*received || take_info(entry)) continue;
    // An error without a stream id must be about the only request in flight.
    if (entry.stream_id && *entry.stream_id != id) continue;
    started = true;
    if (!entry.error.empty()) return Error{ErrorCode::kUnavailable, entry.error};
    if (entry.status == "loading" && handler.on_loading) handler.on_loading(entry);
    if (!entry.token) continue;
    handler.on_token(entry);
    if (entry.finish_reason != FinishReason::kNone) return Outcome::kFinished;
  }
}

bool ServerLink::take_info(const ServerEntry& entry) {
  if (!entry.is_msg || entry.stream_id != info_id_) return false;
  if (!entry.error.empty()) {
    info_error_ = entry.error;
  } else if (!entry.model_info_json.empty()) {
    info_ = read_server_info(entry.model_info_json);
  } else {
    info_error_ = "the server gives no information on its model yet";
  }
  return true;
}

// Milliseconds until `deadline`, for receive().
int ServerLink::ms_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return std::max(0, static_cast<int>(left.count()));
}

void ServerLink::cancel(StreamId id) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(kCancelTimeoutMs);
  if (info_ && info_->can_cancel && client_.send(protocol::CancelMessage{id})) {
    while (!interrupts_.take() && Clock::now() < deadline) {
      ServerEntry entry;
      const auto received = client_.receive(entry, ms_until(deadline));
      if (!received) break;
      const bool last = !entry.error.empty() || entry.finish_reason != FinishReason::kNone;
      if (*received && entry.stream_id == id && !entry.is_msg && last) return;
    }
  }
  client_.close();  // ends the stream too; the next request opens a new one
}

Result<ServerInfo> ServerLink::ask_info() {
  for (;;) {
    const bool was_open = client_.connected();
    if (auto connected = connect(); !connected) return connected.error();
    // A new connection has asked already.
    if (was_open && !send_info_request()) continue;
    info_.reset();
    auto info = await_info();
    if (info || client_.connected()) return info;
    if (!was_open) return closed_unanswered(info.error());
  }
}

Result<ServerInfo> ServerLink::await_info() {
  const auto deadline = Clock::now() + std::chrono::milliseconds(kInfoTimeoutMs);
  const Waking waking(interrupts_, client_);
  while (Clock::now() < deadline) {
    if (info_) return *info_;
    if (!info_error_.empty()) return Error{ErrorCode::kUnavailable, info_error_};
    if (interrupts_.take()) return Error{ErrorCode::kCancelled, "interrupted"};
    ServerEntry entry;
    const auto received = client_.receive(entry, ms_until(deadline));
    if (!received) return received.error();
    if (*received) take_info(entry);
  }
  return Error{ErrorCode::kUnavailable,
               "no answer to MODEL_INFO within " + std::to_string(kInfoTimeoutMs / 1000) + " s"};
}

}  // namespace lmtp::tools
