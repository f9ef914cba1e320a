// Numbers and texts by Python's format codes: "%5.1f" % x and "{:>5}".format(x).
#include <algorithm>
#include <charconv>
#include <cmath>

#include "builtins.h"

namespace lmtp::jinja {
namespace {

constexpr std::int64_t kWidthMax = 1 << 20;

// A format specification, of both kinds.
struct Spec {
  char32_t fill = U' ';
  char32_t align = 0;  // < > ^ =, 0: by the type
  char32_t sign = U'-';
  bool alternate = false;
  char32_t grouping = 0;
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
  char32_t type = 0;
};

std::int64_t read_size(TextView text, std::size_t& pos) {
  std::int64_t size = 0;
  while (pos < text.size() && code_point(text[pos]) >= U'0' && code_point(text[pos]) <= U'9') {
    size = size * 10 + static_cast<std::int64_t>(code_point(text[pos++]) - U'0');
    if (size > kWidthMax) throw TemplateError("a format's width is too large");
  }
  return size;
}

Text padded(const Text& text, const Spec& spec, char32_t align) {
  const auto missing = spec.width - static_cast<std::int64_t>(text.size());
  if (missing <= 0) return text;
  const auto num = static_cast<std::size_t>(missing);
  if (spec.align != 0) align = spec.align;
  if (align == U'=') {
    const bool has_sign = !text.empty() && TextView(U"+- ").find(text[0]) != TextView::npos;
    return text.substr(0, has_sign ? 1 : 0) + Text(num, spec.fill) + text.substr(has_sign ? 1 : 0);
  }
  const std::size_t left = align == U'>' ? num : align == U'^' ? num / 2 : 0;
  return Text(left, spec.fill) + text + Text(num - left, spec.fill);
}

std::string grouped(const std::string& digits, char32_t grouping) {
  if (grouping == 0) return digits;
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out = digits.substr(whole);
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && i % 3 == 0) out.insert(0, 1, static_cast<char>(grouping));
    out.insert(0, 1, digits[whole - 1 - i]);
  }
  return out;
}

Text signed_text(bool is_negative, const std::string& digits, const Spec& spec) {
  std::string text = grouped(digits, spec.grouping);
  if (is_negative) {
    text.insert(0, 1, '-');
  } else if (spec.sign != U'-') {
    text.insert(0, 1, static_cast<char>(spec.sign));
  }
  return padded(text_of(text), spec, U'>');
}

std::string in_base(Int number, const Int& base, bool capitals) {
  if (number == 0) return "0";
  const std::string_view names = capitals ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  for (; number != 0; number = number / base) {
    digits += names[static_cast<std::size_t>(number % base)];
  }
  std::ranges::reverse(digits);
  return digits;
}

Text format_whole(const Int& number, const Spec& spec) {
  const Int size = abs(number);
  std::string digits;
  const char32_t type = spec.type;
  if (type == U'x' || type == U'X') {
    digits = (spec.alternate ? type == U'x' ? "0x" : "0X" : "") + in_base(size, 16, type == U'X');
  } else if (type == U'o') {
    digits = (spec.alternate ? "0o" : "") + in_base(size, 8, false);
  } else if (type == U'b') {
    digits = (spec.alternate ? "0b" : "") + in_base(size, 2, false);
  } else {
    digits = utf8_of(to_text(size));
  }
  if (spec.precision && static_cast<std::int64_t>(digits.size()) < *spec.precision) {
    digits.insert(0, static_cast<std::size_t>(*spec.precision) - digits.size(), '0');
  }
  return signed_text(number < 0, digits, spec);
}

char capital(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

Text format_number(double number, const Spec& spec) {
  const bool is_percent = spec.type == U'%';
  const double size = std::fabs(number) * (is_percent ? 100 : 1);
  std::string digits;
  if (!std::isfinite(size)) {
    digits = std::isnan(size) ? "nan" : "inf";
  } else if (spec.type == 0 && !spec.precision) {
    digits = repr_of(size);
  } else {
    const char32_t type = is_percent ? U'f' : spec.type == 0 ? U'g' : spec.type | 0x20;
    const auto precision = static_cast<int>(spec.precision.value_or(6));
    digits.resize(static_cast<std::size_t>(precision) + 400);
    const auto format = type == U'e'   ? std::chars_format::scientific
                        : type == U'f' ? std::chars_format::fixed
                                       : std::chars_format::general;
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), size, format, precision);
    digits.resize(static_cast<std::size_t>(end.ptr - digits.data()));
    if (spec.type < U'a') std::ranges::transform(digits, digits.begin(), capital);
  }
  if (is_percent) digits += '%';
  return signed_text(std::signbit(number) && !std::isnan(number), digits, spec);
}

Text format_text(const Text& text, const Spec& spec, char32_t align) {
  const bool is_cut = spec.precision && static_cast<std::size_t>(*spec.precision) < text.size();
  return padded(is_cut ? text.substr(0, static_cast<std::size_t>(*spec.precision)) : text, spec,
                align);
}

double need_number(const Value& value) {
  if (const double* number = as<double>(value)) return *number;
  if (const auto whole = get_int(value)) return to_double(*whole);
  throw TemplateError("must be real number, not " + type_name(value));
}

Int need_whole(const Value& value, bool takes_float) {
  if (const auto whole = get_int(value)) return *whole;
  const double* number = as<double>(value);
  if (number == nullptr || !takes_float) {
    throw TemplateError("a number is required, not " + type_name(value));
  }
  if (!std::isfinite(*number)) throw TemplateError("cannot convert float to integer");
  return Int(std::trunc(*number));
}

bool is_one_of(char32_t c, TextView set) { return c != 0 && set.find(c) != TextView::npos; }

// Of %...; what follows the percent sign.
class PercentFormat {
 public:
  PercentFormat(TextView format, const Value& values) : format_(format), values_(values) {
    const Sequence* sequence = as<Sequence>(values);
    if (sequence != nullptr && sequence->kind == Sequence::Kind::kTuple) {
      unused_ = sequence->items;
    } else {
      unused_ = {values};
    }
    std::ranges::reverse(unused_);
  }

  Text run() {
    while (pos_ < format_.size()) {
      const char32_t c = format_[pos_++];
      if (code_point(c) != U'%') {
        out_ += c;
      } else {
        directive();
      }
    }
    if (!unused_.empty() && !is<Dict>(values_)) {
      throw TemplateError("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  char32_t peek() const {
    if (pos_ >= format_.size()) throw TemplateError("incomplete format");
    return code_point(format_[pos_]);
  }

  Value take() {
    if (named_) return *named_;
    if (unused_.empty()) throw TemplateError("not enough arguments for format string");
    Value value = unused_.back();
    unused_.pop_back();
    return value;
  }

  std::int64_t size_or_star() {
    if (peek() != U'*') return read_size(format_, pos_);
    ++pos_;
    const Value size = take();
    return std::clamp(int_or(&size, 0), -kWidthMax, kWidthMax);
  }

  void directive() {
    named_.reset();
    Spec spec;
    if (peek() == U'(') name();
    while (is_one_of(peek(), U"-+ #0")) {
      const char32_t flag = code_point(format_[pos_++]);
      if (flag == U'-') spec.align = U'<';
      if (flag == U'+' || (flag == U' ' && spec.sign == U'-')) spec.sign = flag;
      if (flag == U'#') spec.alternate = true;
      if (flag == U'0' && spec.align == 0) {
        spec.align = U'=';
        spec.fill = U'0';
      }
    }
    if (spec.align == U'<') spec.fill = U' ';
    spec.width = size_or_star();
    if (peek() == U'.') {
      ++pos_;
      spec.precision = size_or_star();
    }
    while (is_one_of(peek(), U"hlL")) ++pos_;
    spec.type = peek();
    ++pos_;
    convert(spec);
  }

  void name() {
    const std::size_t end = format_.find(U')', pos_);
    if (end == TextView::npos) throw TemplateError("incomplete format key");
    const Dict* dict = as<Dict>(values_);
    if (dict == nullptr) throw TemplateError("format requires a mapping");
    const Value* value = dict->find(make_text(format_.substr(pos_ + 1, end - pos_ - 1)));
    if (value == nullptr) throw TemplateError("a format's key is not there");
    named_ = *value;
    pos_ = end + 1;
  }

  void convert(const Spec& spec) {
    if (spec.type == U'%') {
      out_ += U'%';
    } else if (is_one_of(spec.type, U"sra")) {
      const Value value = take();
      Spec of_text = spec;
      of_text.fill = U' ';
      if (of_text.align == U'=') of_text.align = U'>';
      out_ += format_text(spec.type == U's' ? to_text(value) : repr_of(value), of_text, U'>');
    } else if (is_one_of(spec.type, U"diuxXo")) {
      const bool is_decimal = is_one_of(spec.type, U"diu");
      out_ += format_whole(need_whole(take(), is_decimal), spec);
    } else if (is_one_of(spec.type, U"eEfFgG")) {
      out_ += format_number(need_number(take()), spec);
    } else if (spec.type == U'c') {
      const Value value = take();
      const auto whole = get_int(value);
      out_ += padded(whole ? Text(1, static_cast<char32_t>(*whole)) : need_text(value), spec, U'>');
    } else {
      throw TemplateError("unsupported format character");
    }
  }

  TextView format_;
  const Value& values_;
  std::vector<Value> unused_;
  std::size_t pos_ = 0;
  std::optional<Value> named_;
  Text out_;
};

Spec read_spec(TextView text) {
  Spec spec;
  std::size_t pos = 0;
  const auto at = [&](std::size_t i) { return i < text.size() ? code_point(text[i]) : 0; };
  if (is_one_of(at(1), U"<>^=")) {
    spec.fill = text[0];
    spec.align = at(1);
    pos = 2;
  } else if (is_one_of(at(0), U"<>^=")) {
    spec.align = at(0);
    pos = 1;
  }
  if (is_one_of(at(pos), U"+- ")) spec.sign = at(pos++);
  if (at(pos) == U'#') {
    spec.alternate = true;
    ++pos;
  }
  if (at(pos) == U'0') {
    if (spec.align == 0) {
      spec.align = U'=';
      spec.fill = U'0';
    }
    ++pos;
  }
  spec.width = read_size(text, pos);
  if (is_one_of(at(pos), U",_")) spec.grouping = at(pos++);
  if (at(pos) == U'.') {
    ++pos;
    spec.precision = read_size(text, pos);
  }
  spec.type = at(pos);
  if (spec.type != 0 && pos + 1 != text.size()) throw TemplateError("Invalid format specifier");
  return spec;
}

Text format_value(const Value& value, TextView text) {
  if (text.empty()) return to_text(value);
  const Spec spec = read_spec(text);
  const bool is_whole = is<Int>(value) || is<bool>(value);
  if (is<double>(value) || (is_whole && is_one_of(spec.type, U"eEfFgG%"))) {
    return format_number(need_number(value), spec);
  }
  if (is_whole && (spec.type == 0 || is_one_of(spec.type, U"dxXobn"))) {
    return format_whole(*get_int(value), spec);
  }
  if (spec.type != 0 && spec.type != U's') {
    throw TemplateError("Unknown format code for object of type '" + type_name(value) + "'");
  }
  return format_text(need_text(value), spec, U'<');
}

// Of {...}.
class BraceFormat {
 public:
  BraceFormat(TextView format, const Arguments& arguments)
      : format_(format), arguments_(arguments) {}

  Text run() {
    for (std::size_t pos = 0; pos < format_.size(); ++pos) {
      const char32_t c = code_point(format_[pos]);
      if (c != U'{' && c != U'}') {
        out_ += format_[pos];
        continue;
      }
      if (pos + 1 < format_.size() && code_point(format_[pos + 1]) == c) {
        out_ += format_[pos++];
        continue;
      }
      std::size_t end = c == U'{' ? pos + 1 : format_.size();
      for (int depth = 1; end < format_.size(); ++end) {
        const char32_t inner = code_point(format_[end]);
        depth += inner == U'{' ? 1 : inner == U'}' ? -1 : 0;
        if (depth == 0) break;
      }
      if (end >= format_.size()) throw TemplateError("Single brace in format string");
      out_ += field(format_.substr(pos + 1, end - pos - 1));
      pos = end;
    }
    return std::move(out_);
  }

 private:
  Text field(TextView text) {
    const std::size_t colon = text.find(U':');
    const TextView spec = colon == TextView::npos ? TextView() : text.substr(colon + 1);
    TextView name = text.substr(0, colon);
    char32_t conversion = 0;
    if (const std::size_t at = name.find(U'!'); at != TextView::npos) {
      if (at + 2 != name.size()) throw TemplateError("expected ':' after conversion specifier");
      conversion = code_point(name[at + 1]);
      name = name.substr(0, at);
    }
    Value value = find(name);
    if (conversion == U's') value = make_text(to_text(value));
    if (conversion == U'r') value = make_text(repr_of(value));
    if (spec.find(U'{') == TextView::npos) return format_value(value, spec);
    BraceFormat inner(spec, arguments_);
    inner.next_ = next_;
    const Text made = inner.run();
    next_ = inner.next_;
    return format_value(value, made);
  }

  Value find(TextView name) {
    const std::size_t first = std::min(name.find_first_of(U".["), name.size());
    Value value = argument(name.substr(0, first));
    name.remove_prefix(first);
    while (!name.empty()) {
      const bool is_attribute = code_point(name[0]) == U'.';
      const std::size_t end =
          std::min(is_attribute ? name.find_first_of(U".[", 1) : name.find(U']'), name.size());
      const TextView key = name.substr(1, end - 1);
      std::size_t pos = 0;
      const Int index = read_size(key, pos);
      const bool is_index = !is_attribute && pos == key.size();
      value = is_attribute ? Interpreter::attribute(value, utf8_of(key))
                           : Interpreter::item(value, is_index ? Value(index) : make_text(key));
      if (const Undefined* undefined = as<Undefined>(value)) throw_undefined(*undefined);
      name.remove_prefix(std::min(name.size(), end + (is_attribute ? 0 : 1)));
    }
    return value;
  }

  Value argument(TextView name) {
    std::size_t pos = 0;
    auto index = static_cast<std::size_t>(read_size(name, pos));
    if (pos == name.size()) {
      if (name.empty()) index = next_++;
      if (index < arguments_.positional.size()) return arguments_.positional[index];
      throw TemplateError("Replacement index " + std::to_string(index) +
                          " out of range for positional args tuple");
    }
    const std::string key = utf8_of(name);
    const auto named =
        std::ranges::find(arguments_.named, key, &std::pair<std::string, Value>::first);
    if (named == arguments_.named.end()) throw TemplateError("KeyError: '" + key + "'");
    return named->second;
  }

  TextView format_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
  Text out_;
};

}  // namespace

Text formatted(TextView format, const Value& values) { return PercentFormat(format, values).run(); }

Text formatted(TextView format, const Arguments& arguments) {
  return BraceFormat(format, arguments).run();
}

}  // namespace lmtp::jinja
