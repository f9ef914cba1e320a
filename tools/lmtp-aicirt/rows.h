// Rows of bias in the shared memory, as an engine reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lmtp::aicirt {

// Writes 0 for tokens whose bit is set and `forbidden` for others; no bits at all: all are allowed.
// REQUIRES: the row lies within the memory, at a multiple of 4.
void write_row(std::span<unsigned char> memory, std::size_t first_byte, std::size_t num_elements,
               std::span<const std::uint32_t> mask, std::size_t vocab_size, float forbidden);

// All of the memory from there on.
void fill_rows(std::span<unsigned char> memory, std::size_t first_byte, float value);

}  // namespace lmtp::aicirt
