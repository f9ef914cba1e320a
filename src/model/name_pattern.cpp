#include "name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

namespace lmtp::model {
namespace {

constexpr std::size_t kPatternBytesMax = 10'000;
// Of one name, against excessive backtracking: without, and with a part of the budget.
constexpr std::uint32_t kStepsFew = 2'000;
constexpr std::uint32_t kStepsMax = 100'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// What PCRE2 has and Python's `re` has not. Empty: nothing.
std::string foreign_part(std::string_view expression) {
  constexpr std::string_view kEscapes = "AbBdDsSwWZafnrtvx";  // and digits
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const std::string_view rest = expression.substr(i);
    if (rest[0] == '\\') {
      ++i;
      if (rest.size() > 1 && is_letter(rest[1]) && kEscapes.find(rest[1]) == std::string::npos) {
        return std::string(rest.substr(0, 2));
      }
    } else if (in_class) {
      in_class = rest[0] != ']';
    } else if (rest[0] == '[') {
      in_class = true;
      if (rest.substr(1).starts_with('^')) ++i;
      if (expression.substr(i + 1).starts_with(']')) ++i;  // the first one is of the class
    } else if (rest.starts_with("(*")) {
      return "(*";
    } else if (rest.starts_with("(?") && rest.size() > 2) {
      constexpr std::string_view kBehind = ":=!<P#(>imsxa-";
      const bool looks_back = rest.size() > 3 && (rest[3] == '=' || rest[3] == '!');
      const bool is_group = rest.size() > 3 && (rest[3] == '<' || rest[3] == '=');
      if (kBehind.find(rest[2]) == std::string::npos || (rest[2] == '<' && !looks_back) ||
          (rest[2] == 'P' && !is_group)) {
        return std::string(rest.substr(0, 4));
      }
    }
  }
  return "";
}

// {,n} is {0,n} in Python; PCRE2 took it literally before its version 10.43.
std::string with_least(std::string_view expression) {
  std::string text;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    text += expression[i];
    if (expression[i] == '\\' && i + 1 < expression.size()) {
      text += expression[++i];
      continue;
    }
    std::size_t end = i + 2;
    while (end < expression.size() && is_digit(expression[end])) ++end;
    const bool is_bound = expression.substr(i).starts_with("{,") && end > i + 2 &&
                          expression.substr(end).starts_with('}');
    if (is_bound) text += '0';
  }
  return text;
}

}  // namespace

class NamePattern::Match {
 public:
  explicit Match(const pcre2_code* code)
      : data_(pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free) {}
  pcre2_match_data* data() const { return data_.get(); }

 private:
  std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data_;
};

Result<NamePattern> NamePattern::compile(const std::string& expression) {
  if (expression.size() > kPatternBytesMax) {
    return Error{ErrorCode::kInvalid, "has " + std::to_string(expression.size()) +
                                          " bytes; allowed are at most " +
                                          std::to_string(kPatternBytesMax)};
  }
  if (const std::string foreign = foreign_part(expression); !foreign.empty()) {
    return Error{ErrorCode::kInvalid, "is no regular expression of Python: " + foreign};
  }
  const std::string text = with_least(expression);
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_NEVER_UTF, &error, &where, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR why[256] = {};
    pcre2_get_error_message(error, why, sizeof(why));
    return Error{ErrorCode::kInvalid,
                 "is no regular expression: " + std::string(reinterpret_cast<const char*>(why)) +
                     " at byte " + std::to_string(where)};
  }
  NamePattern pattern;
  pattern.code_ = {code, [](pcre2_code* old) { pcre2_code_free(old); }};
  return pattern;
}

Result<bool> NamePattern::find(std::string_view name, bool to_end, MatchBudget& budget,
                               Match& match) const {
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  if (match.data() == nullptr || limits == nullptr) {
    return Error{ErrorCode::kUnavailable, "finds no memory"};
  }
  const std::uint32_t anchors = PCRE2_ANCHORED | (to_end ? PCRE2_ENDANCHORED : 0U);
  for (const std::uint32_t most : {kStepsFew, kStepsMax}) {
    if (most == kStepsMax && !budget.take()) break;
    pcre2_set_match_limit(limits.get(), most);
    const int found = pcre2_match(static_cast<const pcre2_code*>(code_.get()),
                                  reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0,
                                  anchors, match.data(), limits.get());
    if (found >= 0) return true;
    if (found == PCRE2_ERROR_NOMATCH) return false;
  }
  return Error{ErrorCode::kInvalid, "takes too many steps on '" + std::string(name) +
                                        "'; write it without repeated repetitions"};
}

Result<bool> NamePattern::matches(std::string_view name, MatchBudget& budget) const {
  Match match(static_cast<const pcre2_code*>(code_.get()));
  return find(name, true, budget, match);
}

Result<bool> NamePattern::matches_beginning(std::string_view name, MatchBudget& budget) const {
  Match match(static_cast<const pcre2_code*>(code_.get()));
  return find(name, false, budget, match);
}

Result<std::optional<std::string>> NamePattern::group_of(const char* group, std::string_view name,
                                                         MatchBudget& budget) const {
  Match match(static_cast<const pcre2_code*>(code_.get()));
  const Result<bool> found = find(name, false, budget, match);
  if (!found) return found.error();
  if (!*found) return std::optional<std::string>();
  std::string text(name.size() + 1, '\0');
  PCRE2_SIZE size = text.size();
  const int had = pcre2_substring_copy_byname(match.data(), reinterpret_cast<PCRE2_SPTR>(group),
                                              reinterpret_cast<PCRE2_UCHAR*>(text.data()), &size);
  text.resize(had == 0 ? size : 0);
  return std::optional<std::string>(std::move(text));
}

bool matches_name(const std::string& pattern, std::string_view module) {
  if (pattern.starts_with("re:")) {
    MatchBudget budget;
    const Result<NamePattern> compiled = NamePattern::compile(pattern.substr(3));
    if (!compiled) return false;
    const Result<bool> found = compiled->matches_beginning(module, budget);
    return found && *found;
  }
  return is_ending(pattern, module);
}

}  // namespace lmtp::model
