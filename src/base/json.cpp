#include "lmtp/base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace lmtp {
namespace {

constexpr std::size_t kReasonBytesMax = 160;

// A text made valid JSON, with the places where it is longer than the original.
struct PlainText {
  std::string text;
  std::vector<std::size_t> grown;  // ends, in `text`, of parts that are one byte longer
};

std::string position_of(std::string_view text, std::size_t bytes) {
  const std::string_view before = text.substr(0, bytes);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return "line " + std::to_string(line) + ", column " +
         std::to_string(std::max<std::size_t>(bytes - begin, 1));
}

// The library's message without its preamble and without the text read, which may be megabytes.
std::string reason_of(std::string_view what) {
  what.remove_prefix(std::min(what.find("] ") + 2, what.size()));
  const std::size_t colon = what.find(": ");
  if (what.starts_with("parse error") && colon != std::string_view::npos) {
    what.remove_prefix(colon + 2);
  }
  what = what.substr(0, what.find("; last read"));
  return std::string(what.substr(0, kReasonBytesMax));
}

// For a number beyond the range of double, which Python reads as an infinity.
bool is_huge(const std::string& number) {
  constexpr std::size_t kDigitsMax = 300;  // without an exponent; a double holds so many
  const bool may_be = number.size() > kDigitsMax || number.find_first_of("eE") != std::string::npos;
  char* end = nullptr;
  return may_be && std::isinf(std::strtod(number.c_str(), &end)) && *end == '\0';
}

// Copies a string, except for lone surrogates, which Python writes as they are.
void append_string(std::string_view text, std::string& out) {
  constexpr std::size_t kEscapeBytes = 6;  // \ud800
  const auto surrogate = [&](std::size_t at, char from, char to) {
    return text.substr(at).starts_with("\\u") && text.size() >= at + kEscapeBytes &&
           (text[at + 2] | 0x20) == 'd' && (text[at + 3] | 0x20) >= from &&
           (text[at + 3] | 0x20) <= to;
  };
  for (std::size_t i = 0; i < text.size();) {
    const bool is_high = surrogate(i, '8', '9') || surrogate(i, 'a', 'b');
    if (is_high && surrogate(i + kEscapeBytes, 'c', 'f')) {
      out += text.substr(i, 2 * kEscapeBytes);
      i += 2 * kEscapeBytes;
    } else if (is_high || surrogate(i, 'c', 'f')) {
      out += "\\ufffd";
      i += kEscapeBytes;
    } else {
      const std::size_t num_bytes = text[i] == '\\' ? 2 : 1;
      out += text.substr(i, num_bytes);
      i += num_bytes;
    }
  }
}

// As many as it takes to find each of so many keys among those before it.
constexpr std::size_t steps_of(std::size_t num_keys) { return num_keys * (num_keys + 1) / 2; }

// NaN, infinities and numbers beyond the range of double become null, or are refused. So are texts
// nested too deep or with too many values, since functions on a tree of values may recurse, and
// with objects of too many keys where these are ordered.
Result<PlainText> without_nonfinite(std::string_view text, bool is_ordered, NonFinite non_finite) {
  PlainText plain;
  plain.text.reserve(text.size());
  std::vector<std::size_t> keys;  // of each object and list that is open
  std::size_t steps = 0;
  std::size_t values = 1;
  const std::string no_number = "; allowed are finite numbers";
  const auto refuse = [&](std::size_t at, const std::string& why) {
    return Error{ErrorCode::kInvalid, position_of(text, at + 1) + ": " + why};
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const std::size_t begin = i++;
      while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
      append_string(text.substr(begin, i + 1 - begin), plain.text);
      continue;
    }
    bool replaced = false;
    for (const std::string_view name : {"NaN", "Infinity", "-Infinity"}) {
      if (c != name.front() || !text.substr(i).starts_with(name)) continue;
      if (non_finite == NonFinite::kRefused) return refuse(i, std::string(name) + no_number);
      plain.text += "null";
      if (name.size() < 4) plain.grown.push_back(plain.text.size());
      if (name.size() > 4) plain.text.append(name.size() - 4, ' ');
      i += name.size() - 1;
      replaced = true;
    }
    if (replaced) continue;
    if ((c >= '0' && c <= '9') || c == '-') {
      const std::size_t end = text.find_first_not_of("+-.0123456789eE", i);
      const std::string number(text.substr(i, std::min(end, text.size()) - i));
      const bool huge = is_huge(number);
      if (huge && non_finite == NonFinite::kRefused) {
        return refuse(i, "a number that no double holds" + no_number);
      }
      plain.text += huge ? "null" + std::string(number.size() - 4, ' ') : number;
      i += number.size() - 1;
      continue;
    }
    const bool opens = c == '{' || c == '[';
    if (opens) keys.push_back(0);
    if (keys.size() > kJsonDepthMax) {
      return refuse(i, "nested deeper than " + std::to_string(kJsonDepthMax));
    }
    if ((opens || c == ',') && ++values > kJsonValuesMax) {
      return refuse(i, "more than " + std::to_string(kJsonValuesMax) + " values");
    }
    if (c == ':' && is_ordered && !keys.empty()) steps += ++keys.back();
    if (steps > steps_of(kOrderedJsonKeysMax)) {
      return refuse(
          i, "objects with too many keys; one may have " + std::to_string(kOrderedJsonKeysMax));
    }
    if ((c == '}' || c == ']') && !keys.empty()) keys.pop_back();
    plain.text += c;
  }
  return plain;
}

template <typename AnyJson>
Result<AnyJson> parse(std::string_view text, const std::string& origin,
                      NonFinite non_finite = NonFinite::kNull) {
  if (text.size() > kJsonBytesMax) {
    return Error{ErrorCode::kInvalid,
                 origin + ": larger than " + std::to_string(kJsonBytesMax) + " bytes"};
  }
  const auto plain = without_nonfinite(text, std::is_same_v<AnyJson, OrderedJson>, non_finite);
  if (!plain) return Error{plain.error().code, origin + ": " + plain.error().message};
  const auto fail = [&](std::string_view position, const std::string& why) {
    return Error{ErrorCode::kInvalid, origin + ": not JSON: " + std::string(position) + why};
  };
  try {
    return AnyJson::parse(plain->text);
  } catch (const typename AnyJson::parse_error& error) {
    const std::size_t at = error.byte;
    const auto shift = std::count_if(plain->grown.begin(), plain->grown.end(),
                                     [at](std::size_t end) { return end <= at; });
    const std::size_t byte = std::min(at - static_cast<std::size_t>(shift), text.size());
    return fail(position_of(text, byte) + ": ", reason_of(error.what()));
  } catch (const typename AnyJson::exception& error) {  // a number beyond any double
    return fail("", reason_of(error.what()));
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& origin, NonFinite non_finite) {
  return parse<Json>(text, origin, non_finite);
}

Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& origin) {
  return parse<OrderedJson>(text, origin);
}

std::string json_member(std::string_view text, std::string_view key) {
  const auto plain = without_nonfinite(text, false, NonFinite::kNull);
  if (!plain) return {};
  const std::string_view root = plain->text;
  const auto after_string = [&](std::size_t i) {
    while (root[++i] != '"') i += root[i] == '\\' ? 1 : 0;
    return i + 1;
  };
  std::string member;
  for (std::size_t i = 0; (i = root.find('"', i)) != std::string_view::npos;) {
    const std::size_t begin = i;
    i = after_string(i);
    const bool is_it = Json::parse(root.substr(begin, i - begin)) == key;
    i = root.find_first_not_of(" \t\r\n", root.find(':', i) + 1);
    const std::size_t value = i;
    for (int depth = 0; depth > 0 || (root[i] != ',' && root[i] != '}');) {
      depth += root[i] == '{' || root[i] == '[' ? 1 : root[i] == '}' || root[i] == ']' ? -1 : 0;
      i = root[i] == '"' ? after_string(i) : i + 1;
    }
    if (is_it) member = root.substr(value, i - value);
  }
  return member;
}

Result<Json> read_json_file(const std::string& path, std::size_t bytes_max) {
  std::error_code code;
  const auto size = std::filesystem::file_size(path, code);
  if (code) return Error{errno_code(code.value()), path + ": " + code.message()};
  if (size > bytes_max) {
    return Error{ErrorCode::kInvalid,
                 path + ": larger than " + std::to_string(bytes_max) + " bytes"};
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return Error{ErrorCode::kUnavailable, path + ": cannot be read"};
  }
  return parse_json(text, path);
}

Result<Json> parse_json_object(std::string_view text, const std::string& origin,
                               NonFinite non_finite) {
  auto root = parse_json(text, origin, non_finite);
  if (root && !root->is_object()) return Error{ErrorCode::kInvalid, origin + ": not a JSON object"};
  return root;
}

Result<Json> read_json_object(const std::string& path, std::size_t bytes_max) {
  auto root = read_json_file(path, bytes_max);
  if (root && !root->is_object()) return Error{ErrorCode::kInvalid, path + ": not a JSON object"};
  return root;
}

const Json* find_json(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<const Json*> need_json(const Json& object, std::string_view key, const std::string& origin) {
  if (const Json* value = find_json(object, key)) return value;
  const bool is_null = object.is_object() && object.contains(key);
  return Error{ErrorCode::kInvalid,
               origin + ": '" + std::string(key) + "' is " + (is_null ? "null" : "missing")};
}

const std::string* find_json_text(const Json& object, std::string_view key) {
  const Json* value = find_json(object, key);
  return value == nullptr ? nullptr : value->get_ptr<const std::string*>();
}

std::optional<bool> find_json_bool(const Json& object, std::string_view key) {
  const Json* value = find_json(object, key);
  if (value == nullptr || !value->is_boolean()) return std::nullopt;
  return value->get<bool>();
}

std::optional<std::int64_t> json_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > INT64_MAX) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (number < -kEnd || number >= kEnd || std::trunc(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

namespace {

// nlohmann's empty() is false for every text.
template <typename AnyJson>
bool is_empty_value(const AnyJson& value) {
  const auto* text = value.template get_ptr<const std::string*>();
  return text != nullptr ? text->empty() : value.is_structured() && value.empty();
}

}  // namespace

bool is_empty_json(const Json& value) { return is_empty_value(value); }
bool is_empty_json(const OrderedJson& value) { return is_empty_value(value); }

}  // namespace lmtp
