// The methods of str.
#include <algorithm>

#include "builtins.h"

namespace lmtp::jinja {
namespace {

using Self = Interpreter&;
using Given = const Arguments&;

const Text& self_of(Given given) { return need_text(given.positional[0]); }

template <Text (*kChange)(TextView)>
Value changed_method(Self /*self*/, Given given) {
  bind("str method", given, {"self"});
  return make_text(kChange(self_of(given)));
}

// Of all characters, of which there is one.
template <bool (*kHolds)(char32_t)>
Value all_method(Self /*self*/, Given given) {
  bind("str method", given, {"self"});
  const Text& text = self_of(given);
  return !text.empty() &&
         std::ranges::all_of(text, [](char32_t c) { return kHolds(code_point(c)); });
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }
bool is_ascii(char32_t c) { return c < 0x80; }

// Some are of a case, and none of another.
template <bool (*kHolds)(char32_t), bool (*kOther)(char32_t)>
Value cased_method(Self /*self*/, Given given) {
  bool any = false;
  for (const char32_t c : self_of(given)) {
    if (kOther(code_point(c)) || is_title(code_point(c))) return false;
    any |= kHolds(code_point(c));
  }
  return any;
}

Value is_titled(Self /*self*/, Given given) {
  bool any = false;
  bool after_cased = false;
  for (const char32_t marked : self_of(given)) {
    const char32_t c = code_point(marked);
    const bool is_capital = is_upper(c) || is_title(c);
    if ((is_capital && after_cased) || (is_lower(c) && !after_cased)) return false;
    after_cased = is_capital || is_lower(c);
    any |= after_cased;
  }
  return any;
}

template <Ends kEnds>
Value strip_method(Self /*self*/, Given given) {
  const auto bound = bind("strip", given, {"self", "chars"});
  const bool has_set = bound[1] != nullptr && !is<None>(*bound[1]);
  return make_text(strip(self_of(given), kEnds,
                         has_set ? std::optional<TextView>(need_text(*bound[1])) : std::nullopt));
}

template <bool kFromRight>
Value split_method(Self /*self*/, Given given) {
  const auto bound = bind("split", given, {"self", "sep", "maxsplit"});
  const std::int64_t num = int_or(bound[2], -1);
  const std::size_t num_max = num < 0 ? Text::npos : static_cast<std::size_t>(num);
  std::vector<TextView> parts;
  if (bound[1] == nullptr || is<None>(*bound[1])) {
    parts = split(self_of(given), num_max, kFromRight);
  } else {
    const Text& separator = need_text(*bound[1]);
    if (separator.empty()) throw TemplateError("empty separator");
    parts = split(self_of(given), separator, num_max, kFromRight);
  }
  std::vector<Value> items;
  for (const TextView part : parts) items.push_back(make_text(part));
  return make_list(std::move(items));
}

Value split_lines_method(Self /*self*/, Given given) {
  const auto bound = bind("splitlines", given, {"self", "keepends"});
  std::vector<Value> items;
  for (const TextView line : split_lines(self_of(given), bool_or(bound[1], false))) {
    items.push_back(make_text(line));
  }
  return make_list(std::move(items));
}

template <bool kFromRight>
Value partition_method(Self /*self*/, Given given) {
  const auto bound = bind("partition", given, {"self", "sep"}, 2);
  const TextView text = self_of(given);
  const Text& separator = need_text(*bound[1]);
  if (separator.empty()) throw TemplateError("empty separator");
  const std::size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  std::vector<Value> parts;
  if (at != TextView::npos) {
    parts = {make_text(text.substr(0, at)), *bound[1],
             make_text(text.substr(at + separator.size()))};
  } else if (kFromRight) {
    parts = {make_text(TextView()), make_text(TextView()), make_text(text)};
  } else {
    parts = {make_text(text), make_text(TextView()), make_text(TextView())};
  }
  return make_list(std::move(parts), Sequence::Kind::kTuple);
}

// The part of the text that begin and end, as of a slice, leave, and where it begins.
std::pair<TextView, std::size_t> part_of(const Text& text, const Value* begin, const Value* end) {
  const auto size = static_cast<std::int64_t>(text.size());
  const auto bounded = [&](const Value* value, std::int64_t otherwise) {
    const std::int64_t at = int_or(value, otherwise);
    return std::clamp(at < 0 ? at + size : at, std::int64_t{0}, size);
  };
  const auto from = static_cast<std::size_t>(bounded(begin, 0));
  const auto to = static_cast<std::size_t>(std::max(bounded(end, size), bounded(begin, 0)));
  return {TextView(text).substr(from, to - from), from};
}

// find, rfind, index, rindex
template <bool kFromRight, bool kMustBe>
Value find_method(Self /*self*/, Given given) {
  const auto bound = bind("find", given, {"self", "sub", "start", "end"}, 2);
  const Text& text = self_of(given);
  const auto [part, from] = part_of(text, bound[2], bound[3]);
  const Text& sought = need_text(*bound[1]);
  const std::size_t at = kFromRight ? part.rfind(sought) : part.find(sought);
  const bool is_beyond = int_or(bound[2], 0) > static_cast<std::int64_t>(text.size());
  if (at != TextView::npos && !is_beyond) return Int(at + from);
  if (kMustBe) throw TemplateError("substring not found");
  return Int(-1);
}

Value count_method(Self /*self*/, Given given) {
  const auto bound = bind("count", given, {"self", "sub", "start", "end"}, 2);
  return Int(count(part_of(self_of(given), bound[2], bound[3]).first, need_text(*bound[1])));
}

template <bool kAtEnd>
Value begins_method(Self /*self*/, Given given) {
  const auto bound = bind("startswith", given, {"self", "prefix", "start", "end"}, 2);
  const TextView text = part_of(self_of(given), bound[2], bound[3]).first;
  const Sequence* several = as<Sequence>(*bound[1]);
  const std::vector<Value> sought =
      several != nullptr ? several->items : std::vector<Value>{*bound[1]};
  return std::ranges::any_of(sought, [&](const Value& one) {
    const Text& part = need_text(one);
    return kAtEnd ? text.ends_with(part) : text.starts_with(part);
  });
}

template <bool kAtEnd>
Value remove_method(Self /*self*/, Given given) {
  const auto bound = bind("removeprefix", given, {"self", "prefix"}, 2);
  const TextView text = self_of(given);
  const Text& part = need_text(*bound[1]);
  if (part.empty() || !(kAtEnd ? text.ends_with(part) : text.starts_with(part))) {
    return make_text(text);
  }
  return make_text(kAtEnd ? text.substr(0, text.size() - part.size()) : text.substr(part.size()));
}

Value replace_method(Self /*self*/, Given given) {
  const auto bound = bind("replace", given, {"self", "old", "new", "count"}, 3);
  const std::int64_t num = int_or(bound[3], -1);
  return make_text(replace(self_of(given), need_text(*bound[1]), need_text(*bound[2]),
                           num < 0 ? Text::npos : static_cast<std::size_t>(num)));
}

Value join_method(Self /*self*/, Given given) {
  const auto bound = bind("join", given, {"self", "iterable"}, 2);
  const Text& separator = self_of(given);
  Text out;
  bool is_first = true;
  for (const Value& item : items_of(*bound[1])) {
    if (!is_first) out += separator;
    is_first = false;
    out += need_text(item);
  }
  return make_text(std::move(out));
}

enum class Side { kLeft, kRight, kCenter };

template <Side kTextAt>
Value justify_method(Self /*self*/, Given given) {
  const auto bound = bind("center", given, {"self", "width", "fillchar"}, 2);
  const Text& text = self_of(given);
  const Text fill = text_or(bound[2], U" ");
  if (fill.size() != 1) throw TemplateError("the fill must be exactly one character");
  const std::int64_t missing = int_or(bound[1], 0) - static_cast<std::int64_t>(text.size());
  if (missing <= 0) return make_text(text);
  if (missing > 1 << 24) throw TemplateError("a text is too long");
  const auto num = static_cast<std::size_t>(missing);
  const std::size_t center = num / 2 + (num & static_cast<std::size_t>(int_or(bound[1], 0)) & 1);
  const std::size_t left = kTextAt == Side::kLeft ? 0 : kTextAt == Side::kRight ? num : center;
  return make_text(Text(left, fill[0]) + text + Text(num - left, fill[0]));
}

Value zero_fill_method(Self /*self*/, Given given) {
  const auto bound = bind("zfill", given, {"self", "width"}, 2);
  const Text& text = self_of(given);
  const std::int64_t missing = int_or(bound[1], 0) - static_cast<std::int64_t>(text.size());
  if (missing <= 0) return make_text(text);
  if (missing > 1 << 24) throw TemplateError("a text is too long");
  const bool is_signed = text.starts_with(U'+') || text.starts_with(U'-');
  Text out = text;
  return make_text(out.insert(is_signed ? 1 : 0, static_cast<std::size_t>(missing), U'0'));
}

Value expand_tabs_method(Self /*self*/, Given given) {
  const auto bound = bind("expandtabs", given, {"self", "tabsize"});
  const std::int64_t size = std::clamp(int_or(bound[1], 8), std::int64_t{0}, std::int64_t{1024});
  Text out;
  std::int64_t column = 0;
  for (const char32_t c : self_of(given)) {
    if (code_point(c) == U'\t') {
      const std::int64_t num = size == 0 ? 0 : size - column % size;
      out.append(static_cast<std::size_t>(num), U' ');
      column += num;
    } else {
      out += c;
      column = code_point(c) == U'\n' || code_point(c) == U'\r' ? 0 : column + 1;
    }
  }
  return make_text(std::move(out));
}

Value format_method(Self /*self*/, Given given) {
  Arguments arguments = given;
  arguments.positional.erase(arguments.positional.begin());
  return make_text(formatted(self_of(given), arguments));
}

Value format_map_method(Self /*self*/, Given given) {
  const auto bound = bind("format_map", given, {"self", "mapping"}, 2);
  const Dict* dict = as<Dict>(*bound[1]);
  if (dict == nullptr) throw TemplateError("format_map() takes a mapping");
  Arguments arguments;
  for (const auto& [key, value] : dict->entries) {
    arguments.named.emplace_back(utf8_of(to_text(key)), value);
  }
  return make_text(formatted(self_of(given), arguments));
}

}  // namespace

Builtin find_text_method(std::string_view name) {
  static const Builtins methods = {
      {"capitalize", changed_method<capitalize>},
      {"casefold", changed_method<lower>},
      {"center", justify_method<Side::kCenter>},
      {"count", count_method},
      {"endswith", begins_method<true>},
      {"expandtabs", expand_tabs_method},
      {"find", find_method<false, false>},
      {"format", format_method},
      {"format_map", format_map_method},
      {"index", find_method<false, true>},
      {"isalnum", all_method<is_alnum>},
      {"isalpha", all_method<is_alpha>},
      {"isascii",
       [](Self, Given given) -> Value {
         return std::ranges::all_of(self_of(given),
                                    [](char32_t c) { return is_ascii(code_point(c)); });
       }},
      {"isdecimal", all_method<is_decimal>},
      {"isdigit", all_method<is_digit>},
      {"islower", cased_method<is_lower, is_upper>},
      {"isnumeric", all_method<is_numeric>},
      {"isprintable",
       [](Self, Given given) -> Value {
         return std::ranges::all_of(self_of(given),
                                    [](char32_t c) { return is_printable(code_point(c)); });
       }},
      {"isspace", all_method<is_space>},
      {"istitle", is_titled},
      {"isupper", cased_method<is_upper, is_lower>},
      {"join", join_method},
      {"ljust", justify_method<Side::kLeft>},
      {"lower", changed_method<lower>},
      {"lstrip", strip_method<Ends::kLeft>},
      {"partition", partition_method<false>},
      {"removeprefix", remove_method<false>},
      {"removesuffix", remove_method<true>},
      {"replace", replace_method},
      {"rfind", find_method<true, false>},
      {"rindex", find_method<true, true>},
      {"rjust", justify_method<Side::kRight>},
      {"rpartition", partition_method<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<Ends::kRight>},
      {"split", split_method<false>},
      {"splitlines", split_lines_method},
      {"startswith", begins_method<false>},
      {"strip", strip_method<Ends::kBoth>},
      {"swapcase", changed_method<swapcase>},
      {"title", changed_method<title>},
      {"upper", changed_method<upper>},
      {"zfill", zero_fill_method},
  };
  const auto found = methods.find(name);
  return found == methods.end() ? nullptr : found->second;
}

}  // namespace lmtp::jinja
