#include "link.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lmtp/base/guarded.h"
#include "lmtp/base/text.h"
#include "lmtp/protocol/codec.h"

namespace lmtp::balance {
namespace {

constexpr int kRetryMsMin = 100;  // between two tries to connect; twice as much each time
constexpr int kRetryMsMax = 2'000;
constexpr int kConnectMs = 5'000;
constexpr std::chrono::milliseconds kLoadingInterval{100};

client::Security with_bound(client::Security security, std::size_t message_bytes_max) {
  security.message_bytes_max = message_bytes_max;
  return security;
}

}  // namespace

Link::Link(const BalanceOptions& options, std::size_t index, Callbacks callbacks)
    : address_(options.workers[index]),
      security_(with_bound(options.security, options.message_bytes_max)),
      health_interval_(options.health_interval_ms),
      num_unanswered_max_(options.silence_timeout_ms / options.health_interval_ms),
      callbacks_(std::move(callbacks)),
      thread_([this] { run(); }) {}

Link::~Link() { stop(); }

bool Link::send(protocol::ClientMessage message, std::size_t num_tokens) {
  {
    const std::lock_guard lock(mutex_);
    if (num_tokens_ + num_tokens > kOutboxTokensMax) return false;
    outbox_.push_back({std::move(message), num_tokens});
    num_tokens_ += num_tokens;
  }
  client_.interrupt();
  return true;
}

void Link::drop(std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    drop_reason_ = std::move(reason);
  }
  client_.interrupt();
}

void Link::begin_stop() {
  stopping_ = true;
  client_.interrupt();
}

void Link::stop() {
  begin_stop();
  if (thread_.joinable()) thread_.join();
}

void Link::run() {
  int retry_ms = kRetryMsMin;
  while (!stopping_) {
    const auto begin = Clock::now();
    Error error{ErrorCode::kUnavailable, "no memory"};
    (void)guarded([&]() -> Result<void> {
      error = serve();
      return {};
    });
    if (!stopping_) callbacks_.on_lost(error);
    client_.close();
    if (stopping_) return;
    {
      // From here on nothing is sent before the next on_info.
      const std::lock_guard lock(mutex_);
      outbox_.clear();
      num_tokens_ = 0;
      drop_reason_.clear();
    }
    if (Clock::now() - begin > std::chrono::milliseconds(kRetryMsMax)) retry_ms = kRetryMsMin;
    // A message that comes meanwhile must not shorten it.
    const auto due = Clock::now() + std::chrono::milliseconds(retry_ms);
    while (!stopping_ && Clock::now() < due) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
      client_.pause(std::max(0, static_cast<int>(left.count())));
    }
    retry_ms = std::min(2 * retry_ms, kRetryMsMax);
  }
}

// Until the connection ends; why it has.
Error Link::serve() {
  const auto connected = client_.connect(address_.host, address_.port, kConnectMs, security_);
  if (!connected) return connected.error();
  num_unanswered_ = 0;
  next_info_ = Clock::now();
  while (!stopping_) {
    if (Clock::now() >= next_info_) {
      if (const auto asked = ask_info(); !asked) return asked.error();
    }
    if (const auto sent = send_queued(); !sent) return sent.error();
    client::ReceivedMessage message;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_info_ - Clock::now());
    const auto received =
        client_.receive_message(message, std::max(0, static_cast<int>(left.count())));
    if (!received) return received.error();
    if (!*received) continue;
    if (const auto taken = take(message); !taken) return taken.error();
  }
  return {ErrorCode::kStopping, "stopped"};
}

Result<void> Link::ask_info() {
  if (num_unanswered_ >= num_unanswered_max_) {
    return Error{ErrorCode::kUnavailable, "it does not answer MODEL_INFO"};
  }
  ++num_unanswered_;
  next_info_ = Clock::now() + health_interval_;
  protocol::ModelInfoMessage ask;
  ask.stream_id = kInfoId;
  return client_.send(ask);
}

Result<void> Link::send_queued() {
  for (;;) {
    Outgoing next;
    {
      const std::lock_guard lock(mutex_);
      if (!drop_reason_.empty()) return Error{ErrorCode::kUnavailable, drop_reason_};
      if (outbox_.empty()) return {};
      next = std::move(outbox_.front());
      outbox_.pop_front();
      num_tokens_ -= next.num_tokens;
    }
    if (auto sent = client_.send(next.message); !sent) return sent;
  }
}

Result<void> Link::take(const client::ReceivedMessage& message) {
  auto entries = protocol::parse_server_message(message.text);
  if (!entries) return entries.error();
  for (const protocol::ServerEntry& entry : *entries) {
    if (!entry.is_msg || entry.stream_id != kInfoId) continue;
    if (!entry.error.empty()) {
      return Error{ErrorCode::kUnavailable,
                   "it answers MODEL_INFO with " + quoted_name(entry.error)};
    }
    num_unanswered_ = 0;
    const Result<bool> is_ready = callbacks_.on_info(entry.model_info_json);
    if (!is_ready) return is_ready.error();
    if (!*is_ready) next_info_ = std::min(next_info_, Clock::now() + kLoadingInterval);
  }
  std::erase_if(*entries,
                [](const protocol::ServerEntry& entry) { return entry.stream_id == kInfoId; });
  return entries->empty() ? Result<void>() : callbacks_.on_entries(*entries);
}

}  // namespace lmtp::balance
