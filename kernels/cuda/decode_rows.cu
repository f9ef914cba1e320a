#include "cuda/decode_rows.h"

#include <device_primitives.cuh>

namespace lmtp::kernels::cuda {
namespace {

constexpr int kAdvanceThreads = 256;

// One block: rows are read when all changes are there.
__global__ void __launch_bounds__(kAdvanceThreads) advance_rows_kernel(AdvanceRowsArgs args) {
  grid_dependency_wait();
  for (std::int64_t i = thread_index(); i < args.num_changes; i += num_threads()) {
    args.words[args.changes[i].at] = args.changes[i].value;
  }
  block_barrier();
  for (std::int32_t row = thread_index(); row < args.num_padded; row += num_threads()) {
    std::int32_t id = 0;
    std::int32_t position = 0;
    std::int32_t slot = row % kBlockSize;
    if (row < args.num_rows) {
      const std::int32_t token = args.tokens[row];
      id = token >= 0 ? token : args.records[~token].token;
      position = args.next_positions[row];
      args.next_positions[row] = position + 1;
      const std::int32_t block = args.block_tables[row * args.table_stride + position / kBlockSize];
      slot = block * kBlockSize + position % kBlockSize;
    }
    args.ids[row] = id;
    args.positions[row] = position;
    args.slots[row] = slot;
  }
}

}  // namespace

void advance_rows(Stream& stream, const AdvanceRowsArgs& args) {
  launch<advance_rows_kernel>({.num_threads = kAdvanceThreads}, stream.handle(), args);
}

}  // namespace lmtp::kernels::cuda
