// Counts for an account what its streams generate, and their ends.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "lmtp/request/account.h"
#include "lmtp/request/event.h"

namespace lmtp::registry {

// Of one connection, all of whose requests are of one account and go through such a sink: an engine
// delivers the events of all its streams to the sink of one of them.
class MeteredSink final : public EventSink {
 public:
  MeteredSink(std::shared_ptr<Account> account, std::shared_ptr<EventSink> inner)
      : account_(std::move(account)), inner_(std::move(inner)) {}

  void deliver(std::span<StreamEvent> events) override {
    const int num_ends = num_ended(events);
    const auto num_tokens = std::ranges::count_if(
        events, [](const StreamEvent& event) { return std::holds_alternative<TokenEvent>(event); });
    // First, so that a client that has seen the end may begin the next stream.
    if (num_ends != 0) account_->ended(num_ends);
    try {
      inner_->deliver(events);
    } catch (...) {
      if (num_ends != 0) account_->ended(-num_ends);  // they come again
      throw;
    }
    if (num_tokens > 0) account_->generated(num_tokens);
  }
  std::shared_ptr<Waker> waker() override { return inner_->waker(); }

 private:
  const std::shared_ptr<Account> account_;
  const std::shared_ptr<EventSink> inner_;
};

}  // namespace lmtp::registry
