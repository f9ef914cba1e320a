// Weights as narrow codes: of an output, `group` inputs in a row share a scale.
#pragma once

#include <cstdint>

#include "kernels/element_type.h"

namespace lmtp::kernels {

// kInt4: 0 to 15. kInt8: -128 to 127. kE4M3: fp8 with 4 bits of exponent (OCP's E4M3FN). kE2M1:
// fp4 (OCP's E2M1): 0, 0.5, 1, 1.5, 2, 3, 4, 6, and from 8 on the same below 0.
enum class CodeType { kInt4, kInt8, kE4M3, kE2M1 };

// A weight is scale * code + offset, or without offsets scale * code, where kInt4 stands for
// code - 8. Rounded once.
struct Grouping {
  CodeType codes = CodeType::kInt4;
  // A multiple of kGroupMin; of k or more: an output has one scale. The last group may be shorter.
  std::int64_t group = 32;
  ElementType scales = ElementType::kBF16;  // as they are kept
  bool has_offsets = false;                 // kept as f32
  // On a device: what weights are rounded to when they are widened, and inputs with them. kBF16 or
  // kF16.
  ElementType widened_to = ElementType::kBF16;
};

inline constexpr std::int64_t kGroupMin = 16;
// Groups of integer products.
constexpr bool is_int4_group(std::int64_t group) {
  return group == 32 || group == 64 || group == 128;
}
// Packed inputs are filled up to a multiple of this.
inline constexpr std::int64_t kInputsOfBlock = 32;

constexpr int code_bits(CodeType codes) {
  return codes == CodeType::kInt4 || codes == CodeType::kE2M1 ? 4 : 8;
}
constexpr std::int64_t codes_per_word(CodeType codes) { return 32 / code_bits(codes); }

// What kInt4 without offsets is less than its code.
constexpr int code_base(const Grouping& grouping) {
  return grouping.codes == CodeType::kInt4 && !grouping.has_offsets ? 8 : 0;
}

// Where a word of 4-bit codes has the code of input `index`, below 8: of four inputs the lower
// halves of its bytes, of the next four the upper ones.
constexpr int code_shift(int index) { return index < 4 ? 8 * index : 8 * (index - 4) + 4; }

constexpr std::int64_t padded_inputs(std::int64_t k) {
  return (k + kInputsOfBlock - 1) / kInputsOfBlock * kInputsOfBlock;
}
constexpr std::int64_t num_groups(const Grouping& grouping, std::int64_t k) {
  return grouping.group >= k ? 1 : (k + grouping.group - 1) / grouping.group;
}

}  // namespace lmtp::kernels
