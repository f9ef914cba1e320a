// The panels of a weight by groups (kernels/grouping.h), and the tasks of its linear.
#pragma once

#include "kernel_linear.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// Inputs and panels of a block, over which all row tiles pass: with the inputs of a tile of rows it
// stays in the L1 cache.
inline constexpr std::int64_t kGroupBlockInputs = 256;
inline constexpr int kGroupPanels = 4;
// Up to so many rows weights are prefetched to L1: less than that is kept there of inputs.
inline constexpr int kGroupRowsOfL1 = 4;

// A weight's panels. Sizes are those of memory, in floats.
struct GroupPanels {
  const float* panels;
  Grouping by;
  std::int64_t inputs;      // padded
  std::int64_t group;       // inputs from group to group
  std::int64_t last_group;  // its first input; it has all the padding
  std::int64_t head_size;   // of a group: what is before its codes
  std::int64_t input_size;  // of an input's codes
  std::int64_t group_size;
  std::int64_t size;  // of a panel

  explicit GroupPanels(const PackedLinear& weight)
      : panels(static_cast<const float*>(weight.panels)),
        by(weight.grouping),
        inputs(padded_inputs(weight.k)),
        group(by.group < weight.k ? by.group : inputs),
        last_group((num_groups(by, weight.k) - 1) * group),
        head_size(group_head_size(by)),
        input_size(kPanelColumns / codes_per_word(by.codes)),
        group_size(head_size + group * input_size),
        size(panel_size(weight.k, weight.type, by)) {}

  // What some inputs take of a panel, nearly.
  std::int64_t floats(std::int64_t count) const { return size * count / inputs; }
  // Where the group that begins with input `start` ends.
  std::int64_t group_end(std::int64_t start) const {
    return start < last_group ? start + group : inputs;
  }
};

[[gnu::always_inline]] inline F load_scales(const void* scales, ElementType type, int column) {
  if (type == ElementType::kF32) return load(static_cast<const float*>(scales) + column);
  const auto* at = static_cast<const std::uint16_t*>(scales) + column;
  return type == ElementType::kBF16 ? load_bf16(at) : load_f16(at);
}

// The scales of vector v of panels side by side.
[[gnu::always_inline]] inline F scales_at(const float* head, ElementType type, int v,
                                          std::int64_t panel_size) {
  return load_scales(head + v / kPanelVectors * panel_size, type, v % kPanelVectors * kLanes);
}

// Tasks of up to `most` panels, or of fewer where a worker would not get two tasks.
struct GroupTasks {
  int num_panels;
  int num_workers;
  int each;

  GroupTasks(const PackedLinear& weight, int most, int workers)
      : num_panels(static_cast<int>(padded_columns(weight.n) / kPanelColumns)),
        num_workers(workers),
        each(most) {
    while (each > 1 && num_panels < 2 * num_workers * each) each /= 2;
  }

  int count() const { return (num_panels + each - 1) / each; }
  int first_panel(int task) const { return task * each; }
  int panels(int task) const {
    const int left = num_panels - first_panel(task);
    return left < each ? left : each;
  }
  // Panels from a task's to those of the one that its worker will most likely take next, or 0.
  int to_next(int task) const { return task + num_workers < count() ? num_workers * each : 0; }
};

// GEMV: calls tile<panels>(first panel, the panel after them, first column) for `count` panels
// from `first` on, up to kPanels side by side.
template <int kPanels, typename Tile>
inline void for_gemv_panels(const GroupPanels& weights, int first, int count, int to_next,
                            const Tile& tile) {
  for (; count >= kPanels; count -= kPanels, first += kPanels) {
    const float* panel = weights.panels + first * weights.size;
    const float* next = panel + (count > kPanels ? kPanels : to_next) * weights.size;
    tile.template operator()<kPanels>(panel, next, std::int64_t{first} * kPanelColumns);
  }
  if constexpr (kPanels > 1) for_gemv_panels<kPanels / 2>(weights, first, count, to_next, tile);
}

// `count` panels from `first` on; panels from the task's first to that of the next.
using GroupGemv = void (*)(const LinearWork& work, const GroupPanels& weights, int first, int count,
                           int to_next);

inline void run_group_gemv(Stream& stream, const LinearWork& work, const GroupPanels& weights,
                           const GroupTasks& tasks, GroupGemv gemv) {
  stream.pool().parallel_for(tasks.count(), [&](int task, int) {
    gemv(work, weights, tasks.first_panel(task), tasks.panels(task), tasks.to_next(task));
  });
}

// The blocks of a linear of many rows: calls add(worker, panels before, panels, first input, end,
// floats to what is prefetched meanwhile, sums) for each, then finishes. `sums`: of each worker.
template <typename Add>
inline void for_group_blocks(Stream& stream, const LinearArgs& args, const GroupPanels& weights,
                             const GroupTasks& tasks, float* sums_of_all, const Add& add) {
  const std::int64_t sums_size = args.x.rows * kPanelColumns;  // of a panel
  stream.pool().parallel_for(tasks.count(), [&](int task, int worker) {
    const int first_panel = tasks.first_panel(task);
    const int count = tasks.panels(task);
    float* sums = sums_of_all + worker * tasks.each * sums_size;
    __builtin_memset(sums, 0, sizeof(float) * static_cast<std::uint64_t>(count * sums_size));
    for (std::int64_t first = 0; first < weights.inputs; first += kGroupBlockInputs) {
      const std::int64_t behind = first + kGroupBlockInputs;
      const std::int64_t end = behind < weights.inputs ? behind : weights.inputs;
      const std::int64_t to_next = behind < weights.inputs ? weights.floats(kGroupBlockInputs)
                                   : tasks.to_next(task) != 0
                                       ? tasks.to_next(task) * weights.size - weights.floats(first)
                                       : 0;
      add(worker, first_panel, count, first, end, to_next, sums);
    }
    finish_panels<WeightType::kF32>({args, nullptr, nullptr, nullptr}, first_panel, count,
                                    {sums, sums_size});
  });
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
