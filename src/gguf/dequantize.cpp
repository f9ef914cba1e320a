// From ggml's blocks to float32, in ggml's order of operations (ggml-quants.c): the same bits as
// its own, and as those of the `gguf` package.
#include <bit>
#include <cmath>
#include <cstring>

#include "lmtp/base/check.h"
#include "lmtp/base/half.h"
#include "lmtp/gguf/codes.h"

namespace lmtp::gguf {
namespace {

constexpr int kSmallBlock = 32;   // elements of Q4_0 and Q8_0
constexpr int kLargeBlock = 256;  // of the types _K

float widen_bf16(const unsigned char* from) {
  const std::uint32_t bits =
      static_cast<std::uint32_t>(from[0]) << 16 | static_cast<std::uint32_t>(from[1]) << 24;
  return std::bit_cast<float>(bits);
}

float widen_f16(const unsigned char* from) {
  return half_value(static_cast<std::uint32_t>(from[0] | from[1] << 8));
}

// A scale, then 32 signed bytes.
bool unpack_q8_0(const unsigned char* from, const Codes& to) {
  to.scales[0] = widen_f16(from);
  std::memcpy(to.codes, from + 2, kSmallBlock);
  return std::isfinite(to.scales[0]);
}

// A scale, then 16 bytes of two nibbles: element i's is the lower, element i + 16's the upper one.
bool unpack_q4_0(const unsigned char* from, const Codes& to) {
  to.scales[0] = widen_f16(from);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    to.codes[i] = from[2 + i] & 0xF;
    to.codes[i + kSmallBlock / 2] = from[2 + i] >> 4;
  }
  return std::isfinite(to.scales[0]);
}

// Scale and minimum of the eighth `part` of a block of Q4_K or Q5_K, six bits each in 12 bytes.
struct ScaleAndMin {
  int scale;
  int min;
};
ScaleAndMin scale_and_min(const unsigned char* packed, int part) {
  if (part < 4) return {packed[part] & 0x3F, packed[part + 4] & 0x3F};
  return {(packed[part + 4] & 0xF) | (packed[part - 4] >> 6 << 4),
          (packed[part + 4] >> 4) | (packed[part] >> 6 << 4)};
}

// Scale, scale of the minima, 12 bytes of both by eighths; Q5_K's fifth bits, a byte for each
// element of an eighth; nibbles, those of two eighths in 32 bytes.
bool unpack_k(const unsigned char* from, const unsigned char* high, const unsigned char* nibbles,
              const Codes& to) {
  const float scale = widen_f16(from);
  const float min_scale = widen_f16(from + 2);
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMin packed = scale_and_min(from + 4, part);
    to.scales[part] = scale * static_cast<float>(packed.scale);
    to.offsets[part] = -(min_scale * static_cast<float>(packed.min));
    for (int i = 0; i < kSmallBlock; ++i) {
      int code = nibbles[part / 2 * kSmallBlock + i] >> (part % 2 * 4) & 0xF;
      if (high != nullptr) code |= (high[i] >> part & 1) << 4;
      to.codes[part * kSmallBlock + i] = static_cast<std::uint8_t>(code);
    }
  }
  return std::isfinite(scale) && std::isfinite(min_scale);
}

bool unpack_q4_k(const unsigned char* from, const Codes& to) {
  return unpack_k(from, nullptr, from + 16, to);
}

bool unpack_q5_k(const unsigned char* from, const Codes& to) {
  return unpack_k(from, from + 16, from + 48, to);
}

// Two halves of 128 elements: 64 bytes of lower nibbles, 32 of upper pairs of bits; scales, one for
// 16 elements; the block's scale behind all.
bool unpack_q6_k(const unsigned char* from, const Codes& to) {
  const float scale = widen_f16(from + 208);
  for (int part = 0; part < kLargeBlock / 16; ++part) {
    to.scales[part] = scale * static_cast<float>(static_cast<std::int8_t>(from[192 + part]));
  }
  for (int i = 0; i < kLargeBlock; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int low = from[half * 64 + quarter % 2 * 32 + i % 32] >> (quarter / 2 * 4) & 0xF;
    const int high = from[128 + half * 32 + i % 32] >> (quarter * 2) & 3;
    to.codes[i] = static_cast<std::uint8_t>((low | high << 4) - 32);
  }
  return std::isfinite(scale);
}

struct Unpacker {
  std::string_view name;
  CodeLayout layout;
  bool (*unpack)(const unsigned char* from, const Codes& to);  // null: elements are no codes
};
constexpr Unpacker kUnpackers[] = {
    {"F32", {}, nullptr},
    {"F16", {}, nullptr},
    {"BF16", {}, nullptr},
    {"Q8_0", {.has_half_scales = true}, unpack_q8_0},
    {"Q4_0", {.bits = 4, .has_half_scales = true}, unpack_q4_0},
    {"Q4_K", {.bits = 4, .has_offsets = true}, unpack_q4_k},
    {"Q5_K", {.has_offsets = true}, unpack_q5_k},
    {"Q6_K", {.group = 16}, unpack_q6_k},
};

const Unpacker* find_unpacker(const TensorType& type) {
  for (const Unpacker& unpacker : kUnpackers) {
    if (unpacker.name == type.name) return &unpacker;
  }
  return nullptr;
}

void widen(const TensorType& type, const unsigned char* from, std::int64_t count, float* to) {
  if (type.name == "F32") {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const bool is_bf16 = type.name == "BF16";
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = is_bf16 ? widen_bf16(from + 2 * i) : widen_f16(from + 2 * i);
  }
}

}  // namespace

std::optional<CodeLayout> code_layout(const TensorType& type) {
  const Unpacker* unpacker = find_unpacker(type);
  if (unpacker == nullptr || unpacker->unpack == nullptr) return std::nullopt;
  return unpacker->layout;
}

bool unpack_codes(const TensorType& type, const void* blocks, std::int64_t num_blocks,
                  const Codes& to) {
  const Unpacker* unpacker = find_unpacker(type);
  LMTP_CHECK(unpacker != nullptr && unpacker->unpack != nullptr, type.id);
  const auto* from = static_cast<const unsigned char*>(blocks);
  const std::int64_t num_groups = type.block_elements / unpacker->layout.group;
  bool all_finite = true;
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    const Codes part = {.codes = to.codes + i * type.block_elements,
                        .scales = to.scales + i * num_groups,
                        .offsets = to.offsets == nullptr ? nullptr : to.offsets + i * num_groups};
    all_finite = unpacker->unpack(from + i * type.block_bytes, part) && all_finite;
  }
  return all_finite;
}

bool can_dequantize(const TensorType& type) { return find_unpacker(type) != nullptr; }

// A product of a scale and a code has no more bits than a float: what is rounded is the sum alone,
// or where there is no offset, in Q6_K, the product alone.
bool dequantize(const TensorType& type, const void* blocks, std::int64_t num_blocks, float* to) {
  const Unpacker* unpacker = find_unpacker(type);
  LMTP_CHECK(unpacker != nullptr, type.id);
  const auto* from = static_cast<const unsigned char*>(blocks);
  if (unpacker->unpack == nullptr) {
    widen(type, from, num_blocks, to);
    return true;
  }
  const CodeLayout& layout = unpacker->layout;
  const int zero = layout.bits == 4 && !layout.has_offsets ? 8 : 0;
  std::uint8_t codes[kLargeBlock];
  float scales[kLargeBlock / 16];
  float offsets[kLargeBlock / 16];
  bool all_finite = true;
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    all_finite =
        unpacker->unpack(from + i * type.block_bytes, {codes, scales, offsets}) && all_finite;
    for (std::int64_t j = 0; j < type.block_elements; ++j) {
      const float scale = scales[j / layout.group];
      const float product = scale * static_cast<float>(static_cast<std::int8_t>(codes[j]) - zero);
      *to++ = layout.has_offsets ? product + offsets[j / layout.group] : product;
    }
  }
  return all_finite;
}

}  // namespace lmtp::gguf
