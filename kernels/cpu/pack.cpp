#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/linear.h"

namespace lmtp::kernels {
namespace {

float read_f32(const unsigned char* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

float read_bf16(const unsigned char* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// IEEE half precision, subnormals, infinities and NaN included.
float read_f16(const unsigned char* at) {
  std::uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  // The exponent is moved to f32's by a multiplication, which puts subnormals right as well.
  constexpr std::uint32_t kScaleBits = (254U - 15U) << 23;
  const float scaled = std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(kScaleBits);
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t special = (magnitude << 13) | 0x7F800000U;
  return std::bit_cast<float>(sign | (magnitude >= 0x7C00U ? special : finite));
}

template <float (*kRead)(const unsigned char*), int kSize>
void convert(const unsigned char* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = kRead(from + i * kSize);
  }
}

void convert_range(const void* from, ElementType type, std::int64_t first, std::int64_t count,
                   float* to) {
  const auto* bytes = static_cast<const unsigned char*>(from) + first * element_size(type);
  switch (type) {
    case ElementType::kF32:
      convert<read_f32, 4>(bytes, count, to);
      return;
    case ElementType::kF16:
      convert<read_f16, 2>(bytes, count, to);
      return;
    case ElementType::kBF16:
      convert<read_bf16, 2>(bytes, count, to);
      return;
  }
}

// Inputs that are transposed at a time: 32 rows of so many floats stay in the L1 cache.
constexpr std::int64_t kInputsAtATime = 64;

void pack_outputs_by_inputs(const SourceWeight& source, std::int64_t panel, float* to) {
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, source.n - first);
  float part[kPanelColumns][kInputsAtATime] = {};
  for (std::int64_t k = 0; k < source.k; k += kInputsAtATime) {
    const std::int64_t count = std::min(kInputsAtATime, source.k - k);
    for (std::int64_t column = 0; column < columns; ++column) {
      convert_range(source.data, source.type, (first + column) * source.k + k, count, part[column]);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t column = 0; column < kPanelColumns; ++column) {
        to[(k + i) * kPanelColumns + column] = part[column][i];
      }
    }
  }
}

void pack_inputs_by_outputs(const SourceWeight& source, std::int64_t panel, float* to) {
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, source.n - first);
  for (std::int64_t k = 0; k < source.k; ++k, to += kPanelColumns) {
    convert_range(source.data, source.type, k * source.n + first, columns, to);
    std::fill(to + columns, to + kPanelColumns, 0.0F);
  }
}

}  // namespace

void pack_linear_f32(WorkerPool& pool, const SourceWeight& source, float* panels) {
  LMTP_CHECK(source.data != nullptr && source.n > 0 && source.k > 0, source.n, source.k);
  const std::int64_t num_panels = (source.n + kPanelColumns - 1) / kPanelColumns;
  pool.parallel_for(static_cast<int>(num_panels), [&](int panel, int) {
    float* to = panels + panel * source.k * kPanelColumns;
    if (source.order == WeightOrder::kOutputsByInputs) {
      pack_outputs_by_inputs(source, panel, to);
    } else {
      pack_inputs_by_outputs(source, panel, to);
    }
  });
}

void convert_to_f32(const void* from, ElementType type, std::int64_t count, float* to) {
  convert_range(from, type, 0, count, to);
}

}  // namespace lmtp::kernels
