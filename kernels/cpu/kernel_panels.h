// The packed panels of a linear as tasks of its workers, and the prefetching of weights.
#pragma once

#include "kernels/linear.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// A block of a GEMM: panels side by side, and the units of each between two stores of the sums.
struct BlockShape {
  int panels;
  std::int64_t units;
};

// A linear in progress: x as units, tile by tile, and int8's scales of rows.
struct LinearWork {
  const LinearArgs& args;
  const float* panels;
  const float* units;       // [tile][unit][kUnitFloats][height]
  const float* row_scales;  // [m], kInt8 alone
};

// Where weights are prefetched to. What is far ahead goes to L2, so that it does not take the
// buffers in which misses of L1 wait.
enum class CacheLevel { kL1 = 3, kL2 = 2 };  // as __builtin_prefetch numbers them

// Prefetches the next block of panels while the current one is computed, a line of each panel in
// turn, spread over the steps. Loads alone do not keep memory busy where much is computed between
// them, and the hardware's prefetchers reach further with several streams than with one.
template <CacheLevel kLevel>
class PrefetchCursor {
 public:
  // `next` is where the block begins in the first panel; the others are panel_size floats apart.
  // num_units of each are prefetched within num_steps calls of step(); nothing if either is 0.
  PrefetchCursor(const float* next, std::int64_t panel_size, int num_panels, std::int64_t num_units,
                 std::int64_t num_steps)
      : next_(next),
        at_(next),
        panel_size_(panel_size),
        num_panels_(num_panels),
        num_lines_(num_steps > 0 ? num_panels * num_units * kPanelColumns / kFloatsPerLine : 0),
        num_steps_(num_steps > 0 ? num_steps : 1) {}

  [[gnu::always_inline]] void step() {
    // No division: this runs between the products.
    for (due_ += num_lines_; due_ >= num_steps_; due_ -= num_steps_) {
      __builtin_prefetch(at_, 0, static_cast<int>(kLevel));
      at_ += panel_size_;
      if (++panel_ == num_panels_) {
        panel_ = 0;
        at_ = next_ += kFloatsPerLine;
      }
    }
  }

 private:
  const float* next_;  // the line in the first panel
  const float* at_;    // and in this one
  std::int64_t panel_size_;
  int num_panels_;
  int panel_ = 0;
  std::int64_t num_lines_;
  std::int64_t num_steps_;
  std::int64_t due_ = 0;  // lines times num_steps_
};

using L2PrefetchCursor = PrefetchCursor<CacheLevel::kL2>;

// The weights of a GEMV tile.
struct GemvWeights {
  const float* weights;
  const float* next;  // that the worker needs next
  std::int64_t column;
};

// The panels of a linear as tasks: block.panels side by side, or fewer where a worker would not get
// two tasks.
class PanelTasks {
 public:
  PanelTasks(const LinearWork& work, BlockShape block, int num_workers)
      : panels_(work.panels),
        num_units_(work.args.weight.num_units()),
        num_panels_(static_cast<int>(padded_columns(work.args.weight.n) / kPanelColumns)),
        num_workers_(num_workers),
        panels_per_task_(block.panels),
        block_units_(block.units) {
    while (panels_per_task_ > 1 && count() < 2 * num_workers) --panels_per_task_;
  }

  int count() const { return (num_panels_ + panels_per_task_ - 1) / panels_per_task_; }
  int first_panel(int task) const { return task * panels_per_task_; }
  int num_panels(int task) const {
    const int left = num_panels_ - first_panel(task);
    return left < panels_per_task_ ? left : panels_per_task_;
  }
  std::int64_t panel_size() const { return num_units_ * kPanelColumns; }
  const float* panel(int task, int p) const {
    return panels_ + (first_panel(task) + p) * panel_size();
  }

  // From column `part` of panel p on. `next` is in the task that the worker will most likely take
  // next; in this one if that is not as large.
  GemvWeights gemv_weights(int task, int p, int part = 0) const {
    const int guess = task + num_workers_;
    const int next = guess < count() && num_panels(guess) == num_panels(task) ? guess : task;
    return {panel(task, p) + part, panel(next, p) + part,
            (first_panel(task) + p) * kPanelColumns + part};
  }

  // Units of the block that begins with unit `first`: fewer at the end.
  std::int64_t units_from(std::int64_t first) const {
    return num_units_ - first < block_units_ ? num_units_ - first : block_units_;
  }

  // Prefetches the block after the one that begins with `first` within num_steps; after a task's
  // last block, the first of the task that the worker will most likely take next.
  L2PrefetchCursor prefetch_cursor(int task, std::int64_t first, std::int64_t num_steps) const {
    std::int64_t next = first + block_units_;
    if (next >= num_units_) {
      next = 0;
      task += num_workers_;
      if (task >= count()) {
        return {nullptr, 0, 0, 0, 0};
      }
    }
    return {panel(task, 0) + next * kPanelColumns, panel_size(), num_panels(task), units_from(next),
            num_steps};
  }

 private:
  const float* panels_;
  std::int64_t num_units_;
  int num_panels_;
  int num_workers_;
  int panels_per_task_;
  std::int64_t block_units_;
};

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
