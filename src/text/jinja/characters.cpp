// What Python says of characters, and their cases.
#include <algorithm>
#include <iterator>

#include "text.h"

namespace lmtp::jinja {
namespace {

// `step` 2: every other character (capital and small letters alternate).
struct CaseRun {
  char32_t first, last;
  std::uint32_t step;
  std::int32_t delta;
};
struct CaseText {
  char32_t from;
  TextView to;
};

#include "python_text.inc"

template <std::size_t kNum>
bool is_in(const char32_t (&bounds)[kNum], char32_t c) {
  return (std::upper_bound(bounds, bounds + kNum, c) - bounds) % 2 == 1;
}

template <std::size_t kNum>
const CaseRun* find_run(const CaseRun (&runs)[kNum], char32_t c) {
  const auto* run = std::ranges::lower_bound(runs, c, {}, &CaseRun::last);
  if (run == std::end(runs) || c < run->first || (c - run->first) % run->step != 0) return nullptr;
  return run;
}

template <std::size_t kNum>
const CaseText* find_text(const CaseText (&texts)[kNum], char32_t c) {
  const auto* text = std::ranges::lower_bound(texts, c, {}, &CaseText::from);
  return text == std::end(texts) || text->from != c ? nullptr : text;
}

template <std::size_t kNum>
char32_t mapped(const CaseRun (&runs)[kNum], char32_t marked) {
  const CaseRun* run = find_run(runs, code_point(marked));
  return run == nullptr ? marked : marked + static_cast<char32_t>(run->delta);
}

void append_marked(TextView text, char32_t mark, Text& out) {
  for (const char32_t c : text) out += c | mark;
}

void append_upper(char32_t marked, Text& out) {
  const CaseText* text = find_text(kUpperTexts, code_point(marked));
  if (text == nullptr) {
    out += mapped(kUpper, marked);
  } else {
    append_marked(text->to, marked & kInput, out);
  }
}

void append_title(char32_t marked, Text& out) {
  const CaseText* text = find_text(kTitleTexts, code_point(marked));
  if (text == nullptr) {
    append_upper(marked, out);
  } else {
    append_marked(text->to, marked & kInput, out);
  }
}

bool is_cased(char32_t marked) {
  const char32_t c = code_point(marked);
  return is_upper(c) || is_lower(c) || is_title(c);
}

// Of what a word's last letter is sought across.
bool is_case_ignorable(char32_t marked) {
  const char32_t c = code_point(marked);
  constexpr TextView kSigns = U"'.:^`\u00a8\u00ad\u00af\u00b4\u00b7\u00b8\u2019";
  return kSigns.find(c) != TextView::npos || (c >= 0x300 && c < 0x370);
}

// A capital sigma that ends a word has another small letter.
bool ends_word(TextView text, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  std::size_t after = at + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return before > 0 && is_cased(text[before - 1]) &&
         (after == text.size() || !is_cased(text[after]));
}

void append_lower(TextView text, std::size_t at, Text& out) {
  const char32_t marked = text[at];
  const char32_t mark = marked & kInput;
  if (code_point(marked) == U'\u0130') {
    append_marked(U"i\u0307", mark, out);
  } else if (code_point(marked) == U'\u03A3') {
    out += (ends_word(text, at) ? U'\u03C2' : U'\u03C3') | mark;
  } else {
    out += mapped(kLower, marked);
  }
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}
bool is_alpha(char32_t c) { return is_in(kIsalpha, c); }
bool is_decimal(char32_t c) { return is_in(kIsdecimal, c); }
bool is_digit(char32_t c) { return is_in(kIsdigit, c); }
bool is_numeric(char32_t c) { return is_in(kIsnumeric, c); }
bool is_printable(char32_t c) { return is_in(kIsprintable, c); }
bool is_upper(char32_t c) { return find_run(kIsupper, c) != nullptr; }
bool is_lower(char32_t c) { return find_run(kIslower, c) != nullptr; }

bool is_title(char32_t c) {
  return c == 0x1C5 || c == 0x1C8 || c == 0x1CB || c == 0x1F2 || (c >= 0x1F88 && c <= 0x1F8F) ||
         (c >= 0x1F98 && c <= 0x1F9F) || (c >= 0x1FA8 && c <= 0x1FAF) || c == 0x1FBC ||
         c == 0x1FCC || c == 0x1FFC;
}

Text upper(TextView text) {
  Text out;
  for (const char32_t c : text) append_upper(c, out);
  return out;
}

Text lower(TextView text) {
  Text out;
  for (std::size_t i = 0; i < text.size(); ++i) append_lower(text, i, out);
  return out;
}

Text title(TextView text) {
  Text out;
  bool in_word = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_word) {
      append_lower(text, i, out);
    } else {
      append_title(text[i], out);
    }
    in_word = is_cased(text[i]);
  }
  return out;
}

Text capitalize(TextView text) {
  Text out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 0) {
      append_title(text[i], out);
    } else {
      append_lower(text, i, out);
    }
  }
  return out;
}

Text swapcase(TextView text) {
  Text out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_upper(code_point(text[i]))) {
      append_lower(text, i, out);
    } else if (is_lower(code_point(text[i]))) {
      append_upper(text[i], out);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace lmtp::jinja
