#include "plain_ops.h"

#include <cmath>

namespace lmtp::kernels::plain {

std::size_t packed_bytes(WeightType type, std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(packed_size(n, k, type)) * sizeof(std::uint32_t);
}

void pack(Stream& stream, const SourceWeight& source, const PackTarget& to) {
  pack_linear(stream.pool(), source, to);
}

void fill_random(Stream&, const FillRandomArgs& args) { kernels::fill_random(args); }

// Memory of the host is taken as it is needed.
std::size_t scratch_bytes(const OpLimits&) { return 0; }

void rotary_angles(Stream& stream, const RotaryAnglesArgs& args) {
  stream.pool().parallel_for(static_cast<int>(args.cosines.rows), [&](int row, int) {
    const auto position = static_cast<float>(args.positions[row]);
    for (std::int64_t i = 0; i < args.cosines.columns; ++i) {
      const float angle = position * args.inverse_periods[i];
      args.cosines.row(row)[i] = args.factor * std::cos(angle);
      args.sines.row(row)[i] = args.factor * std::sin(angle);
    }
  });
}

void step_batch(Stream&, const StepBatchArgs& args) {
  for (std::int64_t i = 0; i < args.num_patches; ++i) {
    args.words[args.patches[i].at] = args.patches[i].value;
  }
  for (std::int32_t row = 0; row < args.num_padded; ++row) {
    std::int32_t id = 0;
    std::int32_t position = 0;
    std::int32_t slot = row % kBlockSize;
    if (row < args.num_rows) {
      const std::int32_t token = args.tokens[row];
      id = token >= 0 ? token : args.records[~token].token;
      position = args.next_positions[row]++;
      const std::int32_t block = args.block_tables[row * args.table_stride + position / kBlockSize];
      slot = block * kBlockSize + position % kBlockSize;
    }
    args.ids[row] = id;
    args.positions[row] = position;
    args.slots[row] = slot;
  }
}

}  // namespace lmtp::kernels::plain
