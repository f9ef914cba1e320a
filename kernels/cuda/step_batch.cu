#include "cuda/step_batch.h"

#include <device_primitives.cuh>

namespace lmtp::kernels::cuda {
namespace {

constexpr int kStepBatchThreads = 256;

// One block: rows are read after all patches are written.
__global__ void __launch_bounds__(kStepBatchThreads) step_batch_kernel(StepBatchArgs args) {
  grid_dependency_wait();
  for (std::int64_t i = thread_index(); i < args.num_patches; i += num_threads()) {
    args.words[args.patches[i].at] = args.patches[i].value;
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

void step_batch(Stream& stream, const StepBatchArgs& args) {
  launch<step_batch_kernel>({.num_threads = kStepBatchThreads}, stream.handle(), args);
}

}  // namespace lmtp::kernels::cuda
