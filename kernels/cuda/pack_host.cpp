// Packing by the host: the twin of pack.cuh.
#include <bit>
#include <cstring>
#include <vector>

#include "cuda/fragment_tile.h"
#include "cuda/linear.h"

namespace lmtp::kernels::cuda {
namespace {

// To nearest, ties to even.
std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(value == value ? rounded : 0x7FFFU);
}

std::uint16_t f16_bits(float value) {
  constexpr std::uint32_t kMagnitude = 0x7FFFFFFFU;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & ~kMagnitude) >> 16;
  const float magnitude = std::bit_cast<float>(bits & kMagnitude);
  std::uint32_t half = 0;
  if (value != value) return 0x7FFFU;
  if (magnitude >= 65520.0F) {  // half way beyond the largest
    half = 0x7C00U;
  } else if (magnitude < 0x1p-14F) {
    // A subnormal counts 2^-24, the last bit of what lies from 0.5 on.
    half = std::bit_cast<std::uint32_t>(magnitude + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  } else {
    half = ((bits & kMagnitude) + 0xFFFU + ((bits >> 13) & 1U) - (112U << 23)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

// Row n of the source as f32.
void read_row(const WeightSource& source, std::int64_t n, std::vector<float>& row) {
  const std::int64_t size = element_size(source.type);
  const auto* bytes = static_cast<const unsigned char*>(source.data) + n * source.row_stride * size;
  if (source.column_stride == 1) {
    convert_to_f32(bytes, source.type, source.k, row.data());
    return;
  }
  for (std::int64_t k = 0; k < source.k; ++k) {
    convert_to_f32(bytes + k * source.column_stride * size, source.type, 1, row.data() + k);
  }
}

}  // namespace

void pack_weight_on_host(const WeightSource& source, const WeightTarget& to) {
  std::vector<float> values(static_cast<std::size_t>(source.k));
  for (std::int64_t n = 0; n < source.n; ++n) {
    read_row(source, n, values);
    const std::int64_t row = to.target_rows != nullptr ? to.target_rows[n] : to.first_row + n;
    for (std::int64_t k = 0; k < source.k; ++k) {
      const float value = values[static_cast<std::size_t>(k)];
      if (to.type == ElementType::kF32) {
        static_cast<float*>(to.weight)[row / kPanelColumns * kPanelColumns * source.k +
                                       k * kPanelColumns + row % kPanelColumns] = value;
      } else {
        static_cast<std::uint16_t*>(to.weight)[place_in_matrix(row, k, source.k)] =
            to.type == ElementType::kBF16 ? bf16_bits(value) : f16_bits(value);
      }
    }
  }
}

}  // namespace lmtp::kernels::cuda
