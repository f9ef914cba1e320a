// From ggml's blocks to float32, in ggml's order of operations (ggml-quants.c): the same bits as
// its own, and as those of the `gguf` package.
#include <bit>
#include <cmath>
#include <cstring>

#include "lmtp/base/check.h"
#include "unpack.h"

namespace lmtp::gguf {
namespace {

constexpr int kSmallBlock = 32;   // elements of the types that are not _K
constexpr int kLargeBlock = 256;  // of the types _K

float widen_bf16(const unsigned char* from) {
  const std::uint32_t bits =
      static_cast<std::uint32_t>(from[0]) << 16 | static_cast<std::uint32_t>(from[1]) << 24;
  return std::bit_cast<float>(bits);
}

// A scale, then 32 signed bytes.
bool unpack_q8_0(const unsigned char* from, const Codes& to) {
  to.scales[0] = widen_f16(from);
  std::memcpy(to.codes, from + 2, kSmallBlock);
  return std::isfinite(to.scales[0]);
}

// 16 bytes of two nibbles: element i's is the lower, element i + 16's the upper one. Fifth bits, if
// there are any, element i's in bit i of 4 bytes.
void unpack_nibbles(const unsigned char* nibbles, const unsigned char* high, std::uint8_t* codes) {
  for (int i = 0; i < kSmallBlock; ++i) {
    int code = nibbles[i % 16] >> (i / 16 * 4) & 0xF;
    if (high != nullptr) code |= (high[i / 8] >> (i % 8) & 1) << 4;
    codes[i] = static_cast<std::uint8_t>(code);
  }
}

// A scale, then nibbles.
bool unpack_q4_0(const unsigned char* from, const Codes& to) {
  to.scales[0] = widen_f16(from);
  unpack_nibbles(from + 2, nullptr, to.codes);
  return std::isfinite(to.scales[0]);
}

// Nibbles of IQ4_NL and IQ4_XS are numbers of these codes.
void widen_nibbles(std::uint8_t* codes) {
  constexpr int kValues[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = static_cast<std::uint8_t>(kValues[codes[i]]);
}

bool unpack_iq4_nl(const unsigned char* from, const Codes& to) {
  const bool is_finite = unpack_q4_0(from, to);
  widen_nibbles(to.codes);
  return is_finite;
}

// A scale; scales of eighths, their upper two bits in 2 bytes and their lower four in 4; nibbles.
bool unpack_iq4_xs(const unsigned char* from, const Codes& to) {
  const float scale = widen_f16(from);
  for (int part = 0; part < 8; ++part) {
    const int high = from[2 + part / 4] >> (part % 4 * 2) & 3;
    const int low = from[4 + part / 2] >> (part % 2 * 4) & 0xF;
    to.scales[part] = scale * static_cast<float>((low | high << 4) - 32);
    unpack_nibbles(from + 8 + part * 16, nullptr, to.codes + part * kSmallBlock);
    widen_nibbles(to.codes + part * kSmallBlock);
  }
  return std::isfinite(scale);
}

// A scale, fifth bits, nibbles.
bool unpack_q5_0(const unsigned char* from, const Codes& to) {
  to.scales[0] = widen_f16(from);
  unpack_nibbles(from + 6, from + 2, to.codes);
  for (int i = 0; i < kSmallBlock; ++i) to.codes[i] = static_cast<std::uint8_t>(to.codes[i] - 16);
  return std::isfinite(to.scales[0]);
}

// A scale and an offset, then as Q4_0 and Q5_0.
bool unpack_q4_1(const unsigned char* from, const Codes& to) {
  to.scales[0] = widen_f16(from);
  to.offsets[0] = widen_f16(from + 2);
  unpack_nibbles(from + 4, nullptr, to.codes);
  return std::isfinite(to.scales[0]) && std::isfinite(to.offsets[0]);
}

bool unpack_q5_1(const unsigned char* from, const Codes& to) {
  to.scales[0] = widen_f16(from);
  to.offsets[0] = widen_f16(from + 2);
  unpack_nibbles(from + 8, from + 4, to.codes);
  return std::isfinite(to.scales[0]) && std::isfinite(to.offsets[0]);
}

// Element `index`'s two bits: 64 bytes, of which each half has those of 128 elements, a byte for
// every 32nd of them.
int pair_of_bits(const unsigned char* from, int index) {
  return from[index / 128 * 32 + index % 32] >> (index % 128 / 32 * 2) & 3;
}

// A byte for 16 elements, its lower half their scale and its upper one their minimum; pairs of
// bits; scale, scale of the minima.
bool unpack_q2_k(const unsigned char* from, const Codes& to) {
  const float scale = widen_f16(from + 80);
  const float min_scale = widen_f16(from + 82);
  for (int part = 0; part < kLargeBlock / 16; ++part) {
    to.scales[part] = scale * static_cast<float>(from[part] & 0xF);
    to.offsets[part] = -(min_scale * static_cast<float>(from[part] >> 4));
  }
  for (int i = 0; i < kLargeBlock; ++i) {
    to.codes[i] = static_cast<std::uint8_t>(pair_of_bits(from + 16, i));
  }
  return std::isfinite(scale) && std::isfinite(min_scale);
}

// Third bits, a byte for every 32nd element; pairs of bits; scales of 16 elements, their lower four
// bits in 8 bytes and their upper two in 4; the block's scale.
bool unpack_q3_k(const unsigned char* from, const Codes& to) {
  const float scale = widen_f16(from + 108);
  for (int part = 0; part < kLargeBlock / 16; ++part) {
    const int low = from[96 + part % 8] >> (part / 8 * 4) & 0xF;
    const int high = from[104 + part % 4] >> (part / 4 * 2) & 3;
    to.scales[part] = scale * static_cast<float>((low | high << 4) - 32);
  }
  for (int i = 0; i < kLargeBlock; ++i) {
    const int high = from[i % 32] >> (i / 32) & 1;
    to.codes[i] = static_cast<std::uint8_t>((pair_of_bits(from + 32, i) | high << 2) - 4);
  }
  return std::isfinite(scale);
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
    to.codes[i] = static_cast<std::uint8_t>((low | pair_of_bits(from + 128, i) << 4) - 32);
  }
  return std::isfinite(scale);
}

// The exponent of a scale, 127 more; nibbles. Scales that are no number, or make none of some
// codes, no quantiser writes.
bool unpack_mxfp4(const unsigned char* from, const Codes& to) {
  constexpr int kExponentMax = 252;
  to.scales[0] = std::ldexp(1.0F, from[0] - 127);
  unpack_nibbles(from + 1, nullptr, to.codes);
  return from[0] <= kExponentMax;
}

float code_number(const CodeLayout& layout, std::uint8_t code) {
  constexpr float kSizes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  if (layout.is_float) return code < 8 ? kSizes[code] : 0.0F - kSizes[code & 7U];
  const int zero = layout.bits == 4 && !layout.has_offsets ? 8 : 0;
  return static_cast<float>(static_cast<std::int8_t>(code) - zero);
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
    {"Q4_1", {.bits = 4, .has_offsets = true, .has_half_scales = true}, unpack_q4_1},
    {"Q5_0", {.has_half_scales = true}, unpack_q5_0},
    {"Q5_1", {.has_offsets = true, .has_half_scales = true}, unpack_q5_1},
    {"IQ4_NL", {.has_half_scales = true}, unpack_iq4_nl},
    {"MXFP4", {.bits = 4, .is_float = true}, unpack_mxfp4},
    {"IQ4_XS", {}, unpack_iq4_xs},
    {"IQ2_XXS", {}, unpack_iq2_xxs},
    {"IQ2_XS", {.group = 16}, unpack_iq2_xs},
    {"IQ2_S", {.group = 16}, unpack_iq2_s},
    {"IQ3_XXS", {}, unpack_iq3_xxs},
    {"IQ3_S", {}, unpack_iq3_s},
    {"Q2_K", {.group = 16, .has_offsets = true}, unpack_q2_k},
    {"Q3_K", {.group = 16}, unpack_q3_k},
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
  std::uint8_t codes[kLargeBlock];
  float scales[kLargeBlock / 16];
  float offsets[kLargeBlock / 16];
  bool all_finite = true;
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    all_finite =
        unpacker->unpack(from + i * type.block_bytes, {codes, scales, offsets}) && all_finite;
    for (std::int64_t j = 0; j < type.block_elements; ++j) {
      const float scale = scales[j / layout.group];
      const float product = scale * code_number(layout, codes[j]);
      *to++ = layout.has_offsets ? product + offsets[j / layout.group] : product;
    }
  }
  return all_finite;
}

}  // namespace lmtp::gguf
