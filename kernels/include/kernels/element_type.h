// Element types of tensors in memory.
#pragma once

namespace lmtp::kernels {

// kE4M3 (e4m3.h) is for keys and values.
enum class ElementType { kF32, kF16, kBF16, kE4M3 };

// Bytes of one element.
constexpr int element_size(ElementType type) {
  return type == ElementType::kF32 ? 4 : type == ElementType::kE4M3 ? 1 : 2;
}

}  // namespace lmtp::kernels
