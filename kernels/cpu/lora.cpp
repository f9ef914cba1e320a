#include "lora.h"

#include <algorithm>
#include <vector>

namespace lmtp::kernels::plain {
namespace {

// Groups of outputs that one task adds to.
constexpr std::int64_t kGroupsPerTask = 16;

// Up to kLoraRowsMax rows of one adapter, and one of its deltas.
struct Part {
  const LoraAdapter* adapter = nullptr;
  const LoraDelta* delta = nullptr;
  const LoraRow* rows = nullptr;
  int num_rows = 0;
  std::int64_t low = 0;  // where A x begins: [num_rows][rank groups][kLoraRanks]
  // Tasks of all parts before.
  int first_shrink = 0;
  int first_expand = 0;

  std::int64_t rank_groups() const { return lora_rank_groups(delta->rank); }
};

// What is to be computed, in the order of rows.
struct Work {
  std::vector<Part> parts;
  std::int64_t num_low = 0;
  int num_shrinks = 0;
  int num_expands = 0;

  void add(const LoraAdapter& adapter, const LoraDelta& delta, const LoraRow* rows, int num_rows) {
    Part& part = parts.emplace_back();
    part = {.adapter = &adapter,
            .delta = &delta,
            .rows = rows,
            .num_rows = num_rows,
            .low = num_low,
            .first_shrink = num_shrinks,
            .first_expand = num_expands};
    num_low += num_rows * part.rank_groups() * kLoraRanks;
    num_shrinks += static_cast<int>(part.rank_groups());
    num_expands += static_cast<int>((lora_lane_groups(delta.num_outputs) + kGroupsPerTask - 1) /
                                    kGroupsPerTask);
  }
  const Part& part_of(int task, int Part::*first) const {
    return *(std::ranges::upper_bound(parts, task, {}, first) - 1);
  }
};

Work list_work(const LoraArgs& args) {
  Work work;
  for (std::int64_t i = 0; i < args.rows.num_rows;) {
    const LoraRow* rows = args.rows.rows + i;
    const std::int64_t most = std::min<std::int64_t>(kLoraRowsMax, args.rows.num_rows - i);
    int count = 1;
    while (count < most && rows[count].adapter == rows[0].adapter) ++count;
    const LoraAdapter& adapter = args.rows.adapters[rows[0].adapter];
    const std::int32_t* deltas = adapter.first_delta + args.linear;
    for (std::int32_t d = deltas[0]; d < deltas[1]; ++d) {
      work.add(adapter, adapter.deltas[d], rows, count);
    }
    i += count;
  }
  return work;
}

}  // namespace

void lora(Stream& stream, const LoraArgs& args, const LoraOps& of_f32, const LoraOps& of_bf16) {
  const Work work = list_work(args);
  if (work.parts.empty()) return;
  auto* low =
      static_cast<float*>(stream.scratch(static_cast<std::size_t>(work.num_low) * sizeof(float)));
  const auto ops_of = [&](const Part& part) -> const LoraOps& {
    return part.adapter->type == ElementType::kF32 ? of_f32 : of_bf16;
  };
  stream.pool().parallel_for(work.num_shrinks, [&](int task, int) {
    const Part& part = work.part_of(task, &Part::first_shrink);
    const std::int64_t group = task - part.first_shrink;
    const float* x[kLoraRowsMax];
    float* to[kLoraRowsMax];
    for (int r = 0; r < part.num_rows; ++r) {
      x[r] = args.x.row(part.rows[r].row);
      to[r] = low + part.low + (r * part.rank_groups() + group) * kLoraRanks;
    }
    const std::int64_t at = part.delta->a + group * lora_lane_groups(args.x.columns) * kLoraChunk;
    ops_of(part).shrink({*part.adapter, at}, x, part.num_rows, args.x.columns, to);
  });
  stream.pool().parallel_for(work.num_expands, [&](int task, int) {
    const Part& part = work.part_of(task, &Part::first_expand);
    const LoraDelta& delta = *part.delta;
    const std::int64_t group = std::int64_t{task - part.first_expand} * kGroupsPerTask;
    const std::int64_t first = group * kLoraLanes;
    const std::int64_t count =
        std::min<std::int64_t>(kGroupsPerTask * kLoraLanes, delta.num_outputs - first);
    const float* from[kLoraRowsMax];
    float* y[kLoraRowsMax];
    for (int r = 0; r < part.num_rows; ++r) {
      from[r] = low + part.low + r * part.rank_groups() * kLoraRanks;
      y[r] = args.y.row(part.rows[r].row) + delta.first_output + first;
    }
    const std::int64_t at = delta.b + group * part.rank_groups() * kLoraChunk;
    ops_of(part).expand({*part.adapter, at}, from, part.num_rows, part.rank_groups(), count, y);
  });
}

}  // namespace lmtp::kernels::plain
