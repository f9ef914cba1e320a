#include "rows.h"

#include <cstring>

namespace lmtp::aicirt {

void write_row(std::span<unsigned char> memory, std::size_t first_byte, std::size_t num_elements,
               std::span<const std::uint32_t> mask, std::size_t vocab_size, float forbidden) {
  unsigned char* to = memory.data() + first_byte;
  for (std::size_t token = 0; token < num_elements; ++token, to += sizeof(float)) {
    bool allowed = token < vocab_size;
    if (allowed && !mask.empty()) {
      allowed = token / 32 < mask.size() && (mask[token / 32] >> (token % 32) & 1U) != 0;
    }
    const float bias = allowed ? 0.0F : forbidden;
    std::memcpy(to, &bias, sizeof(bias));
  }
}

void fill_rows(std::span<unsigned char> memory, std::size_t first_byte, float value) {
  // It counts bytes. NOLINTNEXTLINE(bugprone-float-loop-counter)
  for (std::size_t at = first_byte; at + sizeof(value) <= memory.size(); at += sizeof(value)) {
    std::memcpy(memory.data() + at, &value, sizeof(value));
  }
}

}  // namespace lmtp::aicirt
