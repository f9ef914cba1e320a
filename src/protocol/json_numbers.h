// The numbers of messages as JSON.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace lmtp::protocol {

// JSON has no infinities: infinity is written as this number, minus infinity as its negative.
inline constexpr double kJsonInfinity = 1e30;

template <typename Int>
void append_int(Int value, std::string& out) {
  char text[24];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  out.append(text, end);
}

inline constexpr std::size_t kFloatBytesMax = 32;

// Returns the end. REQUIRES: there is room for kFloatBytesMax bytes.
template <std::floating_point Float>
char* write_float(Float value, char* to) {
  constexpr auto kInfinity = static_cast<Float>(kJsonInfinity);
  if (!std::isfinite(value)) value = value > 0 ? kInfinity : -kInfinity;
  char* end = std::to_chars(to, to + kFloatBytesMax, value).ptr;
  // As the reference does, for clients whose language distinguishes 0 from 0.0.
  const std::string_view written(to, static_cast<std::size_t>(end - to));
  if (written.find_first_of(".e") == std::string_view::npos) {
    *end++ = '.';
    *end++ = '0';
  }
  return end;
}

template <std::floating_point Float>
void append_float(Float value, std::string& out) {
  char text[kFloatBytesMax];
  out.append(text, write_float(value, text));
}

}  // namespace lmtp::protocol
