// The part of Scheduler that changes live sequences between two steps. All edits work alike: what a
// sequence computed goes to the prefix cache, and it waits to be admitted again with other tokens.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"
#include "stream_end.h"

namespace lmtp::scheduler {
namespace {

// Steele, Lea, Flood 2014: the number-th output of the generator that starts at `seed`.
std::uint64_t splitmix64(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t z = seed + number * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

Error not_live(StreamId stream) {
  return {ErrorCode::kInvalid,
          "stream_id: " + std::to_string(stream) + " is not live; allowed are live streams"};
}

// The bias that the request itself asked for.
const LogitBias* bias_of(const Sequence& sequence) {
  return (sequence.is_end_withheld ? sequence.own_bias : sequence.params.logit_bias).get();
}

bool is_impossible(const Sequence& sequence, TokenId token) {
  if (sequence.params.mask != nullptr && !sequence.params.mask->allows(token)) return true;
  const LogitBias* bias = bias_of(sequence);
  if (bias == nullptr) return false;
  const auto at = std::ranges::lower_bound(bias->ids, token);
  return at != bias->ids.end() && *at == token &&
         std::isinf(bias->values[static_cast<std::size_t>(at - bias->ids.begin())]);
}

// A checker that has seen what was reported.
std::shared_ptr<StopChecker> restart_stops(const StopChecker* stops, const Sequence& sequence) {
  if (stops == nullptr) return nullptr;
  const auto tokens = std::span<const TokenId>(sequence.tokens);
  const auto first = static_cast<std::size_t>(sequence.num_prompt - sequence.num_resumed);
  return stops->restarted(tokens.first(first),
                          tokens.subspan(first, static_cast<std::size_t>(sequence.num_counted())));
}

}  // namespace

Result<Sequence*> Scheduler::find(StreamKey key) {
  LMTP_CHECK(!steps_.is_under_way());
  if (Sequence* const found = sequences_.find(key)) return found;
  return not_live(key.stream);
}

Result<Sequence*> Scheduler::find_generate(StreamKey key) {
  Result<Sequence*> found = find(key);
  if (found && (*found)->kind != RequestKind::kGenerate) {
    return Error{ErrorCode::kInvalid, "stream_id: " + std::to_string(key.stream) +
                                          " scores; allowed are streams that generate"};
  }
  return found;
}

// Whether these may be appended once the last num_dropped tokens are gone.
Result<void> Scheduler::check_append(const Sequence& sequence, int num_dropped,
                                     std::span<const TokenId> appended) const {
  const int num_kept = std::max(0, sequence.num_generated() - num_dropped);
  const int num_prompt = std::min(sequence.num_prompt, sequence.length() - num_dropped);
  const int most = generated_max(sequence.params, num_prompt) - num_kept - 1;
  if (appended.size() > static_cast<std::size_t>(most)) {
    return Error{ErrorCode::kInvalid,
                 "append: has " + std::to_string(appended.size()) +
                     " tokens; allowed are at most " + std::to_string(most) +
                     " (one less than max_tokens and the context leave room for)"};
  }
  const int num_counted =
      std::max(0, sequence.num_generated() + sequence.num_resumed - num_dropped);
  for (std::size_t i = 0; i < appended.size(); ++i) {
    const bool may_end = num_counted + static_cast<int>(i) >= sequence.params.min_tokens;
    if (!is_impossible(sequence, appended[i]) &&
        (may_end || !is_end(sequence, appended[i], options_.eos_ids))) {
      continue;
    }
    return Error{ErrorCode::kInvalid,
                 "append: token " + std::to_string(appended[i]) +
                     " has probability 0; allowed are tokens that the stream's logit_bias, mask "
                     "and min_tokens do not make impossible"};
  }
  return {};
}

void Scheduler::cut(Sequence& sequence, int num_dropped) {
  scores_.flush(sequence);
  requeue(sequence);
  const int length = sequence.length() - num_dropped;
  sequence.num_backtracked += std::max(0, sequence.num_prompt + sequence.num_emitted - length);
  sequence.tokens.resize(static_cast<std::size_t>(length));
  sequence.num_known = std::min(sequence.num_known, length);
  sequence.score_place = {};
  sequence.forced_end = std::min(sequence.forced_end, length);
  const int num_prompt = std::min(sequence.num_prompt, length);
  sequence.num_resumed = std::max(0, sequence.num_resumed - (sequence.num_prompt - num_prompt));
  sequence.num_prompt = num_prompt;
  sequence.num_generated_max = generated_max(sequence.params, num_prompt);
  sequence.num_emitted = std::min(sequence.num_emitted, length - num_prompt);
  sequence.stops = restart_stops(sequence.stops.get(), sequence);
  withhold_end(sequence, options_.eos_ids);
  line_.match(sequence);
}

Result<void> Scheduler::backtrack(StreamKey key, std::int64_t asked,
                                  std::span<const TokenId> appended) {
  LMTP_CHECK(asked >= 0, asked);
  const Result<Sequence*> found = find_generate(key);
  if (!found) return found.error();
  Sequence& sequence = **found;
  if (asked >= sequence.length()) {
    return Error{ErrorCode::kInvalid, "drop: is " + std::to_string(asked) +
                                          "; allowed are at most " +
                                          std::to_string(sequence.length() - 1) +
                                          " (the stream's tokens but the first)"};
  }
  const auto num_dropped = static_cast<int>(asked);
  if (Result<void> ok = check_append(sequence, num_dropped, appended); !ok) return ok;
  if (num_dropped > 0) cut(sequence, num_dropped);
  sequence.tokens.insert(sequence.tokens.end(), appended.begin(), appended.end());
  slots_.note_tokens(sequence, appended);
  return {};
}

// In a commit: what follows the token that was just drawn is known. A row that was planned ahead
// does not count.
void Scheduler::force(Sequence& sequence, std::span<const TokenId> tokens) {
  const int room = sequence.num_generated_max - sequence.num_generated() - 1;
  tokens = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(std::max(0, room))));
  // One that ends the stream, or that its parameters forbid, is drawn, and so are those after it.
  const auto last = std::ranges::find_if(tokens, [&](TokenId token) {
    return is_end(sequence, token, options_.eos_ids) || is_impossible(sequence, token);
  });
  tokens = tokens.first(static_cast<std::size_t>(last - tokens.begin()));
  if (tokens.empty()) return;
  counters_.num_forced_tokens += static_cast<std::int64_t>(tokens.size());
  const bool has_row_ahead = steps_.discard_planned_row(sequence);
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  sequence.forced_end = sequence.length();
  if (has_row_ahead) {
    // What that row draws would be taken for the first of these tokens.
    slots_.restart(sequence);
  } else {
    slots_.note_tokens(sequence, tokens);
  }
}

Result<ForkBegun> Scheduler::fork(StreamKey from, StreamKey to, const SamplingChanges& changes) {
  const Result<Sequence*> found = find_generate(from);
  if (!found) return found.error();
  if (sequences_.find(to) != nullptr) {
    return Error{ErrorCode::kInvalid, "streams: " + std::to_string(to.stream) +
                                          " is live; allowed are ids of no live stream"};
  }
  Sequence& parent = **found;
  if (parent.num_forks >= kMaxForks) {
    return Error{ErrorCode::kInvalid, "streams: stream " + std::to_string(from.stream) +
                                          " was forked " + std::to_string(parent.num_forks) +
                                          " times; allowed are at most " +
                                          std::to_string(kMaxForks)};
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->params = parent.params;
  if (parent.is_end_withheld) sequence->params.logit_bias = parent.own_bias;
  const auto number = static_cast<std::uint64_t>(parent.num_forks) + 1;
  sequence->params.seed = splitmix64(parent.params.seed, number);
  changes.apply(sequence->params);
  if (sequence->params.max_tokens <= parent.num_generated()) {
    return Error{ErrorCode::kInvalid,
                 "max_tokens: is " + std::to_string(sequence->params.max_tokens) +
                     "; allowed is more than the " + std::to_string(parent.num_generated()) +
                     " tokens that the stream has generated"};
  }
  const TokenMask* const mask = sequence->params.mask.get();
  if (mask != nullptr && parent.num_counted() < sequence->params.min_tokens &&
      !mask->allows_other(sequence->params.end_ids(options_.eos_ids), options_.vocab_size)) {
    return Error{ErrorCode::kInvalid,
                 "min_tokens: none of the tokens that the stream's mask allows can be drawn before "
                 "it; allowed are at most " +
                     std::to_string(parent.num_counted())};
  }
  ++parent.num_forks;
  if (parent.status == SequenceStatus::kRunning) index_computed(parent, true);
  sequence->is_fork = true;
  sequence->num_known = std::max(parent.num_computed, parent.num_known);
  sequence->key = to;
  sequence->share = parent.share;
  sequence->priority = parent.priority;
  sequence->weights_of_adapter = parent.weights_of_adapter;
  sequence->name_space = parent.name_space;
  sequence->tokens.reserve(parent.tokens.capacity());
  sequence->blocks.reserve(parent.blocks.capacity());
  sequence->tokens = parent.tokens;
  sequence->num_prompt = parent.num_prompt;
  sequence->num_resumed = parent.num_resumed;
  sequence->num_emitted = parent.num_emitted;
  sequence->forced_end = parent.forced_end;
  sequence->stops = restart_stops(parent.stops.get(), *sequence);
  if (parent.mask_source != nullptr) sequence->mask_source = parent.mask_source->forked();
  sequence->is_controlled = parent.is_controlled;
  sequence->wants_notices = parent.wants_notices;
  const ForkBegun begun{.stream_id = to.stream,
                        .fork_of = from.stream,
                        .num_prompt = sequence->num_prompt,
                        .num_shared = sequence->num_emitted,
                        .num_backtracked = parent.num_backtracked};
  add(std::move(sequence));
  return begun;
}

void Scheduler::set_held(Sequence& sequence, bool held) {
  if (!sequences_.set_held(sequence, held)) return;
  if (held) {
    steps_.discard_planned_row(sequence);
  } else {
    line_.forget_refusal();
  }
}

void Scheduler::hold(StreamKey key) { set_held(sequences_.at(key), true); }
void Scheduler::release(StreamKey key) { set_held(sequences_.at(key), false); }

void Scheduler::set_temperature(StreamKey key, float temperature) {
  Sequence& sequence = sequences_.at(key);
  if (std::exchange(sequence.params.temperature, temperature) == temperature) return;
  if (sequence.is_slot_known) slots_.restart(sequence);
}

Result<void> Scheduler::suspend(StreamKey key) {
  const Result<Sequence*> found = find(key);
  if (!found) return found.error();
  Sequence& sequence = **found;
  if (sequence.status == SequenceStatus::kSuspended) return {};
  requeue(sequence);
  line_.remove(sequence);
  sequence.status = SequenceStatus::kSuspended;
  set_held(sequence, false);
  shares_.leave(sequence);
  return {};
}

Result<void> Scheduler::resume(StreamKey key) {
  const Result<Sequence*> found = find(key);
  if (!found) return found.error();
  Sequence& sequence = **found;
  if (sequence.status != SequenceStatus::kSuspended) return {};
  shares_.join(sequence);
  line_.add(sequence, steps_.number());
  line_.match(sequence);
  return {};
}

}  // namespace lmtp::scheduler
