// w8a8: rows of whole numbers, then the kernels that bf16 takes, with exact sums.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/block_rows.cuh"
#include "cuda/linear_launch.cuh"
#include "cuda/linear_narrow.h"

namespace lmtp::kernels::cuda {
namespace {

// Inputs of a row that a thread rounds at a time: its part of a tile.
constexpr int kPartInputs = 8;

// The largest of all threads' values, in all threads. `values`: block_sum_bytes() of shared memory.
__device__ std::uint32_t block_max(std::uint32_t value, std::uint32_t* values) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const std::uint32_t other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  if (lane_index() == 0) values[thread_index() / kWarpSize] = value;
  block_barrier();
  for (int warp = 0; warp < num_threads() / kWarpSize; ++warp) {
    value = values[warp] > value ? values[warp] : value;
  }
  return value;
}

// The low byte of the whole number nearest to the value, ties to even, for magnitudes below 2^22.
__device__ std::uint32_t nearest_byte(float value) {
  return std::bit_cast<std::uint32_t>(value + 12582912.0F) & 255U;  // 1.5 * 2^23
}

__device__ std::uint32_t bytes_of(const Floats4& x, float inverse) {
  return nearest_byte(x.values[0] * inverse) | nearest_byte(x.values[1] * inverse) << 8 |
         nearest_byte(x.values[2] * inverse) << 16 | nearest_byte(x.values[3] * inverse) << 24;
}

// A row of x into tiles of bytes, and its scale: kernels/cpu/kernel_units.h, operation by
// operation. A block a row; rows and inputs that do not exist are zero.
__global__ void __launch_bounds__(kRowThreadsMax)
    quantise_inputs_kernel(LinearParams p, std::uint32_t* tiles, float* scales) {
  grid_dependency_wait();
  const std::int64_t row = block_index().x;
  const bool exists = row < p.args.m;
  const float* x = p.args.x + (exists ? row : 0) * p.args.x_stride;
  const std::int64_t k = exists ? p.args.k : 0;
  const int num_parts = p.k_tiles * (kByteTileInputs / kPartInputs);
  // Bits of magnitudes are in the order of the magnitudes, and those of what is no finite number
  // above all others.
  std::uint32_t largest = 0;
  for (int part = thread_index(); part < num_parts; part += num_threads()) {
#pragma unroll
    for (int half = 0; half < kPartInputs; half += 4) {
      const Floats4 four = load_four(x, part * kPartInputs + half, k, p.x_aligned);
#pragma unroll
      for (const float value : four.values) {
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
        largest = magnitude > largest ? magnitude : largest;
      }
    }
  }
  largest = block_max(largest, shared_memory<std::uint32_t>());
  const float scale = largest >= 0x7F800000U ? std::bit_cast<float>(0x7FC00000U)
                                             : std::bit_cast<float>(largest) * (1.0F / 127.0F);
  const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
  if (exists && thread_index() == 0) scales[row] = scale;
  const std::int64_t first = row / kTileSide * p.k_tiles * kTileVectors * 4;
  for (int part = thread_index(); part < num_parts; part += num_threads()) {
    const std::int64_t column = std::int64_t{part} * kPartInputs;
    const std::int64_t at =
        first + part / 4 * (kTileVectors * 4) +
        offset_in_byte_tile(static_cast<int>(row % kTileSide), part % 4 * kPartInputs) / 4;
    tiles[at] = bytes_of(load_four(x, column, k, p.x_aligned), inverse);
    tiles[at + 2] = bytes_of(load_four(x, column + 4, k, p.x_aligned), inverse);
  }
}

std::size_t tile_bytes(std::int64_t m, std::int64_t k) {
  return static_cast<std::size_t>(num_tiles(m) * num_byte_tiles(k) * kTileSide * kByteTileInputs);
}

Slices int8_slices(std::int64_t n, std::int64_t k) {
  return slices_of(n, num_byte_tiles(k) * kTileSide);
}

}  // namespace

SplitBytes int8_split_bytes(std::int64_t m, std::int64_t n, std::int64_t k) {
  if (m <= kStreamRowsMax<Int8>) return {};
  return tiled_plan_for({m, n, num_byte_tiles(k), int8_slices(n, k), true}, num_multiprocessors(),
                        true)
      .bytes;
}

void int8_linear(const LinearLaunch& args, StreamHandle stream, LinearKernel kernel) {
  LinearParams p = linear_params(args);
  p.k_tiles = static_cast<int>(num_byte_tiles(args.k));
  p.slices = int8_slices(args.n, args.k);
  auto* tiles = static_cast<std::uint32_t*>(args.scratch);
  auto* row_scales = reinterpret_cast<float*>(static_cast<unsigned char*>(args.scratch) +
                                              tile_bytes(args.m, args.k));
  const NarrowLayout layout = narrow_layout(WeightType::kInt8, {}, args.n, args.k);
  p.x_tiles = static_cast<const Words4*>(args.scratch);
  p.row_scales = row_scales;
  p.output_scales = reinterpret_cast<const float*>(static_cast<const unsigned char*>(args.weight) +
                                                   layout.scales_at);
  const int threads = row_threads(args.k);
  launch<quantise_inputs_kernel>({.grid = {static_cast<int>(num_tiles(args.m) * kTileSide)},
                                  .num_threads = threads,
                                  .shared_bytes = block_sum_bytes(threads)},
                                 stream, p, tiles, row_scales);
  const bool is_few = kernel == LinearKernel::kBest && args.m <= kStreamRowsMax<Int8>;
  if (!is_few && kernel != LinearKernel::kStream) {
    launch_tiled<Int8>(p, stream, kernel);
  } else if (args.m <= 8) {
    launch_stream<Int8, 1>(p, stream);
  } else {
    launch_stream_of_tiles<Int8>(p, stream);
  }
}

}  // namespace lmtp::kernels::cuda
