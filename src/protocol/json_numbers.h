// The numbers of messages as JSON.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

namespace lmtp::protocol {

// JSON has no infinities: infinity is written as this number, minus infinity as its negative.
inline constexpr float kJsonInfinity = 1e30F;

template <typename Int>
void append_int(Int value, std::string& out) {
  char text[24];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  out.append(text, end);
}

inline void append_float(float value, std::string& out) {
  if (!std::isfinite(value)) value = value > 0.0F ? kJsonInfinity : -kJsonInfinity;
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  const std::string_view written(text, static_cast<std::size_t>(end - text));
  out.append(written);
  // As the reference does, for clients whose language distinguishes 0 from 0.0.
  if (written.find_first_of(".e") == std::string_view::npos) out.append(".0");
}

}  // namespace lmtp::protocol
