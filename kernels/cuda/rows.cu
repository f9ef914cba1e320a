#include "cuda/rows.h"

#include <device_primitives.cuh>

#include "cuda/block_rows.cuh"
#include "cuda/fragment_tile.h"
#include "cuda/gated_columns.cuh"
#include "cuda/linear_operands.cuh"
#include "cuda/row_vectors.cuh"
#include "lmtp/base/check.h"

namespace lmtp::kernels::cuda {
namespace {

__global__ void rotary_angles_kernel(RotaryAnglesArgs args) {
  grid_dependency_wait();
  const std::int64_t row = block_index().x;
  const auto position = static_cast<float>(args.positions[row]);
  float factor = args.factor;
  if (args.growth != 0.0F) {
    const auto periods = static_cast<float>(args.positions[row] / args.period);
    factor *= 1.0F + args.growth * logf(1.0F + periods);
  }
  for_columns(args.cosines.columns, [&](std::int64_t i) {
    const float angle = position * args.inverse_periods[i];
    args.cosines.data[row * args.cosines.stride + i] = factor * cosf(angle);
    args.sines.data[row * args.sines.stride + i] = factor * sinf(angle);
  });
}

// A thread turns a pair of dimensions.
__global__ void __launch_bounds__(kRowThreadsMax) rotary_kernel(RotaryArgs args) {
  grid_dependency_wait();
  const std::int64_t row = block_index().x;
  const std::int64_t half = args.cosines.columns;
  const std::int64_t num_heads = args.x.columns / args.head_dim;
  const std::int64_t pair = std::int64_t{block_index().y} * num_threads() + thread_index();
  if (pair >= num_heads * half) return;
  const std::int64_t d = pair % half;
  float* first = args.x.data + row * args.x.stride + pair / half * args.head_dim + d;
  const float cosine = args.cosines.data[row * args.cosines.stride + d];
  const float sine = args.sines.data[row * args.sines.stride + d];
  const float a = first[0];
  const float b = first[half];
  first[0] = a * cosine - b * sine;
  first[half] = b * cosine + a * sine;
}

__global__ void __launch_bounds__(kRowThreadsMax)
    gated_activation_kernel(GatedActivationArgs args, bool whole) {
  grid_dependency_wait();
  const float* x = args.x.data + block_index().x * args.x.stride;
  const std::int64_t width = args.y.columns;
  const std::int64_t c = first_column();
  store_columns(args.y.data + block_index().x * args.y.stride, c, width, whole,
                load_gated(x, c, width, whole, args.activation));
}

__global__ void __launch_bounds__(kRowThreadsMax)
    activate_kernel(Matrix<float> x, Activation activation, bool whole) {
  grid_dependency_wait();
  float* row = x.data + block_index().x * x.stride;
  Floats4 four = load_columns(row, first_column(), x.columns, whole);
  activate_all(activation, four.values);
  store_columns(row, first_column(), x.columns, whole, four);
}

__global__ void __launch_bounds__(kRowThreadsMax)
    soft_cap_kernel(Matrix<float> x, float cap, bool whole) {
  grid_dependency_wait();
  float* row = x.data + block_index().x * x.stride;
  Floats4 four = load_columns(row, first_column(), x.columns, whole);
#pragma unroll
  for (float& value : four.values) value = cap * tanhf(value / cap);
  store_columns(row, first_column(), x.columns, whole, four);
}

// A weight, and what is known of its codes where it has any.
struct Table {
  const void* weight = nullptr;
  std::int64_t k = 0;
  const float* scales = nullptr;  // of Int8
  GroupedWeight grouped = {};
};

// Half of a byte, or a byte.
template <typename Codes>
__device__ std::uint32_t code_at(const void* codes, std::int64_t at) {
  const auto* bytes = static_cast<const std::uint8_t*>(codes);
  if constexpr (kCodeBits<Codes> == 4) {
    return static_cast<std::uint32_t>(bytes[at / 2]) >> (at % 2 * 4) & 15U;
  } else {
    return bytes[at];
  }
}

// As a number; `base` is what 4 bits are less.
template <typename Codes>
__device__ float code_number(std::uint32_t code, int base) {
  if constexpr (std::is_same_v<Codes, Int4Codes>) {
    return static_cast<float>(static_cast<int>(code) - base);
  } else if constexpr (std::is_same_v<Codes, Int8Codes>) {
    return static_cast<float>(static_cast<std::int8_t>(code));
  } else if constexpr (std::is_same_v<Codes, E2M1Codes>) {
    // Half precision shifted by nine bits and divided by 2^14.
    return widen<F16>(static_cast<std::uint16_t>((code & 8U) << 12 | (code & 7U) << 9)) * 16384.0F;
  } else {
    // e4m3 is half precision shifted by one bit and divided by 256.
    return widen<F16>(static_cast<std::uint16_t>((code & 128U) << 8 | (code & 127U) << 7)) * 256.0F;
  }
}

__device__ float scale_at(const GroupedWeight& by, std::int64_t at) {
  if (by.scale_type == ElementType::kF32) return static_cast<const float*>(by.scales)[at];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(by.scales)[at];
  return by.scale_type == ElementType::kF16 ? widen<F16>(bits) : widen<BF16>(bits);
}

// One element of a weight as linear.h and narrow_weight.h lay it; T is a type or that of codes.
template <typename T>
__device__ float weight_at(const Table& table, std::int64_t n, std::int64_t k) {
  if constexpr (std::is_same_v<T, float>) {
    const std::int64_t at = (n / kPanelColumns * table.k + k) * kPanelColumns + n % kPanelColumns;
    return static_cast<const float*>(table.weight)[at];
  } else if constexpr (std::is_same_v<T, Int8>) {
    return static_cast<float>(static_cast<const std::int8_t*>(
               table.weight)[offset_in_byte_matrix(n, k, table.k)]) *
           table.scales[n];
  } else if constexpr (std::is_same_v<T, BF16> || std::is_same_v<T, F16>) {
    return widen<T>(
        static_cast<const std::uint16_t*>(table.weight)[offset_in_matrix(n, k, table.k)]);
  } else {
    const GroupedWeight& by = table.grouped;
    const std::int64_t group = by.group_of(static_cast<int>(k / kTileSide));
    const std::int64_t at = (n / kTileSide * by.num_groups + group) * kTileSide + place_of_scale(n);
    const float offset =
        by.offsets != nullptr ? reinterpret_cast<const float*>(by.offsets)[at] : 0.0F;
    const std::uint32_t code =
        code_at<T>(table.weight, offset_of_code(kCodeBits<T>, n, k, table.k));
    return fmaf(code_number<T>(code, by.base), scale_at(by, at), offset);
  }
}

template <typename T>
__global__ void __launch_bounds__(kRowThreadsMax)
    embedding_kernel(EmbeddingArgs args, Table table, bool whole) {
  grid_dependency_wait();
  const int row = block_index().x;
  const std::int64_t width = args.y.columns;
  const std::int64_t c = first_column();
  const std::int32_t id = args.table.panels != nullptr ? args.ids[row] - args.first_id : 0;
  const bool is_elsewhere = args.is_part && (id < 0 || id >= args.table.n);
  const bool has_position = args.position_table.data != nullptr && !is_elsewhere;
  Floats4 position = {};
  if (has_position) {
    position =
        load_columns(args.position_table.data +
                         (args.positions[row] + args.position_offset) * args.position_table.stride,
                     c, width, whole);
  }
  Floats4 four = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (args.table.panels != nullptr && !is_elsewhere && c + i < width) {
      four.values[i] = weight_at<T>(table, id, c + i) * args.scale;
    }
    if (has_position) four.values[i] += position.values[i];
  }
  store_columns(args.y.data + row * args.y.stride, c, width, whole, four);
}

__global__ void __launch_bounds__(kRowThreadsMax)
    gather_rows_kernel(GatherRowsArgs args, bool whole) {
  grid_dependency_wait();
  const std::int64_t row = args.rows != nullptr ? args.rows[block_index().x] : block_index().x;
  const float* x = args.x.data + row * args.x.stride;
  const Floats4 four = load_columns(x, first_column(), args.y.columns, whole);
  store_columns(args.y.data + block_index().x * args.y.stride, first_column(), args.y.columns,
                whole, four);
}

// Whole blocks: tokens behind the copied ones are written before they are read. A thread moves the
// same bytes of every copy in turn, which keeps the order of copies.
__global__ void kv_copy_kernel(KvLayer cache, std::int64_t words_per_block, KvCopies copies) {
  grid_dependency_wait();
  const std::int64_t word = std::int64_t{block_index().x} * num_threads() + thread_index();
  if (word >= words_per_block) return;
  const bool is_keys = block_index().y == 0;
  auto* own = static_cast<Words4*>(is_keys ? cache.keys : cache.values) + word;
  auto* host = static_cast<Words4*>(is_keys ? copies.host_keys : copies.host_values) + word;
  const auto at = [&](std::int64_t block) {
    return block < cache.num_blocks ? own + block * words_per_block
                                    : host + (block - cache.num_blocks) * words_per_block;
  };
  for (std::int64_t i = 0; i < copies.count; ++i) {
    store(at(copies.copies[i].to), load(at(copies.copies[i].from)));
  }
}

Table table_of(const PackedLinear& weight) {
  Table table = {.weight = weight.panels, .k = weight.k};
  if (weight.panels == nullptr) return table;
  if (weight.type == WeightType::kInt8) {
    const NarrowLayout layout = narrow_layout(weight.type, {}, weight.n, weight.k);
    table.scales = reinterpret_cast<const float*>(static_cast<const unsigned char*>(weight.panels) +
                                                  layout.scales_at);
  } else if (is_grouped(weight.type)) {
    table.grouped = grouped_weight(weight.panels, weight.type, weight.grouping, weight.n, weight.k);
  }
  return table;
}

// A block for each kColumnsOfBlock of a row.
LaunchShape blocks_along_rows(std::int64_t rows, std::int64_t width) {
  return {.grid = {.x = static_cast<int>(rows),
                   .y = static_cast<int>(ceil_divide(width, kColumnsOfBlock))},
          .num_threads = row_threads(width)};
}

template <typename T>
void launch_embedding(const EmbeddingArgs& args, Stream& stream) {
  const bool whole = has_whole_vectors(args.y, args.y.columns) &&
                     has_whole_vectors(args.position_table, args.y.columns);
  launch<embedding_kernel<T>>(blocks_along_rows(args.y.rows, args.y.columns), stream.handle(), args,
                              table_of(args.table), whole);
}

}  // namespace

void rotary_angles(Stream& stream, const RotaryAnglesArgs& args) {
  launch<rotary_angles_kernel>({.grid = {.x = static_cast<int>(args.cosines.rows)},
                                .num_threads = row_threads(args.cosines.columns)},
                               stream.handle(), args);
}

void rotary(Stream& stream, const RotaryArgs& args) {
  const std::int64_t pairs = args.x.columns / args.head_dim * args.cosines.columns;
  const auto blocks = static_cast<int>(ceil_divide<std::int64_t>(pairs, kRowThreadsMax));
  launch<rotary_kernel>(
      {.grid = {.x = static_cast<int>(args.x.rows), .y = blocks}, .num_threads = kRowThreadsMax},
      stream.handle(), args);
}

void gated_activation(Stream& stream, const GatedActivationArgs& args) {
  const std::int64_t width = args.y.columns;
  launch<gated_activation_kernel>(
      blocks_along_rows(args.y.rows, width), stream.handle(), args,
      has_whole_vectors(args.x, width) && has_whole_vectors(args.y, width));
}

void activate_rows(Stream& stream, Matrix<float> x, Activation activation) {
  launch<activate_kernel>(blocks_along_rows(x.rows, x.columns), stream.handle(), x, activation,
                          has_whole_vectors(x, x.columns));
}

void lora(Stream& /*stream*/, const LoraArgs& args) {
  LMTP_CHECK(args.rows.num_rows == 0, args.rows.num_rows);
}

void soft_cap(Stream& stream, Matrix<float> x, float cap) {
  launch<soft_cap_kernel>(blocks_along_rows(x.rows, x.columns), stream.handle(), x, cap,
                          has_whole_vectors(x, x.columns));
}

void embedding(Stream& stream, const EmbeddingArgs& args) {
  switch (args.table.type) {
    case WeightType::kF32:
      return launch_embedding<float>(args, stream);
    case WeightType::kBF16:
      return launch_embedding<BF16>(args, stream);
    case WeightType::kF16:
      return launch_embedding<F16>(args, stream);
    case WeightType::kInt8:
      return launch_embedding<Int8>(args, stream);
    case WeightType::kF32AsBF16:
    case WeightType::kF32AsF16:
      return;  // refused by the op
    case WeightType::kInt4:
    case WeightType::kWidened:
      switch (args.table.grouping.codes) {
        case CodeType::kInt4:
          return launch_embedding<Int4Codes>(args, stream);
        case CodeType::kInt8:
          return launch_embedding<Int8Codes>(args, stream);
        case CodeType::kE4M3:
          return launch_embedding<E4M3Codes>(args, stream);
        case CodeType::kE2M1:
          return launch_embedding<E2M1Codes>(args, stream);
      }
  }
}

void gather_rows(Stream& stream, const GatherRowsArgs& args) {
  launch<gather_rows_kernel>(
      blocks_along_rows(args.y.rows, args.y.columns), stream.handle(), args,
      has_whole_vectors(args.x, args.y.columns) && has_whole_vectors(args.y, args.y.columns));
}

void kv_copy(Stream& stream, const KvLayer& cache, const KvCopies& copies) {
  const std::int64_t words =
      cache.block_size() * element_size(cache.type) / static_cast<std::int64_t>(sizeof(Words4));
  constexpr int kThreads = 128;
  launch<kv_copy_kernel>(
      {.grid = {.x = static_cast<int>(ceil_divide<std::int64_t>(words, kThreads)), .y = 2},
       .num_threads = kThreads},
      stream.handle(), cache, words, copies);
}

}  // namespace lmtp::kernels::cuda
