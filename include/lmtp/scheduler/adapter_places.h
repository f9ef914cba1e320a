// AdapterPlaces: which adapters may run, and the blocks of the KV cache that their weights take.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/cache/prefix_cache.h"
#include "lmtp/request/adapter.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// A sequence with an adapter runs only while the adapter's weights are in blocks, and at most
// `max_adapters` different ones run. The weights of an idle adapter stay in their blocks until
// these are needed; they are evicted as the prefix cache's blocks are, all of an adapter at once.
//
// An admission calls use() before it takes any other block, so that nothing of it evicts the
// weights, and load() once it has pinned what it matched.
//
// Owner: the Scheduler; its thread. `cache` outlives it.
class AdapterPlaces {
 public:
  using Sequences = std::span<Sequence* const>;

  // REQUIRES: max_adapters >= 1
  AdapterPlaces(int max_adapters, cache::PrefixCache& cache)
      : max_adapters_(max_adapters), cache_(cache) {}

  // Numbers the sequence's adapter (Sequence::adapter). Numbers are never given again: what the
  // prefix cache holds under one belongs to that adapter.
  void join(Sequence& sequence);

  // Whether there is a place for the sequence's adapter, beside what runs `without` these.
  bool has_place(const Sequence& sequence, Sequences without = {}) const;
  // Looks for a sequence that has waited for long for such a place: others of different adapters
  // that came later wait for it, so that those which run end. Once a plan.
  void find_starved(Sequences waiting, std::int64_t step);
  bool waits_for_starved(const Sequence& sequence) const;

  // Blocks that an admission of the sequence takes for the adapter's weights.
  int num_blocks_to_take(const Sequence& sequence) const;
  // Blocks of adapters other than `but` that become idle if these running sequences are preempted.
  int num_blocks_freed_by(Sequences sequences, int but) const;

  void use(Sequence& sequence);
  // Whether the plan now loads the weights. REQUIRES: use() was called; there are enough blocks.
  bool load(const Sequence& sequence, StepPlan& plan);
  // The sequence does not run any more. Nothing happens where it did not use its adapter.
  void leave(Sequence& sequence);
  // After a step that failed their weights may not be there. REQUIRES: no adapter is in use.
  void free_all();

  // Names of the sequences' adapters, comma-separated.
  std::string names(Sequences sequences) const;

  // Aborts unless exactly these run. For tests and debug builds.
  void check(Sequences running) const;

 private:
  // An adapter that sequences have, or whose weights may still be in blocks.
  struct Adapter {
    int number = 0;                              // >= 1
    std::weak_ptr<const lmtp::Adapter> weights;  // expired: nobody can ask for it any more
    std::vector<BlockId> blocks = {};            // which it has, or has had: is_resident()
    int num_running = 0;
  };

  bool is_resident(const Adapter& adapter) const {
    return !adapter.blocks.empty() &&
           cache_.pool().adapter_of(adapter.blocks.front()) == adapter.number;
  }
  const Adapter& adapter_of(const Sequence& sequence) const;
  Adapter& adapter_of(const Sequence& sequence);

  const int max_adapters_;
  cache::PrefixCache& cache_;
  std::vector<Adapter> adapters_;
  int next_number_ = 1;
  const Sequence* starved_ = nullptr;
};

}  // namespace lmtp::scheduler
