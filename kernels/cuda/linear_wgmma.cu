// Compiled for sm_90a alone, which has the instructions.
#include "cuda/linear_wgmma.h"

#include <algorithm>
#include <cstdint>

#include "cuda/linear_wgmma.cuh"

namespace lmtp::kernels::cuda {
namespace {

// In stages of the busiest multiprocessor: 0.47 us each on an H200 for any number of rows, where a
// block of a cluster takes as long as 24 of them besides. (gpu-bench cuda linear 128,256 NxK wgmma,
// and cluster.)
bool has_cluster(const LinearParams& p, const Grid& grid, WgmmaSlices slices) {
  if (slices != WgmmaSlices::kBest) return slices == WgmmaSlices::kCluster;
  constexpr int kClusterStages = 24;
  const auto turns = [](int blocks) { return ceil_divide(blocks, num_multiprocessors()); };
  const int blocks = grid.x * grid.y;
  const int whole = turns(blocks) * ceil_divide(p.k_tiles, kWgmmaStageInputs);
  const int of_slice = ceil_divide(p.slices.tiles, kWgmmaStageInputs) + kClusterStages;
  return p.slices.count > 1 && turns(blocks * p.slices.count) * of_slice < whole;
}

template <typename Shape>
LaunchShape shape_of(const LinearParams& p, const Grid& grid) {
  return {.grid = grid,
          .num_threads = Shape::kThreads,
          .shared_bytes = sizeof(typename Shape::Shared),
          .cluster = grid.z,
          .overlaps = !p.weight_is_fresh};
}

template <typename T, int kRows>
void launch_rows(LinearParams p, WgmmaSlices slices, StreamHandle stream) {
  constexpr std::int64_t kBytesAtOnce = std::int64_t{112} << 20;  // of y
  const std::int64_t rows =
      kBytesAtOnce / (p.args.y_stride * static_cast<std::int64_t>(sizeof(float)));
  p.row_group = static_cast<int>(std::max<std::int64_t>(rows / kRows, 1));
  const Grid grid = {static_cast<int>(ceil_divide<std::int64_t>(p.args.m, kRows)),
                     static_cast<int>(ceil_divide<std::int64_t>(num_tiles(p.args.n), kWgmmaWarps))};
  const auto cluster =
      shape_of<WgmmaShape<kRows, true>>(p, {.x = grid.x, .y = grid.y, .z = p.slices.count});
  if (has_cluster(p, grid, slices) &&
      clusters_fit<linear_wgmma_cluster_kernel<T, kRows>>(cluster)) {
    launch<linear_wgmma_cluster_kernel<T, kRows>>(cluster, stream, p);
  } else {
    launch<linear_wgmma_kernel<T, kRows>>(shape_of<WgmmaShape<kRows, false>>(p, grid), stream, p);
  }
}

template <typename T>
void launch_type(const LinearParams& p, WgmmaSlices slices, StreamHandle stream) {
  switch (wgmma_rows(p.args.m)) {
    case 16:
      launch_rows<T, 16>(p, slices, stream);
      break;
    case 32:
      launch_rows<T, 32>(p, slices, stream);
      break;
    case 64:
      launch_rows<T, 64>(p, slices, stream);
      break;
    default:
      launch_rows<T, 128>(p, slices, stream);
  }
}

}  // namespace

void launch_linear_wgmma(const LinearParams& p, WgmmaSlices slices, StreamHandle stream) {
  if (p.args.type == ElementType::kBF16) {
    launch_type<BF16>(p, slices, stream);
  } else {
    launch_type<F16>(p, slices, stream);
  }
}

}  // namespace lmtp::kernels::cuda
