// Dialect A. post_pre_process runs every sequence that the runtime knows, whether it is named or
// not. So it waits, for a while, until none is between its choice and what became of it: AICI's own
// engines go on with all of them together. What the runtime says of a sequence before it was asked
// is kept for its next call.
#include <algorithm>
#include <set>
#include <utility>

#include "process/bias_rows.h"
#include "process/steps.h"
#include "process/wire_a.h"

namespace lmtp::aici {
namespace {

// How long post_pre_process waits for sequences in a forward pass, and for those about to be in
// one.
constexpr std::chrono::seconds kStepTimeMax{2};
constexpr std::chrono::milliseconds kChooseTimeMax{20};
constexpr int kDeadlockRoundsOfA = 3;

Choice splice_of(std::vector<TokenId> appended, int num_dropped) {
  Choice choice;
  choice.branches.push_back({.samples = false});
  choice.branches.back().splices.push_back(
      {.num_dropped = num_dropped, .appended = std::move(appended)});
  return choice;
}

class StepsA : public Steps {
 public:
  explicit StepsA(StepOptions options) : Steps(options, false) {}

  void advance(Sequence id, Report report, Runtime::Done<Advance> done, Time now) override {
    LiveSequence& sequence = live_.at(id);
    sequence.on_advance = std::move(done);
    if (sequence.stage == Stage::kEnded) return answer(sequence, Advance{}, now);
    if (sequence.stage == Stage::kChosen && !sequence.is_told) sequence.report = std::move(report);
    sequence.is_told = false;
    enter(sequence, Stage::kAdvancing, now);
  }

  Time next_time() const override { return std::min(choices_time(), post_pre_time()); }

  Result<void> step(MainChannel& channel, Time now) override {
    if (choices_time() <= now) return mid_process(channel, now);
    if (post_pre_time() <= now) return post_pre_process(channel, now);
    return {};
  }

 private:
  Time post_pre_time() const {
    Time asked = Time::max();
    Time freed = Time::max();
    for (const auto& [id, sequence] : live_) {
      if (sequence.stage == Stage::kAdvancing) {
        const Time since = sequence.is_suspended ? last_ + kPollInterval : sequence.since;
        asked = std::min(asked, since);
      } else if (sequence.is_freed) {
        freed = std::min(freed, sequence.since);
      }
    }
    const Time first = std::min(asked, freed);
    if (first == Time::max()) return first;
    Time until = first;
    if (any(Stage::kChoosing) || any(Stage::kChosen)) until = first + kStepTimeMax;
    if (any(Stage::kAdvanced)) {
      const Time limit = asked == Time::max() ? first + kStepTimeMax : first + kChooseTimeMax;
      until = std::max(until, limit);
    }
    return until;
  }

  Result<void> post_pre_process(MainChannel& channel, Time now) {
    wire_a::PostPreProcess command;
    std::set<Sequence> posted;
    for (auto& [id, sequence] : live_) {
      const bool is_asked = sequence.stage == Stage::kAdvancing || sequence.is_freed;
      if (!sequence.is_known && !sequence.parent && is_asked) {
        command.pre_ops.push_back({id, sequence.request_id});
        sequence.is_known = true;
      }
      if (!sequence.is_known) continue;
      if (sequence.report && sequence.stage != Stage::kEnded) {
        const int num_dropped = sequence.report->num_dropped;
        command.post_ops.push_back(
            {id, std::move(sequence.report->appended),
             num_dropped > 0 ? num_dropped + 1 : std::min(sequence.backtrack, 1)});
        posted.insert(id);
        sequence.last_ff.clear();
      }
      sequence.report.reset();
      // A parent stays until its children were made.
      if (sequence.is_freed && unknown_children(id).empty()) command.freed.push_back(id);
    }
    const Result<Json> data = channel.ask(wire_a::command_of(command), options_.answer_time);
    if (!data) return data.error();
    Result<wire_a::PostPreAnswer> results =
        wire_a::read_post_pre(*data, options_.runtime_vocab_size);
    if (!results) return results.error();
    last_ = now = std::chrono::steady_clock::now();
    for (auto& [id, sequence] : live_) {
      if (!sequence.is_known || sequence.stage == Stage::kEnded) continue;
      Result<void> done = take_post(id, sequence, posted.contains(id), *results, now);
      if (!done) return done;
    }
    end_deadlocks(kDeadlockRoundsOfA, now);
    for (const Sequence id : command.freed) live_.erase(id);
    return {};
  }

  Result<void> take_post(Sequence id, LiveSequence& sequence, bool is_posted,
                         wire_a::PostPreAnswer& results, Time now) {
    const auto post = results.post.find(id);
    const auto pre = results.pre.find(id);
    if (pre == results.pre.end() ||
        (is_posted && post == results.post.end() && pre->second.error.empty())) {
      return Error{ErrorCode::kUnavailable,
                   "the runtime's answer: it lacks sequence " + std::to_string(id)};
    }
    if (post != results.post.end()) {
      append(sequence.log, std::move(post->second.log));
      if (!post->second.error.empty()) {
        fail(sequence, post->second.error, now);
        return {};
      }
      if (post->second.result && post->second.result->stop) {
        append(sequence.log, std::move(pre->second.log));
        stop(sequence, now);
        return {};
      }
    }
    append(sequence.log, std::move(pre->second.log));
    if (!pre->second.error.empty()) {
      fail(sequence, pre->second.error, now);
    } else if (!pre->second.result) {
      return Error{ErrorCode::kUnavailable,
                   "the runtime's answer: pre_seqs." + std::to_string(id) + ": lacks a result"};
    } else {
      take_pre(id, sequence, *std::move(pre->second.result), now);
    }
    return {};
  }

  void take_pre(Sequence id, LiveSequence& sequence, wire_a::Pre pre, Time now) {
    if (options_.repeats_ff && pre.ff_tokens == sequence.last_ff) pre.ff_tokens.clear();
    if (options_.repeats_ff && !pre.ff_tokens.empty()) sequence.last_ff = pre.ff_tokens;
    if (sequence.stage == Stage::kAdvancing) {
      if (pre.num_forks == 0) return stop(sequence, now);
      const bool was_suspended = std::exchange(sequence.is_suspended, pre.suspend);
      if (pre.suspend && was_suspended && pre.ff_tokens.empty()) return;  // nothing new
      answer(sequence,
             Advance{.kind = pre.suspend ? Advance::Kind::kSuspend : Advance::Kind::kGoOn,
                     .appended = std::move(pre.ff_tokens),
                     .num_forks = pre.num_forks},
             now);
      return;
    }
    // It was not asked.
    const bool is_between = sequence.stage == Stage::kAdvanced && unknown_children(id).empty();
    if (!pre.ff_tokens.empty() && !is_between) {
      fail(sequence, "the runtime has gone on with it out of turn", now);
    } else if (is_between && pre.num_forks == 0) {
      stop(sequence, now);
    } else if (is_between && (pre.suspend || !pre.ff_tokens.empty())) {
      sequence.is_suspended = pre.suspend;
      sequence.is_told = true;
      sequence.next_choice = splice_of(std::move(pre.ff_tokens), 0);
      if (pre.suspend) sequence.next_choice = Choice{.kind = Choice::Kind::kSuspend};
    }
  }

  Result<void> mid_process(MainChannel& channel, Time now) {
    std::vector<wire_a::MidOp> ops;
    for (const std::vector<Sequence>& group : ready_groups()) {
      if (group.size() > rows_max()) {
        for (const Sequence id : group) {
          fail(live_.at(id), "more forks than --aicirt-bin-size has room for", now);
        }
      } else if (ops.size() + group.size() <= rows_max()) {
        for (const Sequence id : group) {
          const LiveSequence& sequence = live_.at(id);
          ops.push_back({id, sequence.is_known ? std::nullopt : sequence.parent});
        }
      }
    }
    if (ops.empty()) return {};
    const Result<Json> data = channel.ask(wire_a::command_of(ops), options_.answer_time);
    if (!data) return data.error();
    Result<Results<wire_a::MidSplice>> results =
        wire_a::read_mid(*data, ops.size(), options_.runtime_vocab_size);
    if (!results) return results.error();
    now = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      Result<void> done = take_mid(ops[i].id, i, *results, channel.biases(), now);
      if (!done) return done;
    }
    return {};
  }

  Result<void> take_mid(Sequence id, std::size_t row, Results<wire_a::MidSplice>& results,
                        std::span<const std::byte> biases, Time now) {
    LiveSequence& sequence = live_.at(id);
    const auto found = results.find(id);
    if (found == results.end()) {
      return Error{ErrorCode::kUnavailable,
                   "the runtime's answer: seqs lacks sequence " + std::to_string(id)};
    }
    SequenceResult<wire_a::MidSplice>& result = found->second;
    sequence.is_known = true;
    sequence.last_ff.clear();
    append(sequence.log, std::move(result.log));
    if (!result.error.empty()) {
      fail(sequence, result.error, now);
    } else if (result.result) {
      sequence.backtrack = result.result->backtrack;
      answer(sequence,
             splice_of(std::move(result.result->ff_tokens), std::max(0, sequence.backtrack - 1)),
             now);
    } else {
      sequence.backtrack = 0;
      const auto num = static_cast<std::size_t>(options_.runtime_vocab_size);
      Result<std::vector<std::uint32_t>> mask =
          read_row(biases, {0, num * sizeof(float), num}, row, options_.vocab_size);
      if (!mask) return mask.error();
      Choice choice;
      choice.branches.emplace_back();
      // The same bias everywhere is no constraint.
      const bool is_free = !allows_any(*mask) || allows_all(*mask, options_.vocab_size);
      if (!is_free) choice.branches.back().mask = *std::move(mask);
      answer(sequence, std::move(choice), now);
    }
    return {};
  }

  Time last_ = {};  // post_pre_process
};

}  // namespace

std::unique_ptr<Steps> make_steps_a(StepOptions options) {
  return std::make_unique<StepsA>(options);
}

}  // namespace lmtp::aici
