#include "cuda/rows.h"

#include <device_primitives.cuh>

#include "cuda/block_rows.cuh"
#include "cuda/fragment_tile.h"
#include "cuda/linear_common.cuh"

namespace lmtp::kernels::cuda {
namespace {

// A block a row.
__global__ void layer_norm_kernel(LayerNormArgs args) {
  grid_dependency_launch();
  grid_dependency_wait();
  const std::int64_t row = block_index().x;
  const std::int64_t width = args.x.columns;
  const float* x = args.x.data + row * args.x.stride;
  float* y = args.y.data + row * args.y.stride;
  const float inverse_width = 1.0F / static_cast<float>(width);
  auto* shared = shared_memory<float>();
  float sum = 0.0F;
  for_columns(width, [&](std::int64_t c) { sum += x[c]; });
  const float mean = block_sum(sum, shared) * inverse_width;
  float squares = 0.0F;
  for_columns(width, [&](std::int64_t c) { squares += (x[c] - mean) * (x[c] - mean); });
  const float variance = block_sum(squares, shared) * inverse_width;
  const float inverse = 1.0F / sqrtf(variance + args.epsilon);
  for_columns(width, [&](std::int64_t c) {
    const float bias = args.bias == nullptr ? 0.0F : args.bias[c];
    y[c] = (x[c] - mean) * inverse * args.weight[c] + bias;
  });
}

// A block a group of a row.
__global__ void rms_norm_kernel(RmsNormArgs args) {
  grid_dependency_launch();
  grid_dependency_wait();
  const std::int64_t row = block_index().x;
  const std::int64_t width = args.x.columns / args.groups;
  const std::int64_t first = block_index().y * width;
  const float* x = args.x.data + row * args.x.stride + first;
  const float* residual = args.residual.data == nullptr
                              ? nullptr
                              : args.residual.data + row * args.residual.stride + first;
  float* y = args.y.data + row * args.y.stride + first;
  float squares = 0.0F;
  for_columns(width, [&](std::int64_t c) { squares += x[c] * x[c]; });
  const float sum = block_sum(squares, shared_memory<float>());
  const float mean = sum * (1.0F / static_cast<float>(width));
  const float inverse = 1.0F / sqrtf(mean + args.epsilon);
  for_columns(width, [&](std::int64_t c) {
    const float value = x[c] * inverse * args.weight[c];
    y[c] = residual == nullptr ? value : value + residual[c];
  });
}

__global__ void rotary_angles_kernel(RotaryAnglesArgs args) {
  grid_dependency_launch();
  grid_dependency_wait();
  const std::int64_t row = block_index().x;
  const auto position = static_cast<float>(args.positions[row]);
  for_columns(args.cosines.columns, [&](std::int64_t i) {
    const float angle = position * args.inverse_periods[i];
    args.cosines.data[row * args.cosines.stride + i] = args.factor * cosf(angle);
    args.sines.data[row * args.sines.stride + i] = args.factor * sinf(angle);
  });
}

// A thread turns pairs of dimensions.
__global__ void rotary_kernel(RotaryArgs args) {
  grid_dependency_launch();
  grid_dependency_wait();
  const std::int64_t row = block_index().x;
  const std::int64_t half = args.cosines.columns;
  const std::int64_t num_heads = args.x.columns / args.head_dim;
  float* x = args.x.data + row * args.x.stride;
  for_columns(num_heads * half, [&](std::int64_t pair) {
    const std::int64_t d = pair % half;
    float* first = x + pair / half * args.head_dim + d;
    const float cosine = args.cosines.data[row * args.cosines.stride + d];
    const float sine = args.sines.data[row * args.sines.stride + d];
    const float a = first[0];
    const float b = first[half];
    first[0] = a * cosine - b * sine;
    first[half] = b * cosine + a * sine;
  });
}

// Elements that a block of the kernels below takes.
inline constexpr std::int64_t kElementsPerBlock = 1024;

// body(c) for this thread's columns of the part of a row that is this block's.
template <typename Body>
__device__ void for_part(std::int64_t width, const Body& body) {
  const std::int64_t first = block_index().y * kElementsPerBlock;
  const std::int64_t end = first + kElementsPerBlock < width ? first + kElementsPerBlock : width;
  for (std::int64_t c = first + thread_index(); c < end; c += num_threads()) {
    body(c);
  }
}

__global__ void gated_activation_kernel(GatedActivationArgs args) {
  grid_dependency_launch();
  grid_dependency_wait();
  const float* x = args.x.data + block_index().x * args.x.stride;
  float* y = args.y.data + block_index().x * args.y.stride;
  const std::int64_t width = args.y.columns;
  for_part(width, [&](std::int64_t c) { y[c] = activate(args.activation, x[c]) * x[width + c]; });
}

__global__ void soft_cap_kernel(Matrix<float> x, float cap) {
  grid_dependency_launch();
  grid_dependency_wait();
  float* row = x.data + block_index().x * x.stride;
  for_part(x.columns, [&](std::int64_t c) { row[c] = cap * tanhf(row[c] / cap); });
}

// One element of a weight as linear.h packs it.
template <typename T>
__device__ float weight_at(const PackedLinear& weight, std::int64_t n, std::int64_t k) {
  return widen<T>(
      static_cast<const std::uint16_t*>(weight.panels)[place_in_matrix(n, k, weight.k)]);
}
template <>
__device__ float weight_at<float>(const PackedLinear& weight, std::int64_t n, std::int64_t k) {
  return static_cast<const float*>(
      weight.panels)[(n / kPanelColumns * weight.k + k) * kPanelColumns + n % kPanelColumns];
}

template <typename T>
__global__ void embedding_kernel(EmbeddingArgs args) {
  grid_dependency_launch();
  grid_dependency_wait();
  const int row = block_index().x;
  float* y = args.y.data + row * args.y.stride;
  const float* position = nullptr;
  if (args.position_table.data != nullptr) {
    position = args.position_table.data +
               (args.positions[row] + args.position_offset) * args.position_table.stride;
  }
  for_part(args.y.columns, [&](std::int64_t c) {
    float value = 0.0F;
    if (args.table.panels != nullptr) {
      value = weight_at<T>(args.table, args.ids[row], c) * args.scale;
    }
    y[c] = position == nullptr ? value : value + position[c];
  });
}

__global__ void gather_rows_kernel(GatherRowsArgs args) {
  grid_dependency_launch();
  grid_dependency_wait();
  const float* x = args.x.data + args.rows[block_index().x] * args.x.stride;
  float* y = args.y.data + block_index().x * args.y.stride;
  for_part(args.y.columns, [&](std::int64_t c) { y[c] = x[c]; });
}

// Whole blocks: what lies behind the tokens is not read before it is written. A thread carries the
// same bytes of every copy, one copy after another, so their order is kept.
__global__ void kv_copy_kernel(KvLayer cache, std::int64_t words_per_block, const KvCopy* copies,
                               std::int64_t num_copies) {
  grid_dependency_launch();
  grid_dependency_wait();
  const std::int64_t word = std::int64_t{block_index().x} * num_threads() + thread_index();
  if (word >= words_per_block) {
    return;
  }
  auto* blocks = static_cast<Words4*>(block_index().y == 0 ? cache.keys : cache.values);
  for (std::int64_t i = 0; i < num_copies; ++i) {
    store(blocks + copies[i].to * words_per_block + word,
          load(blocks + copies[i].from * words_per_block + word));
  }
}

// A block a row.
LaunchShape one_block_a_row(std::int64_t rows, std::int64_t width, int groups = 1) {
  const int threads = row_threads(width);
  return {.grid = {.x = static_cast<int>(rows), .y = groups},
          .num_threads = threads,
          .shared_bytes = block_sum_bytes(threads)};
}

// A block for each kElementsPerBlock of a row.
LaunchShape blocks_along_rows(std::int64_t rows, std::int64_t width) {
  return {.grid = {.x = static_cast<int>(rows),
                   .y = static_cast<int>(ceil_divide(width, kElementsPerBlock))},
          .num_threads = row_threads(width)};
}

}  // namespace

void layer_norm(Stream& stream, const LayerNormArgs& args) {
  launch<layer_norm_kernel>(one_block_a_row(args.x.rows, args.x.columns), stream.handle(), args);
}

void rms_norm(Stream& stream, const RmsNormArgs& args) {
  const auto shape =
      one_block_a_row(args.x.rows, args.x.columns / args.groups, static_cast<int>(args.groups));
  launch<rms_norm_kernel>(shape, stream.handle(), args);
}

void rotary_angles(Stream& stream, const RotaryAnglesArgs& args) {
  launch<rotary_angles_kernel>(one_block_a_row(args.cosines.rows, args.cosines.columns),
                               stream.handle(), args);
}

void rotary(Stream& stream, const RotaryArgs& args) {
  launch<rotary_kernel>(one_block_a_row(args.x.rows, args.x.columns), stream.handle(), args);
}

void gated_activation(Stream& stream, const GatedActivationArgs& args) {
  launch<gated_activation_kernel>(blocks_along_rows(args.y.rows, args.y.columns), stream.handle(),
                                  args);
}

void soft_cap(Stream& stream, Matrix<float> x, float cap) {
  launch<soft_cap_kernel>(blocks_along_rows(x.rows, x.columns), stream.handle(), x, cap);
}

void embedding(Stream& stream, const EmbeddingArgs& args) {
  const auto shape = blocks_along_rows(args.y.rows, args.y.columns);
  switch (args.table.type) {
    case WeightType::kBF16:
      launch<embedding_kernel<BF16>>(shape, stream.handle(), args);
      return;
    case WeightType::kF16:
      launch<embedding_kernel<F16>>(shape, stream.handle(), args);
      return;
    default:
      launch<embedding_kernel<float>>(shape, stream.handle(), args);
  }
}

void gather_rows(Stream& stream, const GatherRowsArgs& args) {
  launch<gather_rows_kernel>(blocks_along_rows(args.y.rows, args.y.columns), stream.handle(), args);
}

void kv_copy(Stream& stream, const KvLayer& cache, const KvCopy* copies, std::int64_t num_copies) {
  const std::int64_t words =
      cache.block_size() * element_size(cache.type) / static_cast<std::int64_t>(sizeof(Words4));
  constexpr int kThreads = 128;
  launch<kv_copy_kernel>(
      {.grid = {.x = static_cast<int>(ceil_divide<std::int64_t>(words, kThreads)), .y = 2},
       .num_threads = kThreads},
      stream.handle(), cache, words, copies, num_copies);
}

}  // namespace lmtp::kernels::cuda
