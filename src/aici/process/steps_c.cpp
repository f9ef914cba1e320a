// Dialect C. All that a sequence does is one op of mid_process: it says what became of the last
// choice and asks for the next. So advance() is answered here, and its report goes with choose().
// What is chosen before choose() asks for it is kept: by a sequence that is suspended, which is
// asked again with an empty report; and by the parent and the forks of one that has asked, as the
// command in which the first of them asks tells the reports of all.
#include <algorithm>
#include <set>
#include <utility>

#include "process/steps.h"
#include "process/wire_c.h"

namespace lmtp::aici {
namespace {

// A controller that is late looks like one that waits, and may be ten times.
constexpr int kDeadlockRoundsOfC = 16;
// Ids that are freed wait so long for a step of others.
constexpr std::chrono::seconds kFreeTime{1};

class StepsC : public Steps {
 public:
  explicit StepsC(StepOptions options) : Steps(options, true) {}

  void advance(Sequence id, Report report, Runtime::Done<Advance> done, Time now) override {
    LiveSequence& sequence = live_.at(id);
    sequence.on_advance = std::move(done);
    if (sequence.stage == Stage::kEnded) return answer(sequence, Advance{}, now);
    sequence.report = std::move(report);
    enter(sequence, Stage::kAdvancing, now);
    if (!sequence.is_suspended) answer(sequence, Advance{}, now);
  }

  Time next_time() const override {
    Time time = choices_time();
    if (any(Stage::kAdvancing)) time = std::min(time, last_ + kPollInterval);
    return std::min(time, free_time());
  }

  Result<void> step(MainChannel& channel, Time now) override {
    if (next_time() > now) return {};
    ops_.clear();
    freed_.clear();
    const std::size_t num_max = rows_max();
    for (const std::vector<Sequence>& group : ready_groups()) {
      if (group.size() > num_max) {
        for (const Sequence id : group) {
          fail(live_.at(id), "more forks than --aicirt-bin-size has room for", now);
        }
      } else if (ops_.size() + group.size() <= num_max) {
        for (const Sequence id : group) add(id);
      }
    }
    const std::set<Sequence> incomplete = incomplete_families();
    for (auto& [id, sequence] : live_) {
      if (incomplete.contains(family_of(id, sequence))) continue;
      const bool is_last = sequence.is_freed &&
                           (!sequence.is_known || sequence.report || !unknown_children(id).empty());
      const bool is_asked = sequence.stage == Stage::kAdvancing || is_last;
      if (is_asked && ops_.size() < num_max) add(id);
    }
    list_freed(incomplete);
    if (ops_.empty()) return {};
    const Result<Json> data = channel.ask(wire_c::command_of(ops_, freed_), options_.answer_time);
    if (!data) return data.error();
    Result<wire_c::MidAnswer> results = wire_c::read_mid(*data, options_.runtime_vocab_size);
    if (!results) return results.error();
    last_ = now = std::chrono::steady_clock::now();
    for (const wire_c::Op& op : ops_) {
      Result<void> done = take(op.id, *results, channel.biases(), now);
      if (!done) return done;
    }
    end_deadlocks(kDeadlockRoundsOfC, now);
    for (const Sequence id : freed_) live_.erase(id);
    return {};
  }

 private:
  Time free_time() const {
    Time first = Time::max();
    bool is_alone = true;
    const std::set<Sequence> incomplete = incomplete_families();
    for (const auto& [id, sequence] : live_) {
      if (sequence.is_freed) {
        const bool waits = incomplete.contains(family_of(id, sequence));
        if (!waits) first = std::min(first, sequence.since);
      } else {
        is_alone = is_alone && sequence.stage == Stage::kEnded;
      }
    }
    return first == Time::max() || is_alone ? first : first + kFreeTime;
  }

  // A parent comes before its children, and all of these in the command of the first: the runtime
  // counts them.
  void add(Sequence id) {
    LiveSequence& sequence = live_.at(id);
    if (std::ranges::any_of(ops_, [id](const wire_c::Op& op) { return op.id == id; })) return;
    if (!sequence.is_known && sequence.parent && live_.contains(*sequence.parent)) {
      const bool is_there = std::ranges::any_of(
          ops_, [&](const wire_c::Op& op) { return op.id == *sequence.parent; });
      if (!is_there) return add(*sequence.parent);
    }
    wire_c::Op op{.id = id};
    if (sequence.report) {
      op.backtrack = sequence.report->num_dropped;
      op.tokens = std::move(sequence.report->appended);
      op.sampled = sequence.report->sampled;
    }
    sequence.report.reset();
    if (!sequence.is_known && sequence.parent) {
      op.clone_id = sequence.parent;
      op.clone_idx = sequence.branch;
    } else if (!sequence.is_known) {
      op.request_id = sequence.request_id;
    }
    const std::vector<Sequence> children = unknown_children(id);
    sequence.is_known = true;
    ops_.push_back(std::move(op));
    for (const Sequence child : children) add(child);
  }

  // The runtime wants an op in every command. A parent stays until its children were made.
  void list_freed(const std::set<Sequence>& incomplete) {
    for (const auto& [id, sequence] : live_) {
      const bool stays = !sequence.is_known || incomplete.contains(id);
      if (sequence.is_freed && !stays) freed_.push_back(id);
    }
    if (ops_.empty() && !freed_.empty()) add(freed_.front());
  }

  Result<void> take(Sequence id, wire_c::MidAnswer& results, std::span<const std::byte> biases,
                    Time now) {
    LiveSequence& sequence = live_.at(id);
    const auto found = results.seqs.find(id);
    if (found == results.seqs.end()) {
      return Error{ErrorCode::kUnavailable,
                   "the runtime's answer: seqs lacks sequence " + std::to_string(id)};
    }
    SequenceResult<wire_c::Mid>& result = found->second;
    append(sequence.log, std::move(result.log));
    if (sequence.stage == Stage::kEnded) return {};
    if (!result.error.empty()) {
      fail(sequence, result.error, now);
      return {};
    }
    if (!result.result || result.result->branches.empty()) {
      stop(sequence, now);
      return {};
    }
    Choice choice;
    for (wire_c::WireBranch& branch : result.result->branches) {
      Result<Branch> made = branch_of(std::move(branch), results.rows, biases);
      if (!made) return made.error();
      choice.branches.push_back(*std::move(made));
      Branch& last = choice.branches.back();
      if (last.samples && !allows_any(last.mask)) {
        fail(sequence, "the controller allows no token", now);
        return {};
      }
      if (allows_all(last.mask, options_.vocab_size)) last.mask.clear();
    }
    take_choice(sequence, std::move(choice), now);
    return {};
  }

  void take_choice(LiveSequence& sequence, Choice choice, Time now) {
    const Branch& first = choice.branches.front();
    sequence.is_suspended = choice.branches.size() == 1 && !first.samples &&
                            first.splices.front().num_dropped == 0 &&
                            first.splices.front().appended.empty();
    if (sequence.is_suspended) choice = Choice{.kind = Choice::Kind::kSuspend};
    if (sequence.stage == Stage::kChoosing) {
      answer(sequence, std::move(choice), now);
    } else if (sequence.stage == Stage::kAdvanced) {
      sequence.next_choice = std::move(choice);
    } else if (sequence.stage == Stage::kAdvancing && !sequence.is_suspended) {
      sequence.next_choice = std::move(choice);
      answer(sequence, Advance{}, now);
    }
  }

  Result<Branch> branch_of(wire_c::WireBranch wire, const RowPlaces& rows,
                           std::span<const std::byte> biases) const {
    Branch branch{.samples = wire.sample_mask.has_value(), .temperature = wire.temperature};
    for (wire_c::WireSplice& splice : wire.splices) {
      // Of a branch that draws, backtrack counts the token that was drawn.
      const bool keeps = branch.samples && splice.backtrack == 0;
      const int num_dropped = splice.backtrack - (branch.samples && !keeps ? 1 : 0);
      branch.splices.push_back({.when_sampled = std::move(splice.when_sampled),
                                .keeps_sampled = keeps,
                                .num_dropped = num_dropped,
                                .appended = std::move(splice.ff_tokens)});
    }
    if (!wire.sample_mask) return branch;
    const RowPlaces places{
        rows.first_byte, rows.row_bytes,
        std::min(rows.row_elements, static_cast<std::size_t>(options_.runtime_vocab_size))};
    Result<std::vector<std::uint32_t>> mask =
        read_row(biases, places, *wire.sample_mask, options_.vocab_size);
    if (!mask) return mask.error();
    branch.mask = *std::move(mask);
    return branch;
  }

  // Of the command that is being made.
  std::vector<wire_c::Op> ops_;
  std::vector<Sequence> freed_;

  Time last_ = {};
};

}  // namespace

std::unique_ptr<Steps> make_steps_c(StepOptions options) {
  return std::make_unique<StepsC>(options);
}

}  // namespace lmtp::aici
