// The pieces of messages as JSON. Without a library: a token's entry is a few numbers, and there
// are thousands of them a second.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/json.h"
#include "lmtp/base/text.h"

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

inline void append_key(std::string_view key, std::string& out) {
  out.append(out.back() == '{' ? "\"" : ", \"").append(key).append("\": ");
}

template <typename Items, typename Append>
void append_array(const Items& items, std::string& out, Append append) {
  out.push_back('[');
  bool first = true;
  for (const auto& item : items) {
    if (!first) out.append(", ");
    first = false;
    append(item);
  }
  out.push_back(']');
}

inline void append_ids(const std::vector<TokenId>& tokens, std::string& out) {
  append_array(tokens, out, [&](TokenId token) { append_int(token, out); });
}

inline void append_tokens(std::string_view key, const std::vector<TokenId>& tokens,
                          std::string& out) {
  append_key(key, out);
  append_ids(tokens, out);
}

inline void append_string(std::string_view key, std::string_view text, std::string& out) {
  append_key(key, out);
  append_json_string(text, out);
}

inline void append_bool(std::string_view key, bool value, std::string& out) {
  append_key(key, out);
  out.append(value ? "true" : "false");
}

inline void append_count(std::string_view key, std::int64_t value, std::string& out) {
  append_key(key, out);
  append_int(value, out);
}

}  // namespace lmtp::protocol
