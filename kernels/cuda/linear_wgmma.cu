// Compiled for sm_90a alone, which has the instructions.
#include "cuda/linear_wgmma.h"

#include <algorithm>
#include <cstdint>

#include "cuda/linear_wgmma.cuh"

namespace lmtp::kernels::cuda {
namespace {

// A launch, and how long it takes by estimate.
struct WgmmaPlan {
  WgmmaParams params = {};
  LaunchShape shape = {};
  bool in_slices = false;
  double us = 0.0;
};

// Microseconds on an H200, of stages and besides (gpu-bench cuda linear 64,128,256 NxK wgmma,
// cluster, cluster2). Blocks of clusters have fewer stages under way.
struct WgmmaCost {
  double stage;
  double block;  // begins, and writes its sums
};
template <int kRows>
constexpr WgmmaCost kWholeCost = {kRows == 128  ? 0.42
                                  : kRows == 64 ? 0.33
                                                : 0.3,
                                  5.0};
template <int kRows>
constexpr WgmmaCost kSlicesCost = {kRows == 128  ? 0.5
                                   : kRows == 64 ? 0.75
                                                 : 0.6,
                                   8.0};

// How long works take of which so many run at a time.
double us_of(const WgmmaCost& cost, int works, int at_once, int num_stages) {
  return ceil_divide(works, at_once) * (num_stages * cost.stage + cost.block);
}

int num_works(const WgmmaParams& p) { return p.row_blocks * p.output_blocks; }

WgmmaParams params_of(const LinearParams& p, int rows) {
  constexpr std::int64_t kBytesAtOnce = std::int64_t{112} << 20;  // of y
  const std::int64_t rows_at_once =
      kBytesAtOnce / (p.args.y_stride * static_cast<std::int64_t>(sizeof(float)));
  return {.linear = p,
          .row_blocks = static_cast<int>(ceil_divide<std::int64_t>(p.args.m, rows)),
          .output_blocks = static_cast<int>(
              ceil_divide<std::int64_t>(num_tiles(p.args.n), std::int64_t{kWgmmaWarps})),
          .row_group = static_cast<int>(std::max<std::int64_t>(rows_at_once / rows, 1)),
          .num_stages = 0,
          .num_slices = 1};
}

// By blocks that take all slices.
template <typename T, int kRows>
WgmmaPlan whole_plan(const LinearParams& p) {
  using Shape = WgmmaShape<kRows>;
  constexpr int kStages = Shape::stages_for(Shape::kBlocks, 0);
  static_assert(kStages >= Shape::kCopyWarps);
  WgmmaPlan plan;
  plan.params = params_of(p, kRows);
  plan.params.num_stages = kStages;
  const int at_once = num_multiprocessors() * Shape::kBlocks;
  // All members by name, here and below: where some are left out in a template, nvcc 13.0 gives
  // those behind them to the next in order.
  plan.shape = {.grid = {.x = std::min(num_works(plan.params), at_once), .y = 1, .z = 1},
                .num_threads = Shape::kThreads,
                .shared_bytes = Shape::shared_bytes(kStages, 0),
                .cluster = 1,
                .overlaps = !p.weight_is_fresh};
  plan.us = us_of(kWholeCost<kRows>, num_works(plan.params), at_once,
                  ceil_divide(p.k_tiles, kWgmmaStageInputs));
  return plan;
}

// By clusters whose blocks take num_slices slices each. us < 0: none fits.
template <typename T, int kRows>
WgmmaPlan slices_plan(const LinearParams& p, int num_slices) {
  using Shape = WgmmaShape<kRows>;
  WgmmaPlan plan;
  plan.params = params_of(p, kRows);
  plan.in_slices = true;
  plan.us = -1.0;
  const int num_blocks = ceil_divide(p.slices.count, num_slices);
  if (num_blocks < 2 || num_blocks > kClusterMax) return plan;
  constexpr int kStagesMin = Shape::stages_for(Shape::kClusterBlocks, 1);
  static_assert(kStagesMin >= Shape::kClusterCopyWarps &&
                kStagesMin * sizeof(typename Shape::Stage) >= Shape::kSumsBytes);
  plan.params.num_slices = num_slices;
  plan.params.num_stages = Shape::stages_for(Shape::kClusterBlocks, num_slices - 1);
  plan.shape = {.grid = {.x = num_works(plan.params), .y = 1, .z = num_blocks},
                .num_threads = Shape::kClusterThreads,
                .shared_bytes = Shape::shared_bytes(plan.params.num_stages, num_slices - 1),
                .cluster = num_blocks,
                .overlaps = !p.weight_is_fresh};
  const int at_once = clusters_at_once<linear_wgmma_cluster_kernel<T, kRows>>(plan.shape);
  if (at_once == 0) return plan;
  plan.us = us_of(kSlicesCost<kRows>, num_works(plan.params), at_once,
                  num_slices * ceil_divide(p.slices.tiles, kWgmmaStageInputs));
  return plan;
}

// The least of those that fit and are allowed; one block takes all slices where none is.
template <typename T, int kRows>
WgmmaPlan best_plan(const LinearParams& p, WgmmaSlices slices) {
  const bool any = slices == WgmmaSlices::kBest;
  WgmmaPlan best = whole_plan<T, kRows>(p);
  const auto consider = [&](const WgmmaPlan& plan) {
    if (plan.us >= 0.0 && (plan.us < best.us || !any)) best = plan;
  };
  if (any || slices == WgmmaSlices::kCluster) consider(slices_plan<T, kRows>(p, 1));
  if (any || slices == WgmmaSlices::kClusterBy2) consider(slices_plan<T, kRows>(p, 2));
  return best;
}

template <typename T, int kRows>
void launch_rows(const LinearParams& p, WgmmaSlices slices, StreamHandle stream) {
  const WgmmaPlan plan = best_plan<T, kRows>(p, slices);
  if (plan.in_slices) {
    launch<linear_wgmma_cluster_kernel<T, kRows>>(plan.shape, stream, plan.params);
  } else {
    launch<linear_wgmma_kernel<T, kRows>>(plan.shape, stream, plan.params);
  }
}

template <typename T>
void launch_type(const LinearParams& p, WgmmaSlices slices, StreamHandle stream) {
  switch (wgmma_rows(p.args.m)) {
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
