// Weights of 8 bits and less into the order in which the linear reads them, and what is not asked
// for while a model runs.
#include <device_primitives.cuh>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/linear_narrow.h"
#include "cuda/narrow_weight.h"
#include "cuda/read_source.cuh"

namespace lmtp::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// The codes that a lane needs of a tile; of what does not exist, codes whose weight is 0.
struct PackParams {
  CodedRows rows;
  NarrowTarget to;
  NarrowLayout layout;
  std::int64_t groups = 1;
};

__device__ std::uint32_t code_at(const PackParams& p, std::int64_t row, std::int64_t column) {
  const std::int64_t from = row - p.rows.first_row;
  if (from >= p.rows.count || column >= p.to.k) {
    return static_cast<std::uint32_t>(p.to.type == WeightType::kInt8 ? 0
                                                                     : code_base(p.to.grouping));
  }
  return p.rows.codes[from * p.to.k + column];
}

__device__ void pack_bytes(const PackParams& p, std::int64_t at) {
  const std::int64_t k_tiles = num_byte_tiles(p.to.k);
  const std::int64_t tile = at / kTileVectors;
  const int lane = static_cast<int>(at % kTileVectors);
  const std::int64_t row = p.rows.first_row + tile / k_tiles * kTileSide + lane / 4;
  const std::int64_t column = tile % k_tiles * kByteTileInputs + lane % 4 * 8;
  Words4 vector = {};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    for (int i = 0; i < 4; ++i) {
      vector.words[word] |= code_at(p, row + word % 2 * 8, column + word / 2 * 4 + i) << (8 * i);
    }
  }
  store(static_cast<Words4*>(p.to.weight) + p.rows.first_row / kTileSide * k_tiles * kTileVectors +
            at,
        vector);
}

__device__ void pack_groups(const PackParams& p, std::int64_t at) {
  const std::int64_t k_tiles = num_code_tiles(p.to.k);
  const std::int64_t tile = at / kTileVectors;
  const int lane = static_cast<int>(at % kTileVectors);
  const std::int64_t row = p.rows.first_row + tile / k_tiles * kTileSide + lane / 4;
  const std::int64_t column = tile % k_tiles * kTileSide + lane % 4 * 4;
  const int bits = code_bits(p.to.grouping.codes);
  std::uint32_t words[2] = {};
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const int pair = e / 2;
    const std::uint32_t code = code_at(p, row + pair % 2 * 8, column + pair / 2 * 2 + e % 2);
    if (bits == 4) {
      words[0] |= code << (4 * pair + 16 * (e % 2));
    } else {
      words[pair / 2] |= code << (8 * (pair % 2) + 16 * (e % 2));
    }
  }
  auto* to = static_cast<std::uint32_t*>(p.to.weight) +
             offset_of_code(bits, row, column, p.to.k) * bits / 32;
  to[0] = words[0];
  if (bits == 8) to[1] = words[1];
}

__global__ void __launch_bounds__(kThreads) pack_codes_kernel(PackParams p, std::int64_t count) {
  grid_dependency_wait();
  const std::int64_t at = std::int64_t{block_index().x} * num_threads() + thread_index();
  if (at >= count) return;
  if (p.to.type == WeightType::kInt8) {
    pack_bytes(p, at);
  } else {
    pack_groups(p, at);
  }
}

__device__ void write_scale(const PackParams& p, std::int64_t index, float scale) {
  void* to = static_cast<unsigned char*>(p.to.weight) + p.layout.scales_at;
  const ElementType type =
      p.to.type == WeightType::kInt8 ? ElementType::kF32 : p.to.grouping.scales;
  if (type == ElementType::kF32) {
    static_cast<float*>(to)[index] = scale;
  } else {
    static_cast<std::uint16_t*>(to)[index] = static_cast<std::uint16_t>(
        type == ElementType::kF16 ? round_pair<F16>(scale, 0.0F) : round_pair<BF16>(scale, 0.0F));
  }
}

// A thread a row and group, also of rows that fill the last tile.
__global__ void __launch_bounds__(kThreads) pack_scales_kernel(PackParams p, std::int64_t count) {
  grid_dependency_wait();
  const std::int64_t at = std::int64_t{block_index().x} * num_threads() + thread_index();
  if (at >= count) return;
  const std::int64_t from = at / p.groups;
  const std::int64_t group = at % p.groups;
  const std::int64_t row = p.rows.first_row + from;
  const bool exists = from < p.rows.count;
  const std::int64_t place =
      p.to.type == WeightType::kInt8
          ? row
          : (row / kTileSide * p.groups + group) * kTileSide + place_of_scale(row);
  write_scale(p, place, exists ? p.rows.scales[at] : 0.0F);
  if (p.to.type != WeightType::kInt8 && p.to.grouping.has_offsets) {
    auto* offsets =
        reinterpret_cast<float*>(static_cast<unsigned char*>(p.to.weight) + p.layout.offsets_at);
    offsets[place] = exists ? p.rows.offsets[at] : 0.0F;
  }
}

// An output a warp: kernels/cpu/pack.cpp.
__global__ void __launch_bounds__(kThreads)
    round_to_int8_kernel(WeightSource source, std::uint8_t* codes, float* scales) {
  grid_dependency_wait();
  const std::int64_t n = std::int64_t{block_index().x} * (num_threads() / kWarpSize) + warp_index();
  if (n >= source.n) return;
  float largest = 0.0F;
  for (std::int64_t k = lane_index(); k < source.k; k += kWarpSize) {
    const float magnitude = fabsf(read_source(source, n, k));
    largest = largest < magnitude ? magnitude : largest;
  }
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(largest, mask);
    largest = largest < other ? other : largest;
  }
  const float inverse = largest > 0.0F ? 127.0F / largest : 0.0F;
  if (lane_index() == 0) scales[n] = largest / 127.0F;
  for (std::int64_t k = lane_index(); k < source.k; k += kWarpSize) {
    // To nearest, ties to even: of the sum, the lowest bits.
    const float shifted = read_source(source, n, k) * inverse + 12582912.0F;  // 1.5 * 2^23
    codes[n * source.k + k] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(shifted));
  }
}

// An output and group a thread: kernels/cpu/pack_groups.cpp.
__global__ void __launch_bounds__(kThreads)
    round_to_int4_kernel(WeightSource source, std::uint8_t* codes, float* scales) {
  grid_dependency_wait();
  constexpr std::int64_t kGroup = Grouping{}.group;
  const std::int64_t groups = ceil_divide<std::int64_t>(source.k, kGroup);
  const std::int64_t at = std::int64_t{block_index().x} * num_threads() + thread_index();
  if (at >= source.n * groups) return;
  const std::int64_t n = at / groups;
  const std::int64_t first = at % groups * kGroup;
  const std::int64_t end = first + kGroup < source.k ? first + kGroup : source.k;
  float largest = 0.0F;
  for (std::int64_t k = first; k < end; ++k) {
    const float value = read_source(source, n, k);
    largest = fabsf(value) > fabsf(largest) ? value : largest;
  }
  constexpr float kScaleMin = 0x1.0p-120F;  // below, there is no inverse in f32
  const float rounded =
      widen<BF16>(static_cast<std::uint16_t>(round_pair<BF16>(largest / -8.0F, 0.0F)));
  const bool is_zero = !(fabsf(rounded) >= kScaleMin);
  const float scale = is_zero ? 1.0F : rounded;
  const float inverse = is_zero ? 0.0F : 1.0F / scale;
  scales[at] = scale;
  for (std::int64_t k = first; k < end; ++k) {
    constexpr float kWholeFrom = 12582912.0F;  // 1.5 * 2^23
    const float shifted = read_source(source, n, k) * inverse + (kWholeFrom + 8.0F);
    const std::int32_t code =
        std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kWholeFrom);
    codes[n * source.k + k] = static_cast<std::uint8_t>(code < 0 ? 0 : code > 15 ? 15 : code);
  }
}

LaunchShape blocks_of(std::int64_t count, std::int64_t each) {
  return {.grid = {static_cast<int>(ceil_divide(count, each))}, .num_threads = kThreads};
}

}  // namespace

std::size_t narrow_weight_bytes(WeightType type, const Grouping& by, std::int64_t n,
                                std::int64_t k) {
  return static_cast<std::size_t>(narrow_layout(type, by, n, k).num_bytes);
}

std::size_t narrow_scratch_bytes(WeightType type, std::int64_t m, std::int64_t n, std::int64_t k) {
  if (type == WeightType::kInt8) {
    constexpr std::int64_t kScaleBytes = 4;
    return static_cast<std::size_t>(num_tiles(m) * kTileSide *
                                    (num_byte_tiles(k) * kByteTileInputs + kScaleBytes));
  }
  const std::int64_t outputs = std::min(num_tiles(n) * kTileSide, outputs_widened_at_once(k));
  return linear_scratch_bytes(ElementType::kBF16, m, k) +
         static_cast<std::size_t>(num_tiles(outputs) * num_tiles(k) * kTileElements * 2);
}

std::size_t narrow_scratch_bytes_max(std::int64_t m, std::int64_t k) {
  // Int8 needs less: half as much for its inputs, and a row's scale.
  const std::int64_t outputs = outputs_widened_at_once(k);
  return linear_scratch_bytes(ElementType::kBF16, m, k + kByteTileInputs) +
         static_cast<std::size_t>(
             std::max(kWidenedBytesMax, num_tiles(outputs) * num_tiles(k) * kTileElements * 2));
}

SplitBytes narrow_split_bytes(WeightType type, std::int64_t m, std::int64_t n, std::int64_t k) {
  return type == WeightType::kInt8 ? int8_split_bytes(m, n, k) : grouped_split_bytes(m, n, k);
}

void narrow_linear(const LinearLaunch& args, WeightType type, const Grouping& by,
                   StreamHandle stream, LinearKernel kernel) {
  if (type == WeightType::kInt8) {
    int8_linear(args, stream, kernel);
  } else {
    grouped_linear(args, type, by, stream, kernel, outputs_widened_at_once(args.k));
  }
}

void pack_coded_rows(const CodedRows& rows, const NarrowTarget& to, StreamHandle stream) {
  const bool is_int8 = to.type == WeightType::kInt8;
  const PackParams p = {.rows = rows,
                        .to = to,
                        .layout = narrow_layout(to.type, to.grouping, to.n, to.k),
                        .groups = is_int8 ? 1 : num_groups(to.grouping, to.k)};
  const std::int64_t tiles = num_tiles(rows.count);
  const std::int64_t lanes =
      tiles * (is_int8 ? num_byte_tiles(to.k) : num_code_tiles(to.k)) * kTileVectors;
  launch<pack_codes_kernel>(blocks_of(lanes, kThreads), stream, p, lanes);
  const std::int64_t scales = tiles * kTileSide * p.groups;
  launch<pack_scales_kernel>(blocks_of(scales, kThreads), stream, p, scales);
}

void round_to_codes(const WeightSource& source, WeightType type, std::uint8_t* codes, float* scales,
                    StreamHandle stream) {
  if (type == WeightType::kInt8) {
    launch<round_to_int8_kernel>(blocks_of(source.n, kThreads / kWarpSize), stream, source, codes,
                                 scales);
  } else {
    const std::int64_t groups = source.n * num_groups({}, source.k);
    launch<round_to_int4_kernel>(blocks_of(groups, kThreads), stream, source, codes, scales);
  }
}

}  // namespace lmtp::kernels::cuda
