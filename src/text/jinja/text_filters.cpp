// Filters that make texts.
#include <algorithm>
#include <array>
#include <cmath>

#include "builtins.h"

namespace lmtp::jinja {
namespace {

// Of any value, as soft_str() of Jinja.
Text filtered_text(const Arguments& given) { return to_text(given.positional.at(0)); }

// A method of str, of what str() makes of the value.
Value text_method(std::string_view name, Interpreter& self, Arguments given) {
  given.positional.at(0) = make_text(filtered_text(given));
  return find_text_method(name)(self, given);
}

Value title_filter(Interpreter& /*self*/, const Arguments& given) {
  bind("title", given, {"value"});
  Text out;
  const Text text = filtered_text(given);
  for (std::size_t i = 0; i < text.size();) {
    constexpr TextView kBreaks = U"-({[<";
    const auto is_break = [&](std::size_t at) {
      return is_space(code_point(text[at])) || kBreaks.find(text[at]) != TextView::npos;
    };
    std::size_t end = i;
    while (end < text.size() && is_break(end) == is_break(i)) ++end;
    const TextView word = TextView(text).substr(i, end - i);
    out += upper(word.substr(0, 1)) + lower(word.substr(1));
    i = end;
  }
  return make_text(std::move(out));
}

Value replace_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("replace", given, {"s", "old", "new", "count"}, 3);
  const std::int64_t num = int_or(bound[3], -1);
  return make_text(replace(filtered_text(given), to_text(*bound[1]), to_text(*bound[2]),
                           num < 0 ? Text::npos : static_cast<std::size_t>(num)));
}

Value indent_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("indent", given, {"s", "width", "first", "blank"}, 1);
  Text indention;
  if (bound[1] != nullptr && is<Str>(*bound[1])) {
    indention = need_text(*bound[1]);
  } else {
    const std::int64_t width = std::max(int_or(bound[1], 4), std::int64_t{0});
    if (width > 1 << 20) throw TemplateError("an indention is too wide");
    indention.assign(static_cast<std::size_t>(width), U' ');
  }
  const Text text = need_text(*bound[0]) + U"\n";
  const bool first = bool_or(bound[2], false);
  const bool blank = bool_or(bound[3], false);
  Text out;
  std::size_t i = 0;
  for (const TextView line : split_lines(text, false)) {
    if (i > 0) out += U'\n';
    if (i == 0 ? first : blank || !line.empty()) out += indention;
    out += line;
    ++i;
  }
  return make_text(std::move(out));
}

Value truncate_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("truncate", given, {"s", "length", "killwords", "end", "leeway"}, 1);
  const TextView text = need_text(*bound[0]);
  const std::int64_t length = int_or(bound[1], 255);
  const Text end = text_or(bound[3], U"...");
  const std::int64_t leeway = int_or(bound[4], 5);
  const auto room = length - static_cast<std::int64_t>(end.size());
  if (room < 0 || leeway < 0) throw TemplateError("truncate: the length is too small");
  if (static_cast<std::int64_t>(text.size()) <= length + leeway) return make_text(text);
  TextView kept = text.substr(0, static_cast<std::size_t>(room));
  if (!bool_or(bound[2], false)) kept = split(kept, U" ", 1, true).front();
  return make_text(Text(kept) + end);
}

Value format_filter(Interpreter& /*self*/, const Arguments& given) {
  const Text format = filtered_text(given);
  if (given.named.empty()) {
    return make_text(formatted(
        format,
        make_list({given.positional.begin() + 1, given.positional.end()}, Sequence::Kind::kTuple)));
  }
  const auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : given.named) dict->set(name, value);
  return make_text(formatted(format, Value(dict)));
}

Value join_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("join", given, {"value", "d", "attribute"}, 1);
  std::vector<Value> items = items_of(*bound[0]);
  const Text separator = bound[1] == nullptr ? Text() : to_text(*bound[1]);
  Text out;
  bool is_first = true;
  for (const Value& item : items) {
    if (!is_first) out += separator;
    is_first = false;
    out += to_text(bound[2] == nullptr || is<None>(*bound[2]) ? item
                                                              : attribute_path(item, *bound[2]));
  }
  return make_text(std::move(out));
}

Value make_markup(Text text) {
  return std::make_shared<const Str>(Str{.text = std::move(text), .is_markup = true});
}

Value escape_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("escape", given, {"s"}, 1);
  const Str* str = as<Str>(*bound[0]);
  if (str != nullptr && str->is_markup) return *bound[0];
  return make_markup(escaped_html(to_text(*bound[0])));
}

Value word_count_filter(Interpreter& /*self*/, const Arguments& given) {
  bind("wordcount", given, {"s"}, 1);
  std::int64_t num = 0;
  bool in_word = false;
  for (const char32_t marked : filtered_text(given)) {
    const char32_t c = code_point(marked);
    const bool is_word = c == U'_' || is_alpha(c) || is_numeric(c);
    num += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Int(num);
}

Value to_json_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound =
      bind("tojson", given, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  JsonStyle style{.ascii = bool_or(bound[1], false), .sort_keys = bool_or(bound[4], false)};
  if (bound[2] != nullptr && !is<None>(*bound[2])) {
    if (const Text* text = get_text(*bound[2])) {
      style.indent = *text;
    } else {
      const std::int64_t width = std::max(int_or(bound[2], 0), std::int64_t{0});
      if (width > 1 << 20) throw TemplateError("an indention is too wide");
      style.indent = Text(static_cast<std::size_t>(width), U' ');
    }
    style.item_separator = U",";
  }
  if (bound[3] != nullptr && !is<None>(*bound[3])) {
    const std::vector<Value> separators = items_of(*bound[3]);
    if (separators.size() != 2) throw TemplateError("separators are two texts");
    style.item_separator = need_text(separators[0]);
    style.key_separator = need_text(separators[1]);
  }
  return make_text(to_json(*bound[0], style));
}

Text quoted_url(const Text& text, TextView safe) {
  Text out;
  for (const char32_t c : text) {
    const bool is_plain =
        code_point(c) < 0x80 && (is_alpha(code_point(c)) || is_decimal(code_point(c)));
    if (is_plain || TextView(U"_.-~").find(c) != TextView::npos || safe.find(c) != TextView::npos) {
      out += c;
      continue;
    }
    for (const char byte : utf8_of(TextView(&c, 1))) {
      constexpr TextView kDigits = U"0123456789ABCDEF";
      const auto bits = static_cast<unsigned char>(byte);
      out += {U'%', kDigits[bits >> 4], kDigits[bits & 15]};
    }
  }
  return out;
}

Value url_encode_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("urlencode", given, {"value"}, 1);
  if (const Text* text = get_text(*bound[0])) return make_text(quoted_url(*text, U"/"));
  std::vector<std::pair<Value, Value>> pairs;
  if (const Dict* dict = as<Dict>(*bound[0])) {
    pairs = dict->entries;
  } else if (is<Sequence>(*bound[0])) {
    for (const Value& item : items_of(*bound[0])) {
      const std::vector<Value> pair = items_of(item);
      if (pair.size() != 2) throw TemplateError("urlencode takes pairs");
      pairs.emplace_back(pair[0], pair[1]);
    }
  } else {
    return make_text(quoted_url(to_text(*bound[0]), U"/"));
  }
  Text out;
  for (const auto& [key, value] : pairs) {
    if (!out.empty()) out += U'&';
    out += replace(quoted_url(to_text(key), U"") + U"=" + quoted_url(to_text(value), U""), U"%20",
                   U"+", Text::npos);
  }
  return make_text(std::move(out));
}

Value strip_tags_filter(Interpreter& /*self*/, const Arguments& given) {
  bind("striptags", given, {"value"}, 1);
  Text text = filtered_text(given);
  const auto erase_between = [&](TextView begin, TextView end) {
    for (std::size_t at = 0; (at = text.find(begin, at)) != Text::npos;) {
      const std::size_t to = text.find(end, at);
      if (to == Text::npos) break;
      text.erase(at, to + end.size() - at);
    }
  };
  erase_between(U"<!--", U"-->");
  erase_between(U"<", U">");
  Text out;
  for (const TextView word : split(text, Text::npos, false)) {
    if (!out.empty()) out += U' ';
    out += word;
  }
  constexpr std::array<std::pair<TextView, TextView>, 6> kNames = {{{U"&lt;", U"<"},
                                                                    {U"&gt;", U">"},
                                                                    {U"&#34;", U"\""},
                                                                    {U"&quot;", U"\""},
                                                                    {U"&#39;", U"'"},
                                                                    {U"&amp;", U"&"}}};
  for (const auto& [name, sign] : kNames) out = replace(out, name, sign, Text::npos);
  return make_text(std::move(out));
}

Value file_size_filter(Interpreter& /*self*/, const Arguments& given) {
  const auto bound = bind("filesizeformat", given, {"value", "binary"}, 1);
  const auto read = read_float(to_text(*bound[0]));
  if (!read) throw TemplateError("could not convert to float");
  const bool is_binary = bool_or(bound[1], false);
  const double base = is_binary ? 1024 : 1000;
  if (*read == 1) return make_text(std::string_view("1 Byte"));
  if (*read < base) return make_text(std::string_view(Int(*read).str() + " Bytes"));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  std::size_t i = 0;
  while (*read >= unit && i + 1 < kPrefixes.size()) {
    unit *= base;
    ++i;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f %c%sB", base * *read / unit,
                is_binary && i == 0 ? 'K' : kPrefixes[i], is_binary ? "i" : "");
  return make_text(std::string_view(text.data()));
}

Value center_filter(Interpreter& self, const Arguments& given) {
  const auto bound = bind("center", given, {"value", "width"}, 1);
  return text_method("center", self,
                     {{*bound[0], bound[1] == nullptr ? Value(Int(80)) : *bound[1]}, {}});
}

}  // namespace

const Builtins& text_filters() {
  static const Builtins filters = {
      {"capitalize", [](Interpreter& self,
                        const Arguments& given) { return text_method("capitalize", self, given); }},
      {"center", center_filter},
      {"e", escape_filter},
      {"escape", escape_filter},
      {"filesizeformat", file_size_filter},
      {"forceescape",
       [](Interpreter&, const Arguments& given) {
         return make_markup(escaped_html(filtered_text(given)));
       }},
      {"format", format_filter},
      {"indent", indent_filter},
      {"join", join_filter},
      {"lower",
       [](Interpreter& self, const Arguments& given) { return text_method("lower", self, given); }},
      {"pprint", [](Interpreter&,
                    const Arguments& given) { return make_text(repr_of(given.positional.at(0))); }},
      {"replace", replace_filter},
      {"safe",
       [](Interpreter&, const Arguments& given) { return make_markup(filtered_text(given)); }},
      {"string",
       [](Interpreter&, const Arguments& given) {
         const Value& value = given.positional.at(0);
         return is<Str>(value) ? value : make_text(to_text(value));
       }},
      {"striptags", strip_tags_filter},
      {"title", title_filter},
      {"tojson", to_json_filter},
      {"trim",
       [](Interpreter& self, const Arguments& given) { return text_method("strip", self, given); }},
      {"truncate", truncate_filter},
      {"upper",
       [](Interpreter& self, const Arguments& given) { return text_method("upper", self, given); }},
      {"urlencode", url_encode_filter},
      {"wordcount", word_count_filter},
  };
  return filters;
}

}  // namespace lmtp::jinja
