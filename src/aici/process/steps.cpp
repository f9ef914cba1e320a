#include "process/steps.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lmtp::aici {
namespace {

// Choices wait so long for those of sequences that are about to ask.
constexpr std::chrono::milliseconds kGatherTime{1};

}  // namespace

void Steps::bind(const std::string& request_id, Sequence id, Time now) {
  live_[id] = LiveSequence{.request_id = request_id, .since = now};
}

void Steps::discard(const std::string& request_id, Time now) {
  live_[next_discard_++] = LiveSequence{.request_id = request_id, .since = now, .is_freed = true};
}

void Steps::choose(Sequence id, std::vector<Sequence> group, Runtime::Done<Choice> done, Time now) {
  LiveSequence& sequence = live_.at(id);
  sequence.on_choose = std::move(done);
  sequence.group = std::move(group);
  if (sequence.stage == Stage::kEnded) {
    answer(sequence, Choice{}, now);
  } else if (sequence.next_choice) {
    answer(sequence, *std::exchange(sequence.next_choice, {}), now);
  } else {
    enter(sequence, Stage::kChoosing, now);
  }
}

void Steps::fork(Sequence parent, const std::vector<Sequence>& children, Time now) {
  const LiveSequence& from = live_.at(parent);
  int branch = 0;
  for (const Sequence child : children) {
    live_[child] = LiveSequence{
        .request_id = from.request_id, .since = now, .parent = parent, .branch = ++branch};
    if (from.stage == Stage::kEnded) fail(live_[child], from.failure, now);
  }
}

void Steps::free(Sequence id, Time now) {
  LiveSequence* const sequence = find(id);
  if (sequence == nullptr) return;
  sequence->is_freed = true;
  if (sequence->on_advance == nullptr && sequence->on_choose == nullptr) sequence->since = now;
  const bool is_unknown_child = !sequence->is_known && sequence->parent;
  const bool is_wanted = sequence->on_choose != nullptr || clones_all_;
  if (is_unknown_child && !is_wanted) live_.erase(id);
}

std::vector<Sequence> Steps::fail_all(const std::string& reason) {
  const Time now = std::chrono::steady_clock::now();
  std::vector<Sequence> left;
  for (auto& [id, sequence] : live_) {
    fail(sequence, reason, now);
    if (!sequence.is_freed) left.push_back(id);
  }
  live_.clear();
  return left;
}

LiveSequence* Steps::find(Sequence id) {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : &found->second;
}

void Steps::enter(LiveSequence& sequence, Stage stage, Time now) {
  sequence.stage = stage;
  sequence.since = now;
}

void Steps::answer(LiveSequence& sequence, Advance advance, Time now) {
  if (sequence.stage == Stage::kEnded) {
    advance.kind = sequence.failure.empty() ? Advance::Kind::kStop : Advance::Kind::kFail;
    advance.error = sequence.failure;
  } else {
    enter(sequence, Stage::kAdvanced, now);
  }
  advance.log = std::exchange(sequence.log, {});
  if (auto done = std::exchange(sequence.on_advance, {})) done(std::move(advance));
}

void Steps::answer(LiveSequence& sequence, Choice choice, Time now) {
  if (sequence.stage == Stage::kEnded) {
    choice.kind = sequence.failure.empty() ? Choice::Kind::kStop : Choice::Kind::kFail;
    choice.error = sequence.failure;
  } else {
    enter(sequence, Stage::kChosen, now);
  }
  choice.log = std::exchange(sequence.log, {});
  if (auto done = std::exchange(sequence.on_choose, {})) done(std::move(choice));
}

void Steps::fail(LiveSequence& sequence, const std::string& reason, Time now) {
  if (sequence.stage != Stage::kEnded) sequence.failure = reason;
  stop(sequence, now);
}

void Steps::stop(LiveSequence& sequence, Time now) {
  enter(sequence, Stage::kEnded, now);
  sequence.is_suspended = false;
  if (sequence.on_advance) {
    answer(sequence, Advance{}, now);
  } else if (sequence.on_choose) {
    answer(sequence, Choice{}, now);
  }
}

std::vector<std::vector<Sequence>> Steps::ready_groups() const {
  std::vector<std::vector<Sequence>> groups;
  const std::set<Sequence> incomplete = incomplete_families();
  for (const auto& [id, sequence] : live_) {
    if (sequence.stage != Stage::kChoosing) continue;
    std::vector<Sequence> members;
    bool is_ready = true;
    for (const Sequence member : sequence.group) {
      const auto found = live_.find(member);
      const bool is_there = found != live_.end() && found->second.stage != Stage::kEnded;
      const bool asks = is_there && found->second.stage == Stage::kChoosing;
      if (asks) members.push_back(member);
      is_ready = is_ready && (asks || !is_there || found->second.is_freed);
      if (asks && incomplete.contains(family_of(member, found->second))) is_ready = false;
    }
    // Once for each group: where its first member is met.
    if (is_ready && !members.empty() && std::ranges::min(members) == id) {
      groups.push_back(std::move(members));
    }
  }
  return groups;
}

Sequence Steps::family_of(Sequence id, const LiveSequence& sequence) {
  return sequence.is_known ? id : sequence.parent.value_or(id);
}

std::set<Sequence> Steps::incomplete_families() const {
  std::set<Sequence> families;
  for (const auto& [id, sequence] : live_) {
    if (sequence.is_known || !sequence.parent) continue;
    const auto lacks_report = [](const LiveSequence& member, Stage before) {
      return member.stage == before && !member.is_freed;
    };
    const auto parent = live_.find(*sequence.parent);
    const bool is_incomplete =
        lacks_report(sequence, Stage::kIdle) ||
        (parent != live_.end() && lacks_report(parent->second, Stage::kChosen));
    if (is_incomplete) families.insert(*sequence.parent);
  }
  return families;
}

std::vector<Sequence> Steps::unknown_children(Sequence parent) const {
  std::vector<Sequence> children;
  for (const auto& [id, sequence] : live_) {
    if (sequence.parent == parent && !sequence.is_known) children.push_back(id);
  }
  std::ranges::sort(children, {}, [this](Sequence id) { return live_.at(id).branch; });
  return children;
}

Time Steps::choices_time() const {
  Time first = Time::max();
  std::size_t num_ready = 0;
  for (const std::vector<Sequence>& group : ready_groups()) {
    for (const Sequence id : group) first = std::min(first, live_.at(id).since);
    num_ready += group.size();
  }
  if (num_ready == 0 || num_ready >= rows_max() || !any(Stage::kAdvanced)) return first;
  return first + kGatherTime;
}

// The runtime wants more than the rows take.
std::size_t Steps::rows_max() const {
  const std::size_t row = static_cast<std::size_t>(options_.runtime_vocab_size) * sizeof(float);
  return (options_.bias_bytes - 1) / row;
}

void Steps::end_deadlocks(int rounds_max, Time now) {
  std::map<std::string, bool> is_stuck;
  for (const auto& [id, sequence] : live_) {
    if (sequence.is_freed || sequence.stage == Stage::kEnded) continue;
    const auto [entry, is_new] = is_stuck.try_emplace(sequence.request_id, true);
    entry->second = entry->second && sequence.is_suspended;
  }
  std::erase_if(rounds_, [&](const auto& entry) {
    const auto found = is_stuck.find(entry.first);
    return found == is_stuck.end() || !found->second;
  });
  for (const auto& [request_id, stuck] : is_stuck) {
    if (stuck) ++rounds_[request_id];
  }
  for (auto& [id, sequence] : live_) {
    const auto found = rounds_.find(sequence.request_id);
    if (found != rounds_.end() && found->second > rounds_max) fail(sequence, kDeadlock, now);
  }
}

Time Steps::earliest(Stage stage) const {
  Time first = Time::max();
  for (const auto& [id, sequence] : live_) {
    if (sequence.stage == stage && !sequence.is_freed) first = std::min(first, sequence.since);
  }
  return first;
}

void append(CallLog& log, CallLog more) {
  log.logs += more.logs;
  log.storage.insert(log.storage.end(), std::make_move_iterator(more.storage.begin()),
                     std::make_move_iterator(more.storage.end()));
  log.micros += more.micros;
}

}  // namespace lmtp::aici
