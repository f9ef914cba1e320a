#include <device_primitives.cuh>

#include <cstdint>

#include "cuda/held_row.cuh"
#include "cuda/rows.h"

namespace lmtp::kernels::cuda {
namespace {

// A block a row. No running launch writes the weights: their loads start before the wait.
template <int kVectors>
__global__ void __launch_bounds__(kRowThreadsMax)
    layer_norm_kernel(LayerNormArgs args, bool whole) {
  const std::int64_t row = block_index().x;
  const std::int64_t width = args.x.columns;
  HeldRow<kVectors> weight;
  HeldRow<kVectors> bias = {};
  weight.load(args.weight, width, whole);
  if (args.bias != nullptr) bias.load(args.bias, width, whole);
  grid_dependency_wait();
  HeldRow<kVectors> x;
  x.load(args.x.data + row * args.x.stride, width, whole);
  x.layer_norm(weight, bias, width, args.epsilon);
  x.store(args.y.data + row * args.y.stride, width, whole);
}

// A block a group of a row.
template <int kVectors>
__global__ void __launch_bounds__(kRowThreadsMax) rms_norm_kernel(RmsNormArgs args, bool whole) {
  const std::int64_t row = block_index().x;
  const std::int64_t width = args.x.columns / args.groups;
  const std::int64_t first = block_index().y * width;
  HeldRow<kVectors> weight;
  weight.load(args.weight, width, whole);
  grid_dependency_wait();
  HeldRow<kVectors> x;
  HeldRow<kVectors> residual = {};
  x.load(args.x.data + row * args.x.stride + first, width, whole);
  const bool has_residual = args.residual.data != nullptr;
  if (has_residual) {
    residual.load(args.residual.data + row * args.residual.stride + first, width, whole);
  }
  x.rms_norm(weight, width, args.epsilon);
  if (has_residual) {
    x.change([&](float value, int v, int i) { return value + residual.vectors[v].values[i]; });
  }
  x.store(args.y.data + row * args.y.stride + first, width, whole);
}

LaunchShape one_block_a_row(std::int64_t rows, std::int64_t width, std::int64_t groups) {
  const int threads = row_threads(width);
  return {.grid = {.x = static_cast<int>(rows), .y = static_cast<int>(groups)},
          .num_threads = threads,
          .shared_bytes = block_sum_bytes(threads)};
}

}  // namespace

void layer_norm(Stream& stream, const LayerNormArgs& args) {
  const std::int64_t width = args.x.columns;
  const bool whole = has_whole_vectors(args.x, width) && has_whole_vectors(args.y, width) &&
                     is_whole(args.weight) && is_whole(args.bias);
  with_vectors(width, [&](auto vectors) {
    launch<layer_norm_kernel<vectors>>(one_block_a_row(args.x.rows, width, 1), stream.handle(),
                                       args, whole);
  });
}

void rms_norm(Stream& stream, const RmsNormArgs& args) {
  const std::int64_t width = args.x.columns / args.groups;
  const bool whole = has_whole_vectors(args.x, width) && has_whole_vectors(args.y, width) &&
                     has_whole_vectors(args.residual, width) && is_whole(args.weight);
  with_vectors(width, [&](auto vectors) {
    launch<rms_norm_kernel<vectors>>(one_block_a_row(args.x.rows, width, args.groups),
                                     stream.handle(), args, whole);
  });
}

}  // namespace lmtp::kernels::cuda
