// Texts of a template as Python's str has them: code point by code point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lmtp::jinja {

// Of a character: a client wrote it. Whatever a template does with a text, its characters keep
// that, so that no special token is found in what a client wrote.
inline constexpr char32_t kInput = 0x80000000;
constexpr char32_t code_point(char32_t c) { return c & ~kInput; }

// Texts are compared and searched without regard to it.
struct TextTraits : std::char_traits<char32_t> {
  static constexpr bool eq(char32_t a, char32_t b) { return code_point(a) == code_point(b); }
  static constexpr bool lt(char32_t a, char32_t b) { return code_point(a) < code_point(b); }
  static constexpr int compare(const char32_t* a, const char32_t* b, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      if (!eq(a[i], b[i])) return lt(a[i], b[i]) ? -1 : 1;
    }
    return 0;
  }
  static constexpr const char32_t* find(const char32_t* text, std::size_t size, const char32_t& c) {
    for (std::size_t i = 0; i < size; ++i) {
      if (eq(text[i], c)) return text + i;
    }
    return nullptr;
  }
};
using Text = std::basic_string<char32_t, TextTraits>;
using TextView = std::basic_string_view<char32_t, TextTraits>;

// Of UTF-8; an invalid part becomes U+FFFD.
Text text_of(std::string_view utf8, char32_t mark = 0);
// Half a surrogate pair becomes U+FFFD.
std::string utf8_of(TextView text);

// As Python's str.isspace() and its relatives say of one character.
bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_printable(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);

Text upper(TextView text);
Text lower(TextView text);
Text title(TextView text);
Text capitalize(TextView text);
Text swapcase(TextView text);

enum class Ends { kLeft, kRight, kBoth };
// Without white space at its ends, or without the characters of a set.
TextView strip(TextView text, Ends ends, std::optional<TextView> set = std::nullopt);

// The parts between white space; at most `num_max` cuts.
std::vector<TextView> split(TextView text, std::size_t num_max, bool from_right);
// REQUIRES: a separator that is not empty.
std::vector<TextView> split(TextView text, TextView separator, std::size_t num_max,
                            bool from_right);
std::vector<TextView> split_lines(TextView text, bool keep_ends);
Text replace(TextView text, TextView old, TextView by, std::size_t num_max);
// As many as do not overlap.
std::size_t count(TextView text, TextView part);

// What begins a text that an editor of Python's source would quote so: 'it', "it's".
Text repr(TextView text);
// Of JSON, with its quotes.
Text json_string(TextView text, bool ascii);
// &, <, >, " and ' as HTML's references.
Text escaped_html(TextView text);

}  // namespace lmtp::jinja
