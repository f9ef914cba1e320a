// LiveSequences: all sequences of a scheduler, by their keys.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>

#include "lmtp/base/ids.h"
#include "lmtp/scheduler/sequence.h"

namespace lmtp::scheduler {

// Owner: the Scheduler; its thread. Owns the sequences.
class LiveSequences {
 public:
  // Gives the sequence its id: ids rise in the order of arrival. REQUIRES: its key is not live.
  Sequence& add(std::unique_ptr<Sequence> sequence) {
    Sequence& added = *sequence;
    added.id = next_id_++;
    by_key_.emplace(added.key, std::move(sequence));
    return added;
  }
  // REQUIRES: the sequence is live. It ends its life.
  void erase(Sequence& sequence) {
    set_held(sequence, false);
    const bool generates = sequence.kind == RequestKind::kGenerate;
    if (generates && sequence.num_generated() > 0) {
      constexpr double kWeight = 1.0 / 64;
      mean_generated_ += kWeight * (sequence.num_generated() - mean_generated_);
    }
    by_key_.erase(sequence.key);
  }

  // Null where the key is not live.
  Sequence* find(StreamKey key) const {
    const auto found = by_key_.find(key);
    return found != by_key_.end() ? found->second.get() : nullptr;
  }
  // REQUIRES: the key is live.
  Sequence& at(StreamKey key) const { return *by_key_.at(key); }
  int size() const { return static_cast<int>(by_key_.size()); }
  auto begin() const { return by_key_.begin(); }
  auto end() const { return by_key_.end(); }

  // Whether that changes anything.
  bool set_held(Sequence& sequence, bool held) {
    if (std::exchange(sequence.is_held, held) == held) return false;
    num_held_ += held ? 1 : -1;
    return true;
  }
  int num_held() const { return num_held_; }

  // Tokens that finished Generates had: a moving average.
  double mean_generated() const { return mean_generated_; }

 private:
  std::unordered_map<StreamKey, std::unique_ptr<Sequence>, StreamKeyHash> by_key_;
  int num_held_ = 0;
  SequenceId next_id_ = 1;
  double mean_generated_ = 16.0;
};

}  // namespace lmtp::scheduler
