// Rows of bias in the shared memory, as the bits that Branch::mask has. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::aici {

// Where rows of f32 are in the memory.
struct RowPlaces {
  std::size_t first_byte = 0;
  std::size_t row_bytes = 0;
  std::size_t row_elements = 0;
};

// The bits of what a row allows, 0 or more being allowed; [ceil(vocab_size / 32)], none beyond
// what the row has. All zero where it allows nothing. The error, kUnavailable: the row is not
// within the memory.
Result<std::vector<std::uint32_t>> read_row(std::span<const std::byte> memory,
                                            const RowPlaces& places, std::size_t row,
                                            int vocab_size);

bool allows_any(std::span<const std::uint32_t> words);
bool allows_all(std::span<const std::uint32_t> words, int vocab_size);

}  // namespace lmtp::aici
