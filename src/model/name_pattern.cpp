#include "name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

namespace lmtp::model {
namespace {

constexpr std::size_t kPatternBytesMax = 10'000;
constexpr std::uint32_t kMatchStepsMax = 100'000;  // of one name, against excessive backtracking

}  // namespace

Result<NamePattern> NamePattern::compile(const std::string& expression) {
  if (expression.size() > kPatternBytesMax) {
    return Error{ErrorCode::kInvalid, "has " + std::to_string(expression.size()) +
                                          " bytes; allowed are at most " +
                                          std::to_string(kPatternBytesMax)};
  }
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()),
                                   expression.size(), PCRE2_NEVER_UTF, &error, &where, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(error, text, sizeof(text));
    return Error{ErrorCode::kInvalid,
                 "is no regular expression: " + std::string(reinterpret_cast<const char*>(text)) +
                     " at byte " + std::to_string(where)};
  }
  NamePattern pattern;
  pattern.code_ = {code, [](pcre2_code* old) { pcre2_code_free(old); }};
  return pattern;
}

bool NamePattern::finds(std::string_view name, bool to_end) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> found(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  if (found == nullptr || limits == nullptr) return false;
  pcre2_set_match_limit(limits.get(), kMatchStepsMax);
  const std::uint32_t anchors = PCRE2_ANCHORED | (to_end ? PCRE2_ENDANCHORED : 0U);
  return pcre2_match(static_cast<const pcre2_code*>(code_.get()),
                     reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, anchors,
                     found.get(), limits.get()) >= 0;
}

bool matches_name(const std::string& pattern, std::string_view module) {
  if (pattern.starts_with("re:")) {
    const Result<NamePattern> compiled = NamePattern::compile(pattern.substr(3));
    return compiled.ok() && compiled->matches_beginning(module);
  }
  return is_ending(pattern, module);
}

}  // namespace lmtp::model
