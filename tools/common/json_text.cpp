#include "common/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "lmtp/base/json.h"

namespace lmtp::tools {
namespace {

// A string as Python's repr quotes it.
void append_python_string(const std::string& text, std::string& out) {
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  out.push_back(quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out.append({'\\', c});
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\r') {
      out.append("\\r");
    } else if (c == '\t') {
      out.append("\\t");
    } else if (byte < 0x20 || byte == 0x7F) {
      char hex[8];
      std::snprintf(hex, sizeof(hex), "\\x%02x", byte);
      out.append(hex);
    } else {
      out.push_back(c);
    }
  }
  out.push_back(quote);
}

// A float as Python's repr writes it: shortest digits, an exponent below 1e-4 and from 1e16 on.
std::string python_float(double value) {
  char text[40];
  const bool fixed = value == 0 || (std::abs(value) >= 1e-4 && std::abs(value) < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value, format);
  std::string out(text, end);
  if (fixed && out.find('.') == std::string::npos) out += ".0";
  return out;
}

void append_python(const OrderedJson& value, std::string& out) {
  if (value.is_null()) {
    out += "None";
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? "True" : "False";
  } else if (value.is_number_float()) {
    out += python_float(value.get<double>());
  } else if (value.is_string()) {
    append_python_string(value.get_ref<const std::string&>(), out);
  } else if (!value.is_structured()) {
    out += value.dump();
  } else {
    const bool is_object = value.is_object();
    out.push_back(is_object ? '{' : '[');
    bool first = true;
    for (const auto& [key, item] : value.items()) {
      if (!first) out += ", ";
      first = false;
      if (is_object) append_python_string(key, out);
      if (is_object) out += ": ";
      append_python(item, out);
    }
    out.push_back(is_object ? '}' : ']');
  }
}

}  // namespace

std::string python_repr(const std::string& json) {
  const auto value = parse_ordered_json(json, "");
  if (!value) return json;
  std::string out;
  append_python(*value, out);
  return out;
}

std::string indented(const std::string& json) {
  const auto value = parse_ordered_json(json, "");
  return value ? value->dump(2) : json;
}

Result<std::vector<TokenId>> json_ids(const Json& array) {
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (const Json& element : array) {
    const std::int64_t id = element.is_number_integer() ? json_integer(element).value_or(-1) : -1;
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) {
      return Error{ErrorCode::kInvalid, "'" + element.dump() + "' is not a token id"};
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

Result<std::vector<TokenId>> parse_ids(std::string_view json) {
  const auto array = parse_json(json, "");
  if (!array || !array->is_array()) {
    return Error{ErrorCode::kInvalid, "not a JSON array of token ids like [464, 3290]"};
  }
  return json_ids(*array);
}

}  // namespace lmtp::tools
