// What Python's operators make of values.
#include <cmath>
#include <limits>

#include "builtins.h"

namespace lmtp::jinja {
namespace {

// What a repeated text or list, or the digits of a power, may have.
constexpr std::size_t kItemsMax = std::size_t{1} << 24;
constexpr std::size_t kPowerBitsMax = std::size_t{1} << 17;

[[noreturn]] void throw_types(const std::string& sign, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (const Undefined* undefined = as<Undefined>(*value)) throw_undefined(*undefined);
  }
  throw TemplateError("unsupported operand type(s) for " + sign + ": '" + type_name(a) + "' and '" +
                      type_name(b) + "'");
}

[[noreturn]] void throw_zero() { throw TemplateError("division by zero"); }

Int floor_divided(const Int& a, const Int& b) {
  Int quotient = a / b;
  if (quotient * b != a && (a < 0) != (b < 0)) quotient = quotient - 1;
  return quotient;
}

Int power(const Int& base, const Int& exponent) {
  if (base > 1 || base < -1) {
    if (exponent > kPowerBitsMax / base.num_bits()) throw TemplateError("a power is too large");
  }
  const bool is_small = base >= -1 && base <= 1;
  return pow(base, static_cast<unsigned>(is_small ? Int(exponent % 2 + (exponent > 1 ? 2 : 0))
                                                  : exponent));
}

Value of_whole(const std::string& sign, const Int& a, const Int& b) {
  if (sign == "+") return Int(a + b);
  if (sign == "-") return Int(a - b);
  if (sign == "*") return Int(a * b);
  if (sign == "**") {
    if (b < 0 && a == 0) throw_zero();
    if (b < 0) return std::pow(to_double(a), to_double(b));
    return power(a, b);
  }
  if (b == 0) throw_zero();
  if (sign == "/") return to_double(a) / to_double(b);
  Int quotient = floor_divided(a, b);
  if (sign == "//") return quotient;
  return Int(a - quotient * b);
}

// Python's divmod of floats.
std::pair<double, double> floor_divided(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest == 0) {
    rest = std::copysign(0.0, b);
  } else if ((b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  const double whole = std::floor(quotient);
  return {quotient - whole > 0.5 ? whole + 1 : whole, rest};
}

Value of_numbers(const std::string& sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") {
    if (a == 0 && b < 0) throw_zero();
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
      throw TemplateError("Numerical result out of range");
    }
    return result;
  }
  if (b == 0) throw_zero();
  if (sign == "/") return a / b;
  return sign == "//" ? floor_divided(a, b).first : floor_divided(a, b).second;
}

Value added_texts(const Str& a, const Str& b) {
  if (!a.is_markup && !b.is_markup) return make_text(a.text + b.text);
  const auto safe = [](const Str& str) {
    return str.is_markup ? str.text : escaped_html(str.text);
  };
  return std::make_shared<const Str>(Str{.text = safe(a) + safe(b), .is_markup = true});
}

Value repeated(const Value& of, const Int& times) {
  const std::size_t size = length_of(of);
  if (times > kItemsMax / std::max<std::size_t>(size, 1)) {
    throw TemplateError("a repeated text or list is too long");
  }
  const auto num = static_cast<std::size_t>(times < 0 ? Int(0) : times);
  if (const Text* text = get_text(of)) {
    Text out;
    for (std::size_t i = 0; i < num; ++i) out += *text;
    return make_text(std::move(out));
  }
  const Sequence& sequence = *as<Sequence>(of);
  std::vector<Value> items;
  for (std::size_t i = 0; i < num; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return make_list(std::move(items), sequence.kind);
}

bool is_list_or_tuple(const Value& value) {
  const Sequence* sequence = as<Sequence>(value);
  return sequence != nullptr &&
         (sequence->kind == Sequence::Kind::kList || sequence->kind == Sequence::Kind::kTuple);
}

std::optional<double> as_number(const Value& value) {
  if (const double* number = as<double>(value)) return *number;
  const auto whole = get_int(value);
  return whole ? std::optional(to_double(*whole)) : std::nullopt;
}

}  // namespace

Value binary(const std::string& sign, const Value& a, const Value& b) {
  const auto whole = get_int(a);
  const auto other_whole = get_int(b);
  if (whole && other_whole) return of_whole(sign, *whole, *other_whole);
  if (const Text* text = get_text(a); text != nullptr && sign == "%") {
    return make_text(formatted(*text, b));
  }
  if (sign == "*") {
    if (other_whole && (is<Str>(a) || is_list_or_tuple(a))) return repeated(a, *other_whole);
    if (whole && (is<Str>(b) || is_list_or_tuple(b))) return repeated(b, *whole);
  }
  if (sign == "+" && is<Str>(a) && is<Str>(b)) return added_texts(*as<Str>(a), *as<Str>(b));
  if (sign == "+" && is_list_or_tuple(a) && is_list_or_tuple(b) &&
      as<Sequence>(a)->kind == as<Sequence>(b)->kind) {
    std::vector<Value> items = as<Sequence>(a)->items;
    const std::vector<Value>& more = as<Sequence>(b)->items;
    items.insert(items.end(), more.begin(), more.end());
    return make_list(std::move(items), as<Sequence>(a)->kind);
  }
  if (is<double>(a) || is<double>(b)) {
    const auto number = as_number(a);
    const auto other_number = as_number(b);
    if (number && other_number) return of_numbers(sign, *number, *other_number);
  }
  if (const Text* text = get_text(a); text != nullptr && sign == "+" && !is<Undefined>(b)) {
    throw TemplateError("can only concatenate str (not \"" + type_name(b) + "\") to str");
  }
  throw_types(sign, a, b);
}

Value unary(const std::string& sign, const Value& value) {
  if (const auto whole = get_int(value)) return sign == "-" ? Int(-*whole) : *whole;
  if (const double* number = as<double>(value)) return sign == "-" ? -*number : *number;
  if (const Undefined* undefined = as<Undefined>(value)) throw_undefined(*undefined);
  throw TemplateError("bad operand type for unary " + sign + ": '" + type_name(value) + "'");
}

}  // namespace lmtp::jinja
