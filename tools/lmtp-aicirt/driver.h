// Driver: a Runtime whose answers are waited for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "lmtp/aici/runtime.h"

namespace lmtp::aicirt {

using aici::Advance;
using aici::Choice;
using aici::Sequence;

// Owner: what serves the main channel; one thread. A call whose answer is late stays under way.
class Driver {
 public:
  explicit Driver(aici::Runtime& runtime) : runtime_(runtime) {}

  // REQUIRES, of both: nothing of the sequence is under way or was not taken.
  void advance(Sequence id, aici::Report report);
  void choose(Sequence id, std::vector<Sequence> group);
  void free(Sequence id);

  // Until none of these is under way.
  void wait(const std::vector<Sequence>& ids, std::chrono::milliseconds time);
  bool is_under_way(Sequence id) const;
  std::optional<Advance> take_advance(Sequence id);
  std::optional<Choice> take_choice(Sequence id);

  aici::Runtime& runtime() { return runtime_; }

 private:
  struct Slot {
    bool is_under_way = false;
    std::optional<Advance> advance = {};
    std::optional<Choice> choice = {};
  };
  // Late answers come to it when the driver is gone, too.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<Sequence, Slot> slots;
  };

  aici::Runtime& runtime_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace lmtp::aicirt
