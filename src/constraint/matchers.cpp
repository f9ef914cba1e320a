#include "matchers.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lmtp::constraint {
namespace {

std::size_t num_shared(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

std::optional<Matcher> Matchers::take_nearest(std::span<const TokenId> tokens) {
  std::unique_lock lock(mutex_);
  // How many tokens it shares, and how many have to be taken back, which are better few.
  const auto rank = [&](const Matcher& matcher) {
    const std::size_t shared = num_shared(matcher.tokens(), tokens);
    return std::pair(shared, -static_cast<std::ptrdiff_t>(matcher.tokens().size() - shared));
  };
  const auto nearest = std::ranges::max_element(idle_, {}, rank);
  if (nearest == idle_.end()) return std::nullopt;
  const bool is_behind = rank(*nearest).first < nearest->tokens().size();
  const bool is_shared = is_behind && idle_.size() < num_streams_;
  Matcher matcher = std::move(*nearest);
  idle_.erase(nearest);
  lock.unlock();
  if (is_shared) {
    Matcher copy = matcher.clone();
    give_back(std::move(matcher));
    return copy;
  }
  return matcher;
}

Result<Matcher> Matchers::take(std::span<const TokenId> tokens) {
  std::optional<Matcher> found = take_nearest(tokens);
  if (!found || !found->set_back(num_shared(found->tokens(), tokens))) {
    found = grammar_->new_matcher();
  }
  for (const TokenId token : tokens.subspan(found->tokens().size())) {
    if (Result<void> done = found->consume(token); !done) return done.error();
  }
  return std::move(*found);
}

void Matchers::give_back(Matcher matcher) {
  std::optional<Matcher> dropped;  // outlives the lock
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(matcher));
  if (idle_.size() <= std::max<std::size_t>(num_streams_, 1)) return;
  dropped = std::move(idle_.front());
  idle_.erase(idle_.begin());
}

bool Matchers::goes_beyond(std::span<const TokenId> tokens) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(idle_, [&](const Matcher& matcher) {
    return matcher.tokens().size() > tokens.size() &&
           num_shared(matcher.tokens(), tokens) == tokens.size();
  });
}

void Matchers::add_stream() {
  const std::lock_guard lock(mutex_);
  ++num_streams_;
}

void Matchers::remove_stream() {
  std::optional<Matcher> dropped;
  const std::lock_guard lock(mutex_);
  --num_streams_;
  if (idle_.size() <= num_streams_) return;
  dropped = std::move(idle_.front());
  idle_.erase(idle_.begin());
}

}  // namespace lmtp::constraint
