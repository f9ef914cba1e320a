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

std::string_view without_padding(std::string_view base64) {
  if (base64.size() % kGroup != 0) return base64;
  for (int i = 0; i < 2 && base64.ends_with('='); ++i) base64.remove_suffix(1);
  return base64;
}

// Nothing where there is no such text. `digits`: without padding.
std::optional<std::size_t> num_bytes_of(std::string_view digits) {
  const std::size_t rest = digits.size() % kGroup;
  if (rest == 1) return std::nullopt;
  return digits.size() / kGroup * 3 + (rest > 0 ? rest - 1 : 0);
}

// False where a character is no digit. A group is written as four bytes, of which the next one
// overwrites the last: `bytes` has room for one more than `num_bytes`.
bool decode(std::string_view base64, std::size_t num_bytes, unsigned char* bytes) {
  std::uint32_t seen = 0;
  std::size_t at = 0;
  const char* digits = base64.data();
  for (; at + 3 <= num_bytes; at += 3, digits += kGroup) {
    const std::uint32_t bits = group_of(digits, kGroup);
    seen |= bits;
    std::memcpy(bytes + at, &bits, sizeof(bits));
  }
  const std::uint32_t bits = group_of(digits, base64.size() % kGroup);
  std::memcpy(bytes + at, &bits, num_bytes - at);
  return ((seen | bits) & kNotADigit) == 0;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view base64) {
  const std::string_view digits = without_padding(base64);
  const std::optional<std::size_t> num_bytes = num_bytes_of(digits);
  if (!num_bytes) return std::nullopt;
  std::string bytes(*num_bytes + 1, '\0');
  if (!decode(digits, *num_bytes, reinterpret_cast<unsigned char*>(bytes.data()))) {
    return std::nullopt;
  }
  bytes.pop_back();
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * kGroup);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < kGroup; ++i) {
      out.push_back(i <= count ? kDigits[bits >> (18 - 6 * i) & 0x3FU] : '=');
    }
  }
  return out;
}

std::shared_ptr<TokenMask> decode_mask(std::string_view base64) {
  const std::string_view digits = without_padding(base64);
  const std::optional<std::size_t> num_bytes = num_bytes_of(digits);
  if (!num_bytes) return nullptr;
  auto mask = std::make_shared<TokenMask>();
  mask->num_bytes = static_cast<int>(*num_bytes);
  mask->words.resize(*num_bytes / sizeof(std::uint64_t) + 1);
  auto* const bytes = reinterpret_cast<unsigned char*>(mask->words.data());
  if (!decode(digits, *num_bytes, bytes)) return nullptr;
  mask->words.resize((*num_bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  return mask;
}

bool allows_any(const TokenMask& mask) {
  return std::ranges::any_of(mask.words, [](std::uint64_t word) { return word != 0; });
}

std::string encode_mask(const TokenMask& mask) {
  return encode_base64(
      {reinterpret_cast<const char*>(mask.words.data()), static_cast<std::size_t>(mask.num_bytes)});
}

}  // namespace lmtp::protocol
