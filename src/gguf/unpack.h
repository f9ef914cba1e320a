// What unpackers of ggml's blocks share, and those of types with a codebook. Any thread.
#pragma once

#include "lmtp/base/half.h"
#include "lmtp/gguf/codes.h"

namespace lmtp::gguf {

// A float16 as it lies in a file.
inline float widen_f16(const unsigned char* from) {
  return half_value(static_cast<std::uint32_t>(from[0] | from[1] << 8));
}

// The codes and scales of one block of 256 elements. False: its scale is no finite number.
bool unpack_iq2_xxs(const unsigned char* from, const Codes& to);
bool unpack_iq2_xs(const unsigned char* from, const Codes& to);
bool unpack_iq2_s(const unsigned char* from, const Codes& to);
bool unpack_iq3_xxs(const unsigned char* from, const Codes& to);
bool unpack_iq3_s(const unsigned char* from, const Codes& to);

}  // namespace lmtp::gguf
