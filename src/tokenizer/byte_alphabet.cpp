#include "byte_alphabet.h"

#include <array>
#include <cstdint>

#include "lmtp/base/utf8.h"

namespace lmtp::tokenizer {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kNumSpelt = 256 + 68;

// By code point: the byte, or -1.
constexpr std::array<std::int16_t, kNumSpelt> make_bytes() {
  std::array<std::int16_t, kNumSpelt> bytes{};
  for (auto& byte : bytes) byte = -1;
  std::size_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const std::size_t code_point =
        stands_for_itself(byte) ? static_cast<std::size_t>(byte) : next++;
    bytes[code_point] = static_cast<std::int16_t>(byte);
  }
  return bytes;
}

constexpr std::array<std::int16_t, kNumSpelt> kBytes = make_bytes();

// By byte: the code point.
constexpr std::array<char32_t, 256> make_spellings() {
  std::array<char32_t, 256> spellings{};
  for (std::size_t c = 0; c < kBytes.size(); ++c) {
    if (kBytes[c] >= 0) spellings[static_cast<std::size_t>(kBytes[c])] = static_cast<char32_t>(c);
  }
  return spellings;
}

constexpr std::array<char32_t, 256> kSpellings = make_spellings();

}  // namespace

bool append_spelt_bytes(std::string_view spelling, std::string& out) {
  const std::size_t size_before = out.size();
  for (std::size_t pos = 0; pos < spelling.size();) {
    const CodePoint point = code_point_at(spelling, pos);
    if (point.value >= kNumSpelt || kBytes[point.value] < 0) {
      out.resize(size_before);
      return false;
    }
    out.push_back(static_cast<char>(kBytes[point.value]));
    pos += point.num_bytes;
  }
  return true;
}

void append_spelling(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) append_utf8(kSpellings[static_cast<unsigned char>(byte)], out);
}

}  // namespace lmtp::tokenizer
