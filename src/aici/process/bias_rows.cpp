#include "process/bias_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace lmtp::aici {

Result<std::vector<std::uint32_t>> read_row(std::span<const std::byte> memory,
                                            const RowPlaces& places, std::size_t row,
                                            int vocab_size) {
  const auto num = std::min(places.row_elements, static_cast<std::size_t>(vocab_size));
  const std::size_t first = places.first_byte + row * places.row_bytes;
  const bool is_within = first <= memory.size() && (memory.size() - first) / sizeof(float) >= num;
  if (!is_within || places.row_elements * sizeof(float) > places.row_bytes) {
    return Error{ErrorCode::kUnavailable, "the runtime's answer: row " + std::to_string(row) +
                                              " is not within the memory of biases"};
  }
  std::vector<std::uint32_t> words((static_cast<std::size_t>(vocab_size) + 31) / 32);
  const std::byte* const from = memory.data() + first;
  for (std::size_t i = 0; i < num; ++i) {
    float bias = 0;
    std::memcpy(&bias, from + i * sizeof(float), sizeof(float));
    words[i / 32] |= static_cast<std::uint32_t>(bias >= 0) << (i % 32);
  }
  return words;
}

bool allows_any(std::span<const std::uint32_t> words) {
  return std::ranges::any_of(words, [](std::uint32_t word) { return word != 0; });
}

bool allows_all(std::span<const std::uint32_t> words, int vocab_size) {
  std::size_t num = 0;
  for (const std::uint32_t word : words) num += static_cast<std::size_t>(std::popcount(word));
  return num == static_cast<std::size_t>(vocab_size);
}

}  // namespace lmtp::aici
