#include "plain_ops.h"

#include <cmath>
#include <cstring>

namespace lmtp::kernels::plain {

std::size_t packed_bytes(WeightType type, std::int64_t n, std::int64_t k,
                         const Grouping& grouping) {
  return static_cast<std::size_t>(packed_size(n, k, type, grouping)) * sizeof(std::uint32_t);
}

void pack(Stream& stream, const SourceWeight& source, const PackTarget& to) {
  pack_linear(stream.pool(), source, to);
}

void fill_random(Stream&, const FillRandomArgs& args) { kernels::fill_random(args); }

// Memory of the host is taken as it is needed.
void reserve(Stream&, const OpLimits&) {}

void rotary_angles(Stream& stream, const RotaryAnglesArgs& args) {
  stream.pool().parallel_for(static_cast<int>(args.cosines.rows), [&](int row, int) {
    const auto position = static_cast<float>(args.positions[row]);
    float factor = args.factor;
    if (args.growth != 0.0F) {
      const std::int32_t periods = args.positions[row] / args.period;
      factor *= 1.0F + args.growth * std::log(1.0F + static_cast<float>(periods));
    }
    for (std::int64_t i = 0; i < args.cosines.columns; ++i) {
      const float angle = position * args.inverse_periods[i];
      args.cosines.row(row)[i] = factor * std::cos(angle);
      args.sines.row(row)[i] = factor * std::sin(angle);
    }
  });
}

void step_batch(Stream&, const StepBatchArgs& args) {
  const StepHeader& step = *args.step;
  for (std::int32_t i = 0; i < step.num_patches; ++i) {
    std::memcpy(args.words + args.patches[i].at, &args.patches[i].value, sizeof(std::uint32_t));
  }
  const auto token_of = [&](std::int32_t token) {
    return token >= 0 ? token : args.records[~token].token;
  };
  for (std::int32_t i = 0; i < args.num_padded; ++i) {
    args.cu_seqlens[i] = i;
    args.ids[i] = args.positions[i] = args.table_starts[i] = 0;
    for (int group = 0; group < args.num_groups; ++group) {
      args.slots[group * args.slots_stride + i] = i % kBlockSize;
    }
    args.block_offsets[i] = step.num_blocks + i - step.num_rows;
    args.samples[i].scored = kSampleNothing;
    if (i >= step.num_rows) continue;
    const BatchRow& row = args.rows[i];
    args.ids[i] = token_of(row.token);
    args.positions[i] = row.position;
    args.block_offsets[i] = row.first_block;
    args.table_starts[i] = static_cast<std::int32_t>(row.slot * args.table_stride);
    for (int group = 0; group < args.num_groups; ++group) {
      const std::int32_t* const tables = args.block_tables + group * args.group_stride;
      const std::int32_t block = tables[args.table_starts[i] + row.position / kBlockSize];
      args.slots[group * args.slots_stride + i] = block * kBlockSize + row.position % kBlockSize;
    }
    std::memcpy(args.samples + i, args.slot_samples + row.slot, sizeof(SampleRow));
  }
  args.cu_seqlens[args.num_padded] = args.num_padded;
  args.block_offsets[args.num_padded] = step.num_blocks + args.num_padded - step.num_rows;
}

void drawn_ids(Stream&, const DrawnIdsArgs& args) {
  for (std::int64_t i = 0; i < args.count; ++i) {
    const std::int32_t token = args.tokens[i];
    args.ids[i] = token >= 0 ? token : args.records[~token].token;
  }
}

}  // namespace lmtp::kernels::plain
