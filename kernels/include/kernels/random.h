// Random tensors. Each element is a function of a key and its index alone, so that the host and a
// device generate the same bits.
#pragma once

#include <cstdint>

#include "kernels/element_type.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

struct RandomTensor {
  std::uint64_t key = 0;
  float mean = 0.0F;
  float deviation = 0.0F;                // 0: every element is the mean
  ElementType type = ElementType::kF32;  // what elements are rounded to; not kF16
};

// SplitMix64's output function (Steele, Lea, Flood 2014).
constexpr std::uint64_t mix_bits(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// Approximately standard normal: the sum of four uniform integers, which is exact on every machine.
constexpr float standard_normal(std::uint64_t bits) {
  const auto sum = static_cast<std::int32_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                             ((bits >> 32) & 0xFFFF) + (bits >> 48));
  // Four uniform numbers over [0, 65536) have the mean 131070 and the deviation 65536 sqrt(4 / 12).
  constexpr float kInverseDeviation = 1.0F / 37837.227F;
  return static_cast<float>(sum - 131070) * kInverseDeviation;
}

// An element before it is rounded. REQUIRES: compiled without contraction (-ffp-contract=off,
// -fmad=false), as kernels are.
constexpr float random_element(const RandomTensor& tensor, std::int64_t index) {
  if (tensor.deviation == 0.0F) return tensor.mean;
  const std::uint64_t bits = mix_bits(tensor.key + static_cast<std::uint64_t>(index));
  return tensor.mean + tensor.deviation * standard_normal(bits);
}

// The elements [first, first + count).
struct FillRandomArgs {
  RandomTensor tensor;
  std::int64_t first = 0;
  std::int64_t count = 0;
  void* to = nullptr;  // [count] of tensor.type
};

// On the host; `to` may be unaligned. Any thread.
void fill_random(const FillRandomArgs& args);

// Where the ops of the stream run; `to` is in that memory, aligned to its type.
void fill_random(Stream& stream, const FillRandomArgs& args);

}  // namespace lmtp::kernels
