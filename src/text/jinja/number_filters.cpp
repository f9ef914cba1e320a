// Filters and methods of numbers, and how texts are read as such.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "builtins.h"

namespace lmtp::jinja {
namespace {

bool is_alnum_ascii(char32_t marked) {
  const char32_t c = code_point(marked);
  return c < 0x80 && (is_alpha(c) || is_decimal(c));
}

// ASCII, without white space around and without the _ that may stand between digits. nullopt: it
// can be no number.
std::optional<std::string> number_text(TextView text) {
  std::string plain;
  const TextView stripped = strip(text, Ends::kBoth);
  for (std::size_t i = 0; i < stripped.size(); ++i) {
    const char32_t c = code_point(stripped[i]);
    if (c == U'_') {
      const bool is_between = i > 0 && i + 1 < stripped.size() && is_alnum_ascii(stripped[i - 1]) &&
                              is_alnum_ascii(stripped[i + 1]);
      if (!is_between) return std::nullopt;
    } else if (c < 0x80) {
      plain += static_cast<char>(c);
    } else {
      return std::nullopt;
    }
  }
  if (plain.empty()) return std::nullopt;
  return plain;
}

Value int_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("int", given, {"value", "default", "base"}, 1);
  Value otherwise = bound[1] == nullptr ? Value(Int(0)) : *bound[1];
  const Value& value = *bound[0];
  if (const auto whole = get_int(value)) return *whole;
  std::optional<double> number;
  if (const Text* text = get_text(value)) {
    if (const auto whole = read_int(*text, static_cast<int>(int_or(bound[2], 10)))) return *whole;
    number = read_float(*text);
    if (number && std::isinf(*number)) return otherwise;
  } else if (const double* given_number = as<double>(value)) {
    number = *given_number;
    if (std::isinf(*number)) throw TemplateError("cannot convert float infinity to integer");
  } else if (const Undefined* undefined = as<Undefined>(value)) {
    throw_undefined(*undefined);
  }
  if (!number || std::isnan(*number)) return otherwise;
  return Int(std::trunc(*number));
}

Value float_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("float", given, {"value", "default"}, 1);
  const Value& value = *bound[0];
  if (is<double>(value)) return value;
  if (const auto whole = get_int(value)) return to_double(*whole);
  if (const Undefined* undefined = as<Undefined>(value)) throw_undefined(*undefined);
  if (const Text* text = get_text(value)) {
    if (const auto number = read_float(*text)) return *number;
  }
  return bound[1] == nullptr ? Value(0.0) : *bound[1];
}

Value abs_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("abs", given, {"x"}, 1);
  if (const auto whole = get_int(*bound[0])) return Int(abs(*whole));
  if (const double* number = as<double>(*bound[0])) return std::fabs(*number);
  if (const Undefined* undefined = as<Undefined>(*bound[0])) throw_undefined(*undefined);
  throw TemplateError("bad operand type for abs(): '" + type_name(*bound[0]) + "'");
}

// To the nearest, halves to the even one, as Python's round().
double rounded(double number, std::int64_t precision) {
  if (!std::isfinite(number) || precision > 323) return number;
  if (precision < -308) return std::copysign(0.0, number);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(number / unit) * unit;
  }
  std::array<char, 700> text{};
  std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), number);
  return std::strtod(text.data(), nullptr);
}

Value round_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("round", given, {"value", "precision", "method"}, 1);
  const std::int64_t precision = int_or(bound[1], 0);
  const std::string method = utf8_of(text_or(bound[2], U"common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    throw TemplateError("method must be common, ceil or floor");
  }
  if (const Undefined* undefined = as<Undefined>(*bound[0])) throw_undefined(*undefined);
  const double* number = as<double>(*bound[0]);
  const auto whole = get_int(*bound[0]);
  if (number == nullptr && !whole) {
    throw TemplateError("type " + type_name(*bound[0]) + " has no method to be rounded by");
  }
  if (method == "common") {
    if (number != nullptr) return rounded(*number, precision);
    if (precision >= 0) return *whole;
    if (precision < -1000) return Int(0);
    const Int unit = pow(Int(10), static_cast<unsigned>(-precision));
    const Value quotient = binary("//", *whole, unit);
    const Int twice = (*whole - *get_int(quotient) * unit) * 2;
    const bool is_up = twice > unit || (twice == unit && *get_int(quotient) % 2 != 0);
    return Int((*get_int(quotient) + (is_up ? 1 : 0)) * unit);
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = (number != nullptr ? *number : to_double(*whole)) * unit;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

}  // namespace

std::optional<Int> read_int(TextView text, int base) {
  const auto read = number_text(text);
  if (!read) return std::nullopt;
  std::string_view digits = *read;
  const bool is_negative = digits.starts_with('-');
  if (is_negative || digits.starts_with('+')) digits.remove_prefix(1);
  const auto prefixed = [&](char name, int its) {
    if (digits.size() < 3 || digits[0] != '0' || (digits[1] | 0x20) != name) return false;
    if (base != its && base != 0) return false;
    digits.remove_prefix(2);
    base = its;
    return true;
  };
  if (!prefixed('x', 16) && !prefixed('o', 8) && !prefixed('b', 2) && base == 0) base = 10;
  if (digits.empty() || base < 2 || base > 36) return std::nullopt;
  Int number = 0;
  for (const char c : digits) {
    const int small = c | 0x20;
    const int digit = c >= '0' && c <= '9'           ? c - '0'
                      : small >= 'a' && small <= 'z' ? small - 'a' + 10
                                                     : 99;
    if (digit >= base) return std::nullopt;
    number = number * base + digit;
  }
  return is_negative ? Int(-number) : number;
}

std::optional<double> read_float(TextView text) {
  const auto read = number_text(text);
  if (!read) return std::nullopt;
  std::string small = *read;
  std::ranges::transform(small, small.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  });
  const std::size_t sign = small[0] == '-' || small[0] == '+' ? 1 : 0;
  const std::string_view size = std::string_view(small).substr(sign);
  const bool is_name = size == "nan" || size == "inf" || size == "infinity";
  if (!is_name && size.find_first_not_of("0123456789.e+-") != std::string_view::npos) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double number = std::strtod(small.c_str(), &end);
  if (size.empty() || end != small.c_str() + small.size()) return std::nullopt;
  return number;
}

std::int64_t int_or(const Value* value, std::int64_t otherwise) {
  if (value == nullptr || is<None>(*value)) return otherwise;
  const auto whole = get_int(*value);
  if (const Undefined* undefined = as<Undefined>(*value)) throw_undefined(*undefined);
  if (!whole) {
    throw TemplateError("'" + type_name(*value) + "' object cannot be interpreted as an integer");
  }
  constexpr std::int64_t kMax = std::int64_t{1} << 60;
  if (*whole > kMax || *whole < -kMax) throw TemplateError("an integer is too large");
  return static_cast<std::int64_t>(*whole);
}

bool bool_or(const Value* value, bool otherwise) {
  return value == nullptr ? otherwise : is_true(*value);
}

Text text_or(const Value* value, TextView otherwise) {
  return value == nullptr ? Text(otherwise) : need_text(*value);
}

const Text& need_text(const Value& value) {
  if (const Text* text = get_text(value)) return *text;
  if (const Undefined* undefined = as<Undefined>(value)) throw_undefined(*undefined);
  throw TemplateError("expected str, " + type_name(value) + " found");
}

const Builtins& number_filters() {
  static const Builtins filters = {
      {"abs", abs_filter},
      {"float", float_filter},
      {"int", int_filter},
      {"round", round_filter},
  };
  return filters;
}

Builtin find_number_method(const Value& number, std::string_view name) {
  if (is<double>(number) && name == "is_integer") {
    return [](Interpreter&, const Arguments& given) -> Value {
      const double* self = as<double>(given.positional[0]);
      return std::isfinite(*self) && std::trunc(*self) == *self;
    };
  }
  if (is<Int>(number) && name == "bit_length") {
    return [](Interpreter&, const Arguments& given) -> Value {
      const Int size = abs(*as<Int>(given.positional[0]));
      return Int(size.num_bits());
    };
  }
  return nullptr;
}

}  // namespace lmtp::jinja
