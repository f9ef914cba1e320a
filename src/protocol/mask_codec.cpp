#include "mask_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lmtp::protocol {
namespace {

static_assert(std::endian::native == std::endian::little, "the bytes of a mask are those of words");

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t kGroup = 4;  // digits, which are three bytes
constexpr std::uint32_t kNotADigit = 0xFF000000U;

// For each place of a digit in its group, what it adds to the group's three bytes, the first of
// them lowest: a group is four look-ups.
constexpr auto kBitsOf = [] {
  std::array<std::array<std::uint32_t, 256>, kGroup> bits{};
  for (auto& place : bits) place.fill(kNotADigit);
  for (std::uint32_t value = 0; value < kDigits.size(); ++value) {
    const auto digit = static_cast<unsigned char>(kDigits[value]);
    bits[0][digit] = value << 2;
    bits[1][digit] = value >> 4 | (value & 0xFU) << 12;
    bits[2][digit] = (value >> 2) << 8 | (value & 0x3U) << 22;
    bits[3][digit] = value << 16;
  }
  return bits;
}();

std::uint32_t group_of(const char* digits, std::size_t count) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) bits |= kBitsOf[i][static_cast<unsigned char>(digits[i])];
  return bits;
}

}  // namespace

std::shared_ptr<TokenMask> decode_mask(std::string_view base64) {
  if (base64.size() % kGroup == 0) {
    for (int i = 0; i < 2 && base64.ends_with('='); ++i) base64.remove_suffix(1);
  }
  const std::size_t rest = base64.size() % kGroup;
  if (rest == 1) return nullptr;
  const std::size_t num_bytes = base64.size() / kGroup * 3 + (rest > 0 ? rest - 1 : 0);
  auto mask = std::make_shared<TokenMask>();
  mask->num_bytes = static_cast<int>(num_bytes);
  // A group is written as four bytes, of which the next one overwrites the last.
  mask->words.resize(num_bytes / sizeof(std::uint64_t) + 1);
  auto* const bytes = reinterpret_cast<unsigned char*>(mask->words.data());
  std::uint32_t seen = 0;
  std::size_t at = 0;
  const char* digits = base64.data();
  for (; at + 3 <= num_bytes; at += 3, digits += kGroup) {
    const std::uint32_t bits = group_of(digits, kGroup);
    seen |= bits;
    std::memcpy(bytes + at, &bits, sizeof(bits));
  }
  const std::uint32_t bits = group_of(digits, rest);
  std::memcpy(bytes + at, &bits, num_bytes - at);
  mask->words.resize((num_bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  return ((seen | bits) & kNotADigit) == 0 ? mask : nullptr;
}

bool allows_any(const TokenMask& mask) {
  return std::ranges::any_of(mask.words, [](std::uint64_t word) { return word != 0; });
}

std::string encode_mask(const TokenMask& mask) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(mask.words.data());
  const auto num_bytes = static_cast<std::size_t>(mask.num_bytes);
  std::string out;
  for (std::size_t at = 0; at < num_bytes; at += 3) {
    const std::size_t count = std::min<std::size_t>(num_bytes - at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < count ? bytes[at + i] : 0U);
    for (std::size_t i = 0; i < kGroup; ++i) {
      out.push_back(i <= count ? kDigits[bits >> (18 - 6 * i) & 0x3FU] : '=');
    }
  }
  return out;
}

}  // namespace lmtp::protocol
