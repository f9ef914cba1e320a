// What str(), repr() and json.dumps() make of values.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "value.h"

namespace lmtp::jinja {
namespace {

// As many as Python writes.
constexpr unsigned kDigitsMax = 4300;

std::string digits_of(const Int& number) {
  constexpr std::size_t kBitsMax = kDigitsMax * 10 / 3;  // at least 3.3 bits a digit
  if (number.num_bits() <= kBitsMax + 1000) {
    std::string digits = number.str();
    if (digits.size() <= kDigitsMax + (number < 0 ? 1 : 0)) return digits;
  }
  throw TemplateError("Exceeds the limit (4300 digits) for integer string conversion");
}

void append_repr(const Value& value, Text& out);

void append_items(const std::vector<Value>& items, Text& out) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += U", ";
    append_repr(items[i], out);
  }
}

void append_sequence(const Sequence& sequence, Text& out) {
  using Kind = Sequence::Kind;
  if (sequence.kind == Kind::kList || sequence.kind == Kind::kTuple) {
    const bool is_list = sequence.kind == Kind::kList;
    out += is_list ? U'[' : U'(';
    append_items(sequence.items, out);
    if (!is_list && sequence.items.size() == 1) out += U',';
    out += is_list ? U']' : U')';
  } else if (sequence.kind == Kind::kRange) {
    const Int first = sequence.items.empty() ? Int(0) : *get_int(sequence.items.front());
    const Int last = sequence.items.empty() ? Int(0) : *get_int(sequence.items.back()) + 1;
    out += text_of("range(" + first.str() + ", " + last.str() + ")");
  } else if (sequence.kind == Kind::kOnce) {
    out += U"<generator object>";
  } else {
    constexpr std::array<TextView, 3> kNames = {U"dict_keys([", U"dict_values([", U"dict_items(["};
    out += kNames[static_cast<std::size_t>(sequence.kind) - static_cast<std::size_t>(Kind::kKeys)];
    append_items(sequence.items, out);
    out += U"])";
  }
}

void append_dict(const Dict& dict, Text& out) {
  if (dict.is_namespace) out += U"<Namespace ";
  out += U'{';
  bool is_first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!is_first) out += U", ";
    is_first = false;
    append_repr(key, out);
    out += U": ";
    append_repr(value, out);
  }
  out += U'}';
  if (dict.is_namespace) out += U'>';
}

void append_repr(const Value& value, Text& out) {
  if (const Str* str = as<Str>(value)) {
    out += str->is_markup ? U"Markup(" + repr(str->text) + U")" : repr(str->text);
  } else if (const Sequence* sequence = as<Sequence>(value)) {
    append_sequence(*sequence, out);
  } else if (const Dict* dict = as<Dict>(value)) {
    append_dict(*dict, out);
  } else if (is<Undefined>(value)) {
    out += U"Undefined";
  } else {
    out += to_text(value);
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    if (const Text* text = get_text(value)) {
      out_ += json_string(*text, style_.ascii);
    } else if (is_list(value)) {
      write_items(items_of(value));
    } else if (const Dict* dict = as<Dict>(value); dict != nullptr && !dict->is_namespace) {
      write_dict(*dict);
    } else {
      out_ += scalar(value);
    }
  }
  Text take() { return std::move(out_); }

 private:
  // Python refuses what it computes step by step; templates that were written for others have it.
  static bool is_list(const Value& value) {
    const Sequence* sequence = as<Sequence>(value);
    using Kind = Sequence::Kind;
    return sequence != nullptr && (sequence->kind == Kind::kList ||
                                   sequence->kind == Kind::kTuple || sequence->kind == Kind::kOnce);
  }

  static Text scalar(const Value& value) {
    if (is<None>(value)) return U"null";
    if (const bool* flag = as<bool>(value)) return *flag ? U"true" : U"false";
    if (const Int* whole = as<Int>(value)) return text_of(digits_of(*whole));
    if (const double* number = as<double>(value)) {
      if (std::isnan(*number)) return U"NaN";
      if (std::isinf(*number)) return *number > 0 ? U"Infinity" : U"-Infinity";
      return text_of(repr_of(*number));
    }
    throw TemplateError("Object of type " + type_name(value) + " is not JSON serializable");
  }

  void write_items(const std::vector<Value>& items) {
    begin(U'[');
    for (const Value& item : items) {
      next();
      write(item);
    }
    end(U']');
  }

  void write_dict(const Dict& dict) {
    auto entries = dict.entries;
    if (style_.sort_keys) {
      std::ranges::stable_sort(entries,
                               [](const auto& a, const auto& b) { return less(a.first, b.first); });
    }
    begin(U'{');
    for (const auto& [key, value] : entries) {
      next();
      const Text* text = get_text(key);
      if (text == nullptr && (is<Sequence>(key) || is<Undefined>(key))) {
        throw TemplateError("keys must be str, int, float, bool or None, not " + type_name(key));
      }
      out_ += json_string(text != nullptr ? *text : scalar(key), style_.ascii);
      out_ += style_.key_separator;
      write(value);
    }
    end(U'}');
  }

  void begin(char32_t bracket) {
    out_ += bracket;
    ++depth_;
    is_empty_ = true;
  }
  void next() {
    if (!is_empty_) out_ += style_.item_separator;
    is_empty_ = false;
    new_line();
  }
  void end(char32_t bracket) {
    --depth_;
    if (!is_empty_) new_line();
    is_empty_ = false;
    out_ += bracket;
  }
  void new_line() {
    if (!style_.indent) return;
    out_ += U'\n';
    for (std::size_t i = 0; i < depth_; ++i) out_ += *style_.indent;
  }

  const JsonStyle& style_;
  Text out_;
  std::size_t depth_ = 0;
  bool is_empty_ = true;  // no item since the last bracket
};

}  // namespace

std::string repr_of(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  const double size = std::fabs(number);
  const bool is_scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  std::array<char, 400> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), number,
                    is_scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(digits.data(), end.ptr);
  return is_scientific || text.find('.') != std::string::npos ? text : text + ".0";
}

Text to_text(const Value& value) {
  if (const Text* text = get_text(value)) return *text;
  if (is<Undefined>(value)) return {};
  if (is<None>(value)) return U"None";
  if (const bool* flag = as<bool>(value)) return *flag ? U"True" : U"False";
  if (const Int* whole = as<Int>(value)) return text_of(digits_of(*whole));
  if (const double* number = as<double>(value)) return text_of(repr_of(*number));
  if (const Function* function = as<Function>(value)) {
    return text_of("<function " + function->name + ">");
  }
  if (is<Loop>(value)) return U"<LoopContext>";
  return repr_of(value);
}

Text repr_of(const Value& value) {
  Text out;
  append_repr(value, out);
  return out;
}

Text to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace lmtp::jinja
