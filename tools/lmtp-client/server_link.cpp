#include "server_link.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

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
    : options_(std::move(options)),
      interrupts_(interrupts),
      client_({options_.host, options_.port, options_.model, options_.security}, options_.retry) {}

std::string ServerLink::address() const { return address_text(options_.host, options_.port); }

Result<void> ServerLink::connect() {
  const Waking waking(interrupts_, client_.client());
  return client_.connect();
}

Result<ServerLink::Outcome> ServerLink::run(protocol::GenerateMessage message,
                                            const Handler& handler) {
  return run_stream(std::move(message), handler);
}

Result<ServerLink::Outcome> ServerLink::run(protocol::ScoreMessage message,
                                            const Handler& handler) {
  return run_stream(std::move(message), handler);
}

Result<ServerLink::Outcome> ServerLink::run(protocol::DecideMessage message,
                                            const Handler& handler) {
  return run_stream(std::move(message), handler);
}

template <typename Message>
Result<ServerLink::Outcome> ServerLink::run_stream(Message message, const Handler& handler) {
  using Run = client::RetryingClient::Outcome;
  const Waking waking(interrupts_, client_.client());
  if (options_.retry.attempts == 1) {
    if (auto connected = client_.connect(); !connected) return connected.error();
  }
  message.model = options_.model;
  const auto outcome = client_.run(std::move(message), [&](const ServerEntry& entry) {
    if (entry.status == "loading" && handler.on_loading) handler.on_loading(entry);
    if (handler.on_controlled && entry.status.empty()) return handler.on_controlled(entry);
    const bool is_answer = !entry.candidates.empty() || !entry.answers_json.empty();
    if (entry.token || is_answer) handler.on_token(entry);
  });
  if (!outcome) return with_hint(outcome.error());
  if (*outcome == Run::kFinished) return Outcome::kFinished;
  interrupts_.take();
  cancel();
  return Outcome::kCancelled;
}

// LMQL's own server falls over what names no model, and closes the connection without a word.
Error ServerLink::with_hint(Error error) const {
  const bool is_closed = !client_.client().connected();
  if (is_closed && options_.model.empty() && !client_.info()) {
    error.message += "; LMQL's own server needs MODEL to be named: lmtp-client MODEL";
  }
  return error;
}

// Ends what an interrupted run has left.
void ServerLink::cancel() {
  using Clock = std::chrono::steady_clock;
  client::Client& client = client_.client();
  const auto deadline = Clock::now() + std::chrono::milliseconds(kCancelTimeoutMs);
  std::vector<StreamId> live = client_.live();
  const auto known = info();
  const bool asked = known && known->can_cancel && client.connected() &&
                     std::ranges::all_of(live, [&client](StreamId id) {
                       return client.send(protocol::CancelMessage{id}).ok();
                     });
  while (asked && !live.empty() && !interrupts_.take() && Clock::now() < deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    ServerEntry entry;
    const auto received = client.receive(entry, std::max(0, static_cast<int>(left.count())));
    if (!received) break;
    const bool is_last = !entry.error.empty() || entry.finish_reason != FinishReason::kNone;
    if (*received && !entry.is_msg && is_last) std::erase(live, entry.stream_id.value_or(0));
  }
  // That ends the streams too; the next request makes a new connection.
  if (!asked || !live.empty()) client.close();
}

std::optional<ServerInfo> ServerLink::info() const {
  if (!client_.info()) return std::nullopt;
  return read_server_info(*client_.info());
}

Result<std::string> ServerLink::ask(protocol::ControllerMessage message) {
  const Waking waking(interrupts_, client_.client());
  auto answer = client_.ask(std::move(message));
  if (!answer) interrupts_.take();
  return answer;
}

Result<ServerInfo> ServerLink::ask_info() {
  const Waking waking(interrupts_, client_.client());
  const auto info = client_.ask_info();
  if (!info) return with_hint(info.error());
  return read_server_info(*info);
}

}  // namespace lmtp::tools
