#include "kernels/sum_parts.h"

#include <device_primitives.cuh>

#include "cuda/block_rows.cuh"
#include "cuda/row_vectors.cuh"
#include "lmtp/base/check.h"

namespace lmtp::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kRowThreadsMax) sum_parts_kernel(SumPartsArgs args, bool whole) {
  grid_dependency_wait();
  const std::int64_t c = first_column();
  const float* part = args.first.data + block_index().x * args.first.stride;
  Floats4 sum = load_columns(part, c, args.y.columns, whole);
  for (int i = 1; i < args.num_parts; ++i) {
    part += args.part_stride;
    const Floats4 next = load_columns(part, c, args.y.columns, whole);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum.values[k] += next.values[k];
  }
  store_columns(args.y.data + block_index().x * args.y.stride, c, args.y.columns, whole, sum);
}

}  // namespace

void sum_parts(Stream& stream, const SumPartsArgs& args) {
  LMTP_CHECK(
      args.num_parts >= 1 && args.first.rows == args.y.rows && args.first.columns == args.y.columns,
      args.num_parts, args.first.rows, args.y.rows, args.first.columns, args.y.columns);
  if (args.y.empty()) return;
  const std::int64_t width = args.y.columns;
  const LaunchShape shape{.grid = {.x = static_cast<int>(args.y.rows),
                                   .y = static_cast<int>(ceil_divide(width, kColumnsOfBlock))},
                          .num_threads = kRowThreadsMax};
  launch<sum_parts_kernel>(shape, stream.handle(), args,
                           has_whole_vectors(args.first, width) &&
                               has_whole_vectors(args.y, width) && args.part_stride % 4 == 0);
}

}  // namespace lmtp::kernels::cuda
