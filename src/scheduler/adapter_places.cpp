#include "lmtp/scheduler/adapter_places.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::scheduler {
namespace {

// A sequence that has waited for more steps than this for a place for its adapter is starved.
constexpr std::int64_t kStarvedSteps = 256;

}  // namespace

const AdapterPlaces::Adapter& AdapterPlaces::adapter_of(const Sequence& sequence) const {
  const auto found = std::ranges::find(adapters_, sequence.adapter, &Adapter::number);
  LMTP_CHECK(found != adapters_.end(), sequence.id, sequence.adapter);
  return *found;
}

AdapterPlaces::Adapter& AdapterPlaces::adapter_of(const Sequence& sequence) {
  return const_cast<Adapter&>(std::as_const(*this).adapter_of(sequence));
}

void AdapterPlaces::join(Sequence& sequence) {
  if (sequence.weights_of_adapter == nullptr) return;
  std::erase_if(adapters_, [this](const Adapter& adapter) {
    return adapter.weights.expired() && !is_resident(adapter);
  });
  const auto found = std::ranges::find_if(adapters_, [&](const Adapter& adapter) {
    return adapter.weights.lock() == sequence.weights_of_adapter;
  });
  if (found == adapters_.end()) {
    adapters_.push_back({.number = next_number_++, .weights = sequence.weights_of_adapter});
    sequence.adapter = adapters_.back().number;
  } else {
    sequence.adapter = found->number;
  }
}

bool AdapterPlaces::has_place(const Sequence& sequence, Sequences without) const {
  if (sequence.adapter == 0) return true;
  int num_running = 0;
  for (const Adapter& adapter : adapters_) {
    const auto num_less =
        std::ranges::count(without, adapter.number, [](const Sequence* s) { return s->adapter; });
    if (adapter.num_running <= num_less) continue;
    if (adapter.number == sequence.adapter) return true;
    ++num_running;
  }
  return num_running < max_adapters_;
}

void AdapterPlaces::find_starved(Sequences waiting, std::int64_t step) {
  starved_ = nullptr;
  if (static_cast<int>(adapters_.size()) <= max_adapters_) return;
  for (const Sequence* s : waiting) {
    if (s->adapter == 0 || s->is_held || step - s->waiting_since <= kStarvedSteps) continue;
    if (starved_ != nullptr && starved_->id < s->id) continue;
    if (!has_place(*s)) starved_ = s;
  }
}

bool AdapterPlaces::waits_for_starved(const Sequence& sequence) const {
  return starved_ != nullptr && sequence.adapter != 0 && starved_->adapter != sequence.adapter &&
         starved_->id < sequence.id;
}

int AdapterPlaces::num_blocks_freed_by(Sequences sequences, int but) const {
  int num_blocks = 0;
  for (const Adapter& adapter : adapters_) {
    const auto num_less =
        std::ranges::count(sequences, adapter.number, [](const Sequence* s) { return s->adapter; });
    if (adapter.number == but || adapter.num_running == 0) continue;
    if (adapter.num_running > num_less) continue;
    num_blocks += static_cast<int>(adapter.blocks.size());
  }
  return num_blocks;
}

int AdapterPlaces::num_blocks_to_take(const Sequence& sequence) const {
  if (sequence.adapter == 0 || adapter_of(sequence).num_running > 0) return 0;
  return sequence.weights_of_adapter->num_blocks();
}

void AdapterPlaces::use(Sequence& sequence) {
  if (sequence.adapter == 0) return;
  Adapter& adapter = adapter_of(sequence);
  sequence.uses_adapter = true;
  if (adapter.num_running++ > 0) return;
  if (is_resident(adapter)) {
    cache_.pool().set_idle(adapter.blocks, false);
  } else {
    adapter.blocks.clear();
  }
}

bool AdapterPlaces::load(const Sequence& sequence, StepPlan& plan) {
  if (sequence.adapter == 0) return false;
  Adapter& adapter = adapter_of(sequence);
  if (!adapter.blocks.empty()) return false;
  for (int i = sequence.weights_of_adapter->num_blocks(); i > 0; --i) {
    adapter.blocks.push_back(cache_.allocate());
    LMTP_CHECK(adapter.blocks.back() != kNoBlock, sequence.id, i);
  }
  cache_.pool().give_to_adapter(adapter.number, adapter.blocks);
  plan.adapter_loads.push_back({adapter.number, sequence.weights_of_adapter, adapter.blocks});
  return true;
}

void AdapterPlaces::leave(Sequence& sequence) {
  if (!std::exchange(sequence.uses_adapter, false)) return;
  Adapter& adapter = adapter_of(sequence);
  if (--adapter.num_running == 0) cache_.pool().set_idle(adapter.blocks, true);
}

void AdapterPlaces::free_all() {
  for (Adapter& adapter : adapters_) {
    LMTP_CHECK(adapter.num_running == 0, adapter.number, adapter.num_running);
    if (is_resident(adapter)) cache_.pool().free_adapter(adapter.blocks.front());
    adapter.blocks.clear();
  }
}

std::string AdapterPlaces::names(Sequences sequences) const {
  std::string names;
  for (const Adapter& adapter : adapters_) {
    const auto one =
        std::ranges::find(sequences, adapter.number, [](const Sequence* s) { return s->adapter; });
    if (one == sequences.end()) continue;
    names += (names.empty() ? "" : ",") + (*one)->weights_of_adapter->name();
  }
  return names;
}

void AdapterPlaces::check(Sequences running) const {
  std::unordered_map<int, int> num_running;
  for (const Sequence* s : running) {
    LMTP_CHECK(s->uses_adapter == (s->adapter != 0), s->id, s->adapter);
    if (s->adapter != 0) ++num_running[s->adapter];
  }
  LMTP_CHECK(static_cast<int>(num_running.size()) <= max_adapters_, num_running.size(),
             max_adapters_);
  int num_blocks = 0;
  for (const Adapter& adapter : adapters_) {
    LMTP_CHECK(adapter.num_running == num_running[adapter.number], adapter.number,
               adapter.num_running, num_running[adapter.number]);
    LMTP_CHECK(adapter.num_running == 0 || is_resident(adapter), adapter.number);
    if (!is_resident(adapter)) continue;
    num_blocks += static_cast<int>(adapter.blocks.size());
    for (const BlockId block : adapter.blocks) {
      LMTP_CHECK(cache_.pool().adapter_of(block) == adapter.number &&
                     cache_.pool().is_idle(block) == (adapter.num_running == 0),
                 adapter.number, block, cache_.pool().adapter_of(block));
    }
  }
  LMTP_CHECK(cache_.pool().num_adapter() == num_blocks, cache_.pool().num_adapter(), num_blocks);
}

}  // namespace lmtp::scheduler
