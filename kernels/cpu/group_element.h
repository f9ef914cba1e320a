// A weight by groups (kernels/grouping.h), element by element.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "lmtp/base/half.h"

namespace lmtp::kernels {

// One group of a panel.
struct PanelGroupAt {
  const std::uint32_t* words = nullptr;  // its codes
  const void* scales = nullptr;          // [kPanelColumns]
  const float* offsets = nullptr;        // as scales, or null
};

[[gnu::always_inline]] inline PanelGroupAt panel_group(const PackedLinear& weight,
                                                       std::int64_t panel, std::int64_t group) {
  const Grouping& by = weight.grouping;
  const std::int64_t head = group_head_size(by);
  const std::int64_t words = by.group >= weight.k ? 0 : by.group / codes_per_word(by.codes);
  const auto* at = static_cast<const std::uint32_t*>(weight.panels) +
                   panel * panel_size(weight.k, weight.type, by) +
                   group * (head + kPanelColumns * words);
  const auto* offsets = reinterpret_cast<const float*>(at + head - kPanelColumns);
  return {at + head, at, by.has_offsets ? offsets : nullptr};
}

[[gnu::always_inline]] inline float element_at(const void* from, ElementType type,
                                               std::int64_t index) {
  if (type == ElementType::kF32) return static_cast<const float*>(from)[index];
  const std::uint32_t bits = static_cast<const std::uint16_t*>(from)[index];
  if (type == ElementType::kF16) return half_value(bits);
  const std::uint32_t upper = bits << 16;
  float value = 0.0F;
  __builtin_memcpy(&value, &upper, sizeof(value));
  return value;
}

// The code of e4m3, which is half precision shifted by one bit and divided by 256.
[[gnu::always_inline]] inline float e4m3_value(std::uint32_t code) {
  return half_value(((code & 0x80U) << 8) | ((code & 0x7FU) << 7)) * 256.0F;
}

// The code of e2m1.
[[gnu::always_inline]] inline float e2m1_value(std::uint32_t code) {
  constexpr float kSizes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  return (code & 8U) == 0 ? kSizes[code & 7U] : -kSizes[code & 7U];
}

// Code `index` of a word as a number, less the base.
[[gnu::always_inline]] inline float code_value(const Grouping& by, std::uint32_t word, int index) {
  switch (by.codes) {
    case CodeType::kInt4:
      return static_cast<float>(static_cast<int>((word >> code_shift(index)) & 15U) -
                                code_base(by));
    case CodeType::kInt8:
      return static_cast<float>(static_cast<std::int8_t>(word >> (8 * index)));
    case CodeType::kE4M3:
      return e4m3_value((word >> (8 * index)) & 255U);
    case CodeType::kE2M1:
      return e2m1_value((word >> code_shift(index)) & 15U);
  }
  return 0.0F;
}

// The weight [n, k].
[[gnu::always_inline]] inline float group_element(const PackedLinear& weight, std::int64_t n,
                                                  std::int64_t k) {
  const Grouping& by = weight.grouping;
  const std::int64_t column = n % kPanelColumns;
  const std::int64_t each = codes_per_word(by.codes);
  const std::int64_t index = by.group >= weight.k ? 0 : k / by.group;
  const std::int64_t i = k - index * by.group;
  const PanelGroupAt group = panel_group(weight, n / kPanelColumns, index);
  const std::uint32_t word = group.words[i / each * kPanelColumns + column];
  const float offset = group.offsets == nullptr ? 0.0F : group.offsets[column];
  return __builtin_fmaf(code_value(by, word, static_cast<int>(i % each)),
                        element_at(group.scales, by.scales, column), offset);
}

}  // namespace lmtp::kernels
