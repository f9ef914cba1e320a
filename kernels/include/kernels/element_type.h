// Element types of tensors in memory.
#pragma once

namespace lmtp::kernels {

enum class ElementType { kF32, kF16, kBF16 };

// Bytes of one element.
constexpr int element_size(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }

}  // namespace lmtp::kernels
