// The codes of ggml's quantised blocks, for kernels that compute with them.
#pragma once

#include <cstdint>
#include <optional>

#include "lmtp/gguf/gguf_file.h"

namespace lmtp::gguf {

// Element = scale * code + offset, rounded once; `group` elements in a row have one scale.
struct CodeLayout {
  int bits = 8;  // 4: codes are 0 to 15, and without offsets they stand for code - 8; 8: signed
  int group = 32;
  bool has_offsets = false;
  bool has_half_scales = false;  // a float16 holds them exactly
  bool is_float = false;         // codes are OCP's E2M1, and scales powers of two
};

// Empty: the type's elements are no codes (F32), or are not known here.
std::optional<CodeLayout> code_layout(const TensorType& type);

// Where codes go: one a byte, and a scale and an offset (null: none) a group.
struct Codes {
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
  float* offsets = nullptr;
};

// Those of num_blocks blocks; scale * code + offset, rounded once, are dequantize()'s bits. False:
// a block's scale is no finite number. REQUIRES: code_layout(type); offsets where it has them.
bool unpack_codes(const TensorType& type, const void* blocks, std::int64_t num_blocks,
                  const Codes& to);

}  // namespace lmtp::gguf
