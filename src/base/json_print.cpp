#include <cmath>
#include <nlohmann/json.hpp>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"

namespace lmtp {
namespace {

void append_escaped(char c, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr std::string_view kShort = "\"\\\n\r\t";
  constexpr std::string_view kLetters = "\"\\nrt";
  const auto byte = static_cast<unsigned char>(c);
  if (const std::size_t at = kShort.find(c); at != std::string_view::npos) {
    out += {'\\', kLetters[at]};
  } else if (byte < 0x20U) {
    out += {'\\', 'u', '0', '0', kHex[byte >> 4U], kHex[byte & 15U]};
  } else {
    out.push_back(c);
  }
}

void append_json(const OrderedJson& value, std::string& out) {
  if (value.is_string()) {
    append_json_string(value.get_ref<const std::string&>(), out);
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    out += std::isfinite(number) ? number_text(number) : "null";
  } else if (!value.is_structured()) {
    out += value.dump();
  } else {
    const bool is_object = value.is_object();
    out.push_back(is_object ? '{' : '[');
    bool first = true;
    for (const auto& [key, item] : value.items()) {
      if (!first) out += ", ";
      first = false;
      if (is_object) append_json_string(key, out);
      if (is_object) out += ": ";
      append_json(item, out);
    }
    out.push_back(is_object ? '}' : ']');
  }
}

}  // namespace

std::string json_text(const OrderedJson& value) {
  std::string out;
  append_json(value, out);
  return out;
}

void append_json_string(std::string_view text, std::string& out) {
  // A file's name may be any bytes, but a WebSocket text frame must be UTF-8.
  const bool valid = is_utf8(text);
  out.push_back('"');
  for (const char c : text) {
    if (!valid && static_cast<unsigned char>(c) >= 0x80U) {
      out.append(kReplacement);
    } else {
      append_escaped(c, out);
    }
  }
  out.push_back('"');
}

}  // namespace lmtp
