#include "lmtp/request/account.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lmtp {
namespace {

bool has_part_up(std::string_view name) {
  for (std::size_t at = name.find(".."); at != std::string_view::npos;
       at = name.find("..", at + 1)) {
    const bool begins = at == 0 || name[at - 1] == '/';
    const bool ends = at + 2 == name.size() || name[at + 2] == '/';
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace

Account::Account(std::string name, ConnectionId share, AccountLimits limits)
    : name_(std::move(name)),
      share_(share),
      limits_(std::move(limits)),
      num_tokens_(static_cast<double>(limits_.tokens_per_minute)) {}

void Account::set(AccountLimits limits) {
  const std::lock_guard lock(mutex_);
  refill(Clock::now());
  const auto most = static_cast<double>(limits.tokens_per_minute);
  // Where there was no limit nothing has been counted.
  num_tokens_ = limits_.tokens_per_minute > 0 ? std::min(num_tokens_, most) : most;
  limits_ = std::move(limits);
}

void Account::revoke() {
  const std::lock_guard lock(mutex_);
  revoked_ = true;
}

bool Account::is_revoked() const {
  const std::lock_guard lock(mutex_);
  return revoked_;
}

bool Account::is_admin() const {
  const std::lock_guard lock(mutex_);
  return limits_.is_admin;
}

bool Account::has_own_cache() const {
  const std::lock_guard lock(mutex_);
  return limits_.has_own_cache;
}

bool Account::may_use(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  if (!limits_.models) return true;
  return std::ranges::any_of(*limits_.models, [&](const std::string& pattern) {
    if (has_part_up(model)) return pattern == model;
    return fnmatch(pattern.c_str(), model.c_str(), 0) == 0;
  });
}

bool Account::is_limited() const {
  const std::lock_guard lock(mutex_);
  return limits_.models.has_value();
}

std::string Account::models_text() const {
  const std::lock_guard lock(mutex_);
  if (!limits_.models) return "any";
  if (limits_.models->empty()) return "none";
  std::string text;
  for (const std::string& pattern : *limits_.models) {
    text.append(text.empty() ? "'" : ", '").append(pattern).append("'");
  }
  return text;
}

// REQUIRES: the mutex is held.
Result<void> Account::add_stream() {
  if (limits_.max_streams > 0 && num_streams_ >= limits_.max_streams) {
    return Error{ErrorCode::kOverloaded,
                 "overloaded: " + std::to_string(num_streams_) + " streams of the key '" + name_ +
                     "' are under way, as many as it may have; retry when one has ended"};
  }
  ++num_streams_;
  return {};
}

Result<void> Account::begin_part(std::int64_t num_tokens) {
  const std::lock_guard lock(mutex_);
  Result<void> added = add_stream();
  if (added && limits_.tokens_per_minute > 0) num_tokens_ -= static_cast<double>(num_tokens);
  return added;
}

Result<void> Account::begin(std::int64_t num_tokens, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (Result<void> added = add_stream(); !added) return added;
  if (limits_.tokens_per_minute > 0) {
    refill(now);
    const double per_ms = static_cast<double>(limits_.tokens_per_minute) / 60'000.0;
    if (num_tokens_ < 1.0) {
      --num_streams_;
      const int wait_ms = static_cast<int>(std::min(1e9, std::ceil((1.0 - num_tokens_) / per_ms)));
      return Error{ErrorCode::kOverloaded,
                   "overloaded: the key '" + name_ + "' has used up its " +
                       std::to_string(limits_.tokens_per_minute) + " tokens a minute; retry in " +
                       std::to_string((wait_ms + 999) / 1000) + " s",
                   wait_ms};
    }
    num_tokens_ -= static_cast<double>(num_tokens);
  }
  return {};
}

void Account::undo(std::int64_t num_tokens) noexcept {
  const std::lock_guard lock(mutex_);
  --num_streams_;
  if (limits_.tokens_per_minute > 0) num_tokens_ += static_cast<double>(num_tokens);
}

void Account::generated(std::int64_t num_tokens) noexcept {
  const std::lock_guard lock(mutex_);
  if (limits_.tokens_per_minute > 0) num_tokens_ -= static_cast<double>(num_tokens);
}

void Account::ended(int num_streams) noexcept {
  const std::lock_guard lock(mutex_);
  num_streams_ -= num_streams;
}

// Up to those of one minute.
void Account::refill(Clock::time_point now) {
  const double minutes = std::chrono::duration<double, std::ratio<60>>(now - refilled_).count();
  const auto most = static_cast<double>(limits_.tokens_per_minute);
  num_tokens_ = std::min(most, num_tokens_ + std::max(0.0, minutes) * most);
  refilled_ = std::max(refilled_, now);
}

}  // namespace lmtp
