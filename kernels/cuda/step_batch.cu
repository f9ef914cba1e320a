#include "cuda/step_batch.h"

#include <device_primitives.cuh>

#include <bit>

namespace lmtp::kernels::cuda {
namespace {

constexpr int kStepBatchThreads = 256;
static_assert(kStepBatchThreads >= kStepRowsMax && kStepBatchThreads <= kStepPatchesRead);
constexpr int kSampleWords = sizeof(SampleRow) / sizeof(std::uint32_t);

__device__ WordPatch load_patch(const WordPatch* at) {
  const Words2 words = load_where(true, reinterpret_cast<const Words2*>(at));
  return {.at = words.words[0], .value = words.words[1]};
}

// put(i, get(i)) for i in [begin, count): a thread gets several before it puts the first.
template <typename Get, typename Put>
__device__ void move(std::int32_t begin, std::int32_t count, const Get& get, const Put& put) {
  constexpr int kBatch = 4;
  for (std::int32_t first = begin + thread_index(); first < count;
       first += kBatch * kStepBatchThreads) {
    decltype(get(0)) some[kBatch] = {};
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int32_t i = first + k * kStepBatchThreads;
      if (i < count) some[k] = get(i);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int32_t i = first + k * kStepBatchThreads;
      if (i < count) put(i, some[k]);
    }
  }
}

// One block: rows are read after all patches are written. The host's memory is far: what most steps
// have there is asked for at once, before it is known how much of it is theirs.
__global__ void __launch_bounds__(kStepBatchThreads) step_batch_kernel(StepBatchArgs args) {
  grid_dependency_wait();
  auto* slots = shared_memory<std::int32_t>();  // of the rows' sequences
  const std::int32_t i = thread_index();
  const Words4 header = load_where(true, reinterpret_cast<const Words4*>(args.step));
  const Words4 words =
      load_where(i < args.num_padded, reinterpret_cast<const Words4*>(args.rows + i));
  const WordPatch patch = load_patch(args.patches + i);
  const auto num_patches = static_cast<std::int32_t>(header.words[0]);
  const auto num_rows = static_cast<std::int32_t>(header.words[1]);
  const auto num_blocks = static_cast<std::int32_t>(header.words[2]);
  const auto row = std::bit_cast<BatchRow>(words);
  if (i < num_rows) slots[i] = row.slot;
  const auto write = [&](std::int32_t, WordPatch one) { args.words[one.at] = one.value; };
  if (i < num_patches) write(i, patch);
  move(
      kStepBatchThreads, num_patches,
      [&](std::int32_t at) { return load_patch(args.patches + at); }, write);
  block_barrier();
  if (i < args.num_padded) {
    std::int32_t id = 0;
    std::int32_t position = 0;
    std::int32_t offset = num_blocks + i - num_rows;
    std::int32_t table = 0;
    if (i < num_rows) {
      id = row.token >= 0 ? row.token : args.records[~row.token].token;
      position = row.position;
      offset = row.first_block;
      table = static_cast<std::int32_t>(row.slot * args.table_stride);
    } else {
      args.samples[i].scored = kSampleNothing;
    }
    args.ids[i] = id;
    args.positions[i] = position;
    for (int group = 0; group < args.num_groups; ++group) {
      std::int32_t block = kNullBlock;
      if (i < num_rows) {
        block = args.block_tables[group * args.group_stride + table + position / kBlockSize];
      }
      const std::int32_t offset_in_block = (i < num_rows ? position : i) % kBlockSize;
      args.slots[group * args.slots_stride + i] = block * kBlockSize + offset_in_block;
    }
    args.cu_seqlens[i] = i;
    args.block_offsets[i] = offset;
    args.table_starts[i] = table;
  }
  if (i == 0) {
    args.cu_seqlens[args.num_padded] = args.num_padded;
    args.block_offsets[args.num_padded] = num_blocks + args.num_padded - num_rows;
  }
  move(
      0, num_rows * kSampleWords,
      [&](std::int32_t at) {
        const SampleRow* from = args.slot_samples + slots[at / kSampleWords];
        return reinterpret_cast<const std::uint32_t*>(from)[at % kSampleWords];
      },
      [&](std::int32_t at, std::uint32_t word) {
        reinterpret_cast<std::uint32_t*>(args.samples)[at] = word;
      });
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
  const std::size_t num_bytes = static_cast<std::size_t>(args.num_padded) * sizeof(std::int32_t);
  launch<step_batch_kernel>({.num_threads = kStepBatchThreads, .shared_bytes = num_bytes},
                            stream.handle(), args);
}

void drawn_ids(Stream& stream, const DrawnIdsArgs& args) {
  launch<drawn_ids_kernel>({.num_threads = kStepBatchThreads}, stream.handle(), args);
}

}  // namespace lmtp::kernels::cuda
