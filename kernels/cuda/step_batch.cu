#include "cuda/step_batch.h"

#include <device_primitives.cuh>

namespace lmtp::kernels::cuda {
namespace {

constexpr int kStepBatchThreads = 256;
constexpr int kSampleWords = sizeof(SampleRow) / sizeof(std::uint32_t);

// One block: rows are read after all patches are written.
__global__ void __launch_bounds__(kStepBatchThreads) step_batch_kernel(StepBatchArgs args) {
  grid_dependency_wait();
  for (std::int64_t i = thread_index(); i < args.num_patches; i += num_threads()) {
    args.words[args.patches[i].at] = args.patches[i].value;
  }
  block_barrier();
  for (std::int32_t i = thread_index(); i < args.num_padded; i += num_threads()) {
    std::int32_t id = 0;
    std::int32_t position = 0;
    std::int32_t slot = i % kBlockSize;
    std::int32_t offset = args.num_blocks + i - args.num_rows;
    std::int32_t table = 0;
    if (i < args.num_rows) {
      const BatchRow row = args.rows[i];
      id = row.token >= 0 ? row.token : args.records[~row.token].token;
      position = row.position;
      offset = row.first_block;
      table = static_cast<std::int32_t>(row.slot * args.table_stride);
      const std::int32_t block = args.block_tables[table + position / kBlockSize];
      slot = block * kBlockSize + position % kBlockSize;
    }
    args.ids[i] = id;
    args.positions[i] = position;
    args.slots[i] = slot;
    args.cu_seqlens[i] = i;
    args.block_offsets[i] = offset;
    args.table_starts[i] = table;
  }
  if (thread_index() == 0) {
    args.cu_seqlens[args.num_padded] = args.num_padded;
    args.block_offsets[args.num_padded] = args.num_blocks + args.num_padded - args.num_rows;
  }
  const std::int32_t num_words = args.num_rows * kSampleWords;
  for (std::int32_t i = thread_index(); i < num_words; i += num_threads()) {
    const auto* from = reinterpret_cast<const std::uint32_t*>(args.slot_samples +
                                                              args.rows[i / kSampleWords].slot);
    reinterpret_cast<std::uint32_t*>(args.samples)[i] = from[i % kSampleWords];
  }
}

__global__ void __launch_bounds__(kStepBatchThreads) drawn_ids_kernel(DrawnIdsArgs args) {
  grid_dependency_wait();
  for (std::int64_t i = thread_index(); i < args.count; i += num_threads()) {
    const std::int32_t token = args.tokens[i];
    args.ids[i] = token >= 0 ? token : args.records[~token].token;
  }
}

}  // namespace

void step_batch(Stream& stream, const StepBatchArgs& args) {
  launch<step_batch_kernel>({.num_threads = kStepBatchThreads}, stream.handle(), args);
}

void drawn_ids(Stream& stream, const DrawnIdsArgs& args) {
  launch<drawn_ids_kernel>({.num_threads = kStepBatchThreads}, stream.handle(), args);
}

}  // namespace lmtp::kernels::cuda
