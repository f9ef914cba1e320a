// The limits of accounts, whatever protocol a request came by and wherever its model is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "lmtp/registry/models.h"
#include "lmtp/request/account.h"
#include "lmtp/request/event.h"

namespace lmtp::registry {

// Counts for an account what its streams generate, and their ends. The forks of a controller have
// begun for it before they are told of (Account::begin_part).
// Of one connection, all of whose requests are of one account and go through such a sink: an engine
// delivers the events of all its streams to the sink of one of them.
class MeteredSink final : public EventSink {
 public:
  MeteredSink(std::shared_ptr<Account> account, std::shared_ptr<EventSink> inner)
      : account_(std::move(account)), inner_(std::move(inner)) {}

  void deliver(std::span<StreamEvent> events) override {
    const auto num_ends = static_cast<int>(std::ranges::count_if(events, is_last));
    const auto num_tokens = std::ranges::count_if(events, [](const StreamEvent& event) {
      const auto* token = std::get_if<TokenEvent>(&event);
      return token != nullptr && token->embedding == nullptr;
    });
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

// Submits a request for its account, where it has one. check_access: Models'; submit: takes the
// request, or leaves it as it was.
template <typename CheckAccess, typename Submit>
Submission submit_metered(Request& request, const CheckAccess& check_access, const Submit& submit) {
  Account* const account = request.account();
  if (account == nullptr) return submit(request);
  if (const Result<void> ok = check_access(*account, request.model); !ok) {
    return Refusal{ok.error(), true};
  }
  const auto num_prompt =
      request.part_tokens.value_or(static_cast<std::int64_t>(request.prompt.size()));
  if (const Result<void> begun =
          request.part_tokens ? account->begin_part(num_prompt) : account->begin(num_prompt);
      !begun) {
    return Refusal{begun.error()};
  }
  std::optional<Submission> submission;
  try {
    request.sink = std::make_shared<MeteredSink>(request.caller->account, std::move(request.sink));
    submission = submit(request);
  } catch (...) {
    account->undo(num_prompt);
    throw;
  }
  if (std::holds_alternative<Refusal>(*submission)) account->undo(num_prompt);
  return *std::move(submission);
}

}  // namespace lmtp::registry
