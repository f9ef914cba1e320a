// Weights by groups: codes that become bf16 or f16 in registers, or for many rows in scratch
// memory.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/linear_launch.cuh"
#include "cuda/linear_narrow.h"

namespace lmtp::kernels::cuda {
namespace {

// Tiles of T from codes, from output tile `first` on; a warp a step of one output tile.
template <typename T, typename Codes, typename Scales>
__global__ void __launch_bounds__(256) widen_weight_kernel(LinearParams p, int first, Words4* to) {
  grid_dependency_wait();
  const int warps = num_threads() / kWarpSize;
  const int tile = (block_index().y * warps + warp_index()) * kStepTiles;
  if (tile >= p.k_tiles) return;
  const WeightTiles<Narrow<T, Codes, Scales>> weights(p, first + block_index().x);
  auto loaded = weights.load(true, 0, tile, p.k_tiles);
  weights.prepare(loaded);
  to += (std::int64_t{block_index().x} * p.k_tiles + tile) * kTileVectors + lane_index();
#pragma unroll
  for (int i = 0; i < kStepTiles; ++i) {
    const Words4 numbers = weights.operand(loaded, i);
    if (tile + i < p.k_tiles) store(to + i * kTileVectors, numbers);
  }
}

// The linear of many rows, some outputs after others: widened into `widened`, then multiplied.
// Slices stay those of the whole weight.
template <typename T, typename Codes, typename Scales>
void launch_in_parts(const LinearParams& p, std::int64_t outputs, Words4* widened,
                     StreamHandle stream, LinearKernel kernel) {
  constexpr int kThreads = 256;
  launch_round_many(p, stream, kernel);
  for (std::int64_t first = 0; first < p.args.n; first += outputs) {
    LinearParams part = p;
    part.args.n = std::min(outputs, p.args.n - first);
    const Grid grid = {static_cast<int>(num_tiles(part.args.n)),
                       ceil_divide(p.k_tiles, kThreads / kWarpSize * kStepTiles)};
    launch<widen_weight_kernel<T, Codes, Scales>>({.grid = grid, .num_threads = kThreads}, stream,
                                                  p, static_cast<int>(first / kTileSide), widened);
    part.args.weight = widened;
    part.weight_is_fresh = true;
    part.args.y += first;
    if (part.args.bias != nullptr) part.args.bias += first;
    if (part.args.residual != nullptr) part.args.residual += first;
    launch_many_rows(part, stream, kernel);
  }
}

template <typename T, typename Codes, typename Scales>
void launch_grouped(const LinearParams& p, std::int64_t outputs, StreamHandle stream,
                    LinearKernel kernel) {
  using Weight = Narrow<T, Codes, Scales>;
  const bool is_few = kernel == LinearKernel::kBest && p.args.m <= kStreamRowsMax<Weight>;
  if (is_few || kernel == LinearKernel::kStream) {
    launch_few_rows<Weight>(p, stream);
    return;
  }
  const std::size_t x_bytes = linear_scratch_bytes(p.args.type, p.args.m, p.args.k);
  auto* widened = static_cast<unsigned char*>(p.args.scratch) + x_bytes;
  launch_in_parts<T, Codes, Scales>(p, outputs, reinterpret_cast<Words4*>(widened), stream, kernel);
}

template <typename T, typename Codes>
void launch_grouped(const LinearParams& p, std::int64_t outputs, StreamHandle stream,
                    LinearKernel kernel) {
  if (p.grouped.scale_type == p.args.type && p.grouped.offsets == nullptr) {
    launch_grouped<T, Codes, ScalesOfType>(p, outputs, stream, kernel);
  } else {
    launch_grouped<T, Codes, AnyScales>(p, outputs, stream, kernel);
  }
}

template <typename T>
void launch_grouped(const LinearParams& p, CodeType codes, std::int64_t outputs,
                    StreamHandle stream, LinearKernel kernel) {
  switch (codes) {
    case CodeType::kInt4:
      launch_grouped<T, Int4Codes>(p, outputs, stream, kernel);
      break;
    case CodeType::kInt8:
      launch_grouped<T, Int8Codes>(p, outputs, stream, kernel);
      break;
    case CodeType::kE4M3:
      launch_grouped<T, E4M3Codes>(p, outputs, stream, kernel);
      break;
    case CodeType::kE2M1:
      launch_grouped<T, E2M1Codes>(p, outputs, stream, kernel);
      break;
  }
}

}  // namespace

std::int64_t outputs_widened_at_once(std::int64_t k) {
  constexpr std::int64_t kTilesOfBlock = 8;
  const std::int64_t bytes = num_tiles(k) * kTileElements * 2 * kTilesOfBlock;
  return std::max<std::int64_t>(kWidenedBytesMax / bytes, 1) * kTilesOfBlock * kTileSide;
}

SplitBytes grouped_split_bytes(std::int64_t m, std::int64_t n, std::int64_t k) {
  if (m <= kStreamRowsMax<Narrow<BF16, Int4Codes, AnyScales>> || has_wgmma()) return {};
  const auto bytes_of = [&](std::int64_t outputs) {
    return tiled_plan_for({m, outputs, num_tiles(k), slices_of(n, k)}, num_multiprocessors(), true)
        .bytes;
  };
  const std::int64_t at_once = outputs_widened_at_once(k);
  const SplitBytes first = bytes_of(std::min(n, at_once));
  if (n % at_once == 0) return first;
  const SplitBytes last = bytes_of(n % at_once);
  return {std::max(first.partials, last.partials), std::max(first.counters, last.counters)};
}

void grouped_linear(const LinearLaunch& args, WeightType type, const Grouping& by,
                    StreamHandle stream, LinearKernel kernel, std::int64_t outputs_at_once) {
  LinearParams p = linear_params(args);
  p.grouped = grouped_weight(args.weight, type, by, args.n, args.k);
  if (args.type == ElementType::kF16) {
    launch_grouped<F16>(p, by.codes, outputs_at_once, stream, kernel);
  } else {
    launch_grouped<BF16>(p, by.codes, outputs_at_once, stream, kernel);
  }
}

}  // namespace lmtp::kernels::cuda
