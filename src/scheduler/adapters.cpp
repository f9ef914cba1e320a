// The part of Scheduler that gives blocks to adapters: a sequence with one runs only where its
// weights are in blocks. They go as the prefix cache's do, all of an adapter at once.
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp::scheduler {
namespace {

// A sequence that has waited for so long for a place for its adapter has others of its adapter's
// kind, that came later, wait behind it: those that run end, and it is next.
constexpr std::int64_t kStarvedSteps = 256;

}  // namespace

const Scheduler::AdapterState& Scheduler::adapter_of(const Sequence& sequence) const {
  const auto found = std::ranges::find(adapters_, sequence.adapter, &AdapterState::number);
  LMTP_CHECK(found != adapters_.end(), sequence.id, sequence.adapter);
  return *found;
}

Scheduler::AdapterState& Scheduler::adapter_of(const Sequence& sequence) {
  return const_cast<AdapterState&>(std::as_const(*this).adapter_of(sequence));
}

// Numbers are not given again: what the prefix cache has under one is of that adapter.
void Scheduler::join_adapter(Sequence& sequence) {
  if (sequence.weights_of_adapter == nullptr) return;
  std::erase_if(adapters_, [this](const AdapterState& adapter) {
    return adapter.weights.expired() && !is_resident(adapter);
  });
  const auto found = std::ranges::find_if(adapters_, [&](const AdapterState& adapter) {
    return adapter.weights.lock() == sequence.weights_of_adapter;
  });
  if (found == adapters_.end()) {
    adapters_.push_back({.number = next_adapter_++, .weights = sequence.weights_of_adapter});
    sequence.adapter = adapters_.back().number;
  } else {
    sequence.adapter = found->number;
  }
}

// Whether the adapters of what runs, `without` these, leave a place for the sequence's.
bool Scheduler::has_adapter_place(const Sequence& sequence,
                                  const std::vector<Sequence*>& without) const {
  if (sequence.adapter == 0) return true;
  int num_running = 0;
  for (const AdapterState& adapter : adapters_) {
    const auto num_less =
        std::ranges::count(without, adapter.number, [](const Sequence* s) { return s->adapter; });
    if (adapter.num_running <= num_less) continue;
    if (adapter.number == sequence.adapter) return true;
    ++num_running;
  }
  return num_running < options_.batch.max_adapters;
}

void Scheduler::find_starved() {
  starved_ = nullptr;
  if (static_cast<int>(adapters_.size()) <= options_.batch.max_adapters) return;
  for (const Sequence* s : waiting_) {
    if (s->adapter == 0 || s->is_held || step_ - s->waiting_since <= kStarvedSteps) continue;
    if (starved_ != nullptr && starved_->id < s->id) continue;
    if (!has_adapter_place(*s)) starved_ = s;
  }
}

bool Scheduler::waits_for_starved(const Sequence& sequence) const {
  return starved_ != nullptr && sequence.adapter != 0 && starved_->adapter != sequence.adapter &&
         starved_->id < sequence.id;
}

// Blocks of adapters that only these running sequences use, `but` one of them.
int Scheduler::adapter_blocks_without(const std::vector<Sequence*>& sequences, int but) const {
  int num_blocks = 0;
  for (const AdapterState& adapter : adapters_) {
    const auto num_less =
        std::ranges::count(sequences, adapter.number, [](const Sequence* s) { return s->adapter; });
    if (adapter.number == but || adapter.num_running == 0) continue;
    if (adapter.num_running > num_less) continue;
    num_blocks += static_cast<int>(adapter.blocks.size());
  }
  return num_blocks;
}

// First of all that an admission takes, so that nothing else of it evicts the weights.
void Scheduler::use_adapter(Sequence& sequence) {
  if (sequence.adapter == 0) return;
  AdapterState& adapter = adapter_of(sequence);
  sequence.uses_adapter = true;
  if (adapter.num_running++ > 0) return;
  if (is_resident(adapter)) {
    pool_.set_idle(adapter.blocks, false);
  } else {
    adapter.blocks.clear();
  }
}

// Behind what an admission has pinned. REQUIRES: there are as many blocks.
void Scheduler::load_adapter(Sequence& sequence) {
  if (sequence.adapter == 0) return;
  AdapterState& adapter = adapter_of(sequence);
  if (!adapter.blocks.empty()) return;
  for (int i = sequence.weights_of_adapter->num_blocks(); i > 0; --i) {
    adapter.blocks.push_back(prefix_cache_.allocate());
    LMTP_CHECK(adapter.blocks.back() != kNoBlock, sequence.id, i);
  }
  pool_.give_to_adapter(adapter.number, adapter.blocks);
  making_->plan.adapter_loads.push_back(
      {adapter.number, sequence.weights_of_adapter, adapter.blocks});
  ++counters_.num_adapter_loads;
}

void Scheduler::leave_adapter(Sequence& sequence) {
  if (!std::exchange(sequence.uses_adapter, false)) return;
  AdapterState& adapter = adapter_of(sequence);
  if (--adapter.num_running == 0) pool_.set_idle(adapter.blocks, true);
}

// After a step that failed their weights may not be there. REQUIRES: nothing runs.
void Scheduler::free_adapters() {
  for (AdapterState& adapter : adapters_) {
    LMTP_CHECK(adapter.num_running == 0, adapter.number, adapter.num_running);
    if (is_resident(adapter)) pool_.free_adapter(adapter.blocks.front());
    adapter.blocks.clear();
  }
}

std::string Scheduler::names_of_adapters(const std::vector<Sequence*>& sequences) const {
  std::string names;
  for (const AdapterState& adapter : adapters_) {
    const auto one =
        std::ranges::find(sequences, adapter.number, [](const Sequence* s) { return s->adapter; });
    if (one == sequences.end()) continue;
    names += (names.empty() ? "" : ",") + (*one)->weights_of_adapter->name();
  }
  return names;
}

void Scheduler::check_adapters() const {
  std::unordered_map<int, int> num_running;
  for (const Sequence* s : running_) {
    LMTP_CHECK(s->uses_adapter == (s->adapter != 0), s->id, s->adapter);
    if (s->adapter != 0) ++num_running[s->adapter];
  }
  LMTP_CHECK(static_cast<int>(num_running.size()) <= options_.batch.max_adapters,
             num_running.size(), options_.batch.max_adapters);
  int num_blocks = 0;
  for (const AdapterState& adapter : adapters_) {
    LMTP_CHECK(adapter.num_running == num_running[adapter.number], adapter.number,
               adapter.num_running, num_running[adapter.number]);
    LMTP_CHECK(adapter.num_running == 0 || is_resident(adapter), adapter.number);
    if (!is_resident(adapter)) continue;
    num_blocks += static_cast<int>(adapter.blocks.size());
    for (const BlockId block : adapter.blocks) {
      LMTP_CHECK(pool_.adapter_of(block) == adapter.number &&
                     pool_.is_idle(block) == (adapter.num_running == 0),
                 adapter.number, block, pool_.adapter_of(block));
    }
  }
  LMTP_CHECK(pool_.num_adapter() == num_blocks, pool_.num_adapter(), num_blocks);
}

}  // namespace lmtp::scheduler
