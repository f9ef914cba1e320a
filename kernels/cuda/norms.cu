#include <device_primitives.cuh>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "cuda/block_rows.cuh"
#include "cuda/row_vectors.cuh"
#include "cuda/rows.h"
#include "lmtp/base/check.h"

namespace lmtp::kernels::cuda {
namespace {

constexpr std::int64_t kVectorColumns = 4;
// Vectors that a thread holds of a row, at most.
constexpr int kVectorsMax = kDeviceNormWidthMax / (kVectorColumns * kRowThreadsMax);

// A row as a block holds it: a thread's vector v begins at column 4 (thread + v * threads).
template <int kVectors>
struct HeldRow {
  Floats4 vectors[kVectors];

  __device__ static std::int64_t column(int v) {
    return kVectorColumns * (thread_index() + std::int64_t{v} * num_threads());
  }
  __device__ void load(const float* row, std::int64_t width, bool whole) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) vectors[v] = load_columns(row, column(v), width, whole);
  }
  __device__ void store(float* row, std::int64_t width, bool whole) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) store_columns(row, column(v), width, whole, vectors[v]);
  }
  // The sum of term(x) over the row's columns, in all threads.
  template <typename Term>
  __device__ float sum(std::int64_t width, const Term& term) const {
    float mine = 0.0F;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < 4; ++i) mine += column(v) + i < width ? term(vectors[v].values[i]) : 0.0F;
    }
    return block_sum(mine, shared_memory<float>());
  }
  // x = body(x, v, i) for every column.
  template <typename Body>
  __device__ void change(const Body& body) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < 4; ++i) vectors[v].values[i] = body(vectors[v].values[i], v, i);
    }
  }
};

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
  const float inverse_width = 1.0F / static_cast<float>(width);
  const float mean = x.sum(width, [](float value) { return value; }) * inverse_width;
  const float squares = x.sum(width, [&](float value) { return (value - mean) * (value - mean); });
  const float inverse = 1.0F / sqrtf(squares * inverse_width + args.epsilon);
  x.change([&](float value, int v, int i) {
    return (value - mean) * inverse * weight.vectors[v].values[i] + bias.vectors[v].values[i];
  });
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
  const float squares = x.sum(width, [](float value) { return value * value; });
  const float mean = squares * (1.0F / static_cast<float>(width));
  const float inverse = 1.0F / sqrtf(mean + args.epsilon);
  x.change([&](float value, int v, int i) {
    const float normed = value * inverse * weight.vectors[v].values[i];
    return has_residual ? normed + residual.vectors[v].values[i] : normed;
  });
  x.store(args.y.data + row * args.y.stride + first, width, whole);
}

bool is_whole(const float* vector) { return std::bit_cast<std::uintptr_t>(vector) % 16 == 0; }

// launch_with(std::integral_constant<int, vectors of a thread>).
template <typename Launch>
void with_vectors(std::int64_t width, const Launch& launch_with) {
  const std::int64_t vectors =
      ceil_divide<std::int64_t>(width, kVectorColumns * row_threads(width));
  LMTP_CHECK(vectors <= kVectorsMax, width);
  if (vectors <= 1) {
    launch_with(std::integral_constant<int, 1>());
  } else if (vectors <= 4) {
    launch_with(std::integral_constant<int, 4>());
  } else if (vectors <= 8) {
    launch_with(std::integral_constant<int, 8>());
  } else {
    launch_with(std::integral_constant<int, kVectorsMax>());
  }
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
