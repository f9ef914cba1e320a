#include "split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/base/utf8.h"

namespace lmtp::tokenizer {
namespace {

// Limit of one search, against excessive backtracking. \s+$ on runs of 10,000 spaces takes half of
// it.
constexpr std::uint32_t kMatchStepsMax = 100'000'000;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 128> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

PatternScratch::PatternScratch(PatternScratch&& other) noexcept
    : classes_(std::move(other.classes_)),
      match_data_(std::exchange(other.match_data_, nullptr)),
      context_(std::exchange(other.context_, nullptr)),
      gave_up_(other.gave_up_) {}

PatternScratch::~PatternScratch() {
  pcre2_match_data_free(match_data_);
  pcre2_match_context_free(context_);
}

Result<SplitPattern> SplitPattern::regex(std::string_view pattern) {
  auto regex = make_byte_regex(pattern);
  Error error{ErrorCode::kInvalid, "the pattern '" + std::string(pattern) + "': "};
  if (!regex) {
    error.message += regex.error().message;
    return error;
  }
  auto compiled = compile(std::move(*regex));
  if (!compiled) {
    error.message += compiled.error().message;
    return error;
  }
  return compiled;
}

SplitPattern SplitPattern::literal(std::string_view text) {
  LMTP_CHECK(!text.empty());
  SplitPattern pattern;
  pattern.literal_ = text;
  return pattern;
}

SplitPattern SplitPattern::one_of(std::span<const CodePointRange> ranges) {
  return *compile(make_byte_regex(ranges));
}

Result<SplitPattern> SplitPattern::compile(ByteRegex regex) {
  int error = 0;
  PCRE2_SIZE where = 0;
  // Lines end at \n only, regardless of the library's build options.
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  LMTP_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(regex.pattern.data()), regex.pattern.size(),
      PCRE2_NEVER_UTF | PCRE2_NEVER_UCP | PCRE2_MULTILINE, &error, &where, context.get());
  if (code == nullptr) return Error{ErrorCode::kInvalid, message_of(error)};
  // Without it (a processor that PCRE2 does not know) matching is slower, not different.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  SplitPattern pattern;
  pattern.classes_ = std::move(regex.classes);
  pattern.code_ = {code, [](pcre2_code* old) { pcre2_code_free(old); }};
  return pattern;
}

bool SplitPattern::match_from(std::size_t from, PatternScratch& scratch, Match& match) const {
  if (scratch.gave_up_) return false;
  const std::string& classes = scratch.classes_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(classes.data());
  int found = pcre2_match(code_.get(), subject, classes.size(), from, PCRE2_NO_UTF_CHECK,
                          scratch.match_data_, scratch.context_);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter's limits are wider
    found = pcre2_match(code_.get(), subject, classes.size(), from, PCRE2_NO_JIT,
                        scratch.match_data_, scratch.context_);
  }
  if (found < 0) {
    if (found != PCRE2_ERROR_NOMATCH) scratch.gave_up_ = true;
    return false;
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.match_data_);
  match = {ends[0], ends[1]};
  return true;
}

SplitPattern::Finder SplitPattern::find_in(std::string_view text, PatternScratch& scratch) const {
  return Finder(*this, text, scratch);
}

SplitPattern::Finder::Finder(const SplitPattern& pattern, std::string_view text,
                             PatternScratch& scratch)
    : pattern_(pattern), text_(text), scratch_(scratch) {
  if (pattern_.code_ == nullptr) return;
  if (scratch_.match_data_ == nullptr) {
    scratch_.match_data_ = pcre2_match_data_create(1, nullptr);
    scratch_.context_ = pcre2_match_context_create(nullptr);
    LMTP_CHECK(scratch_.match_data_ != nullptr && scratch_.context_ != nullptr);
    pcre2_set_match_limit(scratch_.context_, kMatchStepsMax);
  }
  std::string& classes = scratch_.classes_;
  classes.resize(text.size());
  char* out = classes.data();
  for (std::size_t pos = 0; pos < text.size();) {
    if (static_cast<unsigned char>(text[pos]) < 0x80) {
      *out++ = text[pos++];
      continue;
    }
    const CodePoint point = code_point_at(text, pos);
    *out++ = static_cast<char>(pattern_.classes_.of(point.value));
    pos += point.num_bytes;
  }
  classes.resize(static_cast<std::size_t>(out - classes.data()));
  ascii_ = classes.size() == text.size();
}

std::optional<SplitPattern::Match> SplitPattern::Finder::next() {
  if (pattern_.code_ == nullptr) return next_literal();
  Match match{};
  while (from_ <= scratch_.classes_.size() && !text_.empty()) {
    if (!pattern_.match_from(from_, scratch_, match)) break;
    if (match.begin == match.end && match.end == last_end_) {
      ++from_;
      continue;
    }
    from_ = last_end_ = match.end;
    if (ascii_) return match;
    const std::size_t begin = byte_at(match.begin);
    return Match{begin, byte_at(match.end)};
  }
  from_ = scratch_.classes_.size() + 1;
  return std::nullopt;
}

std::optional<SplitPattern::Match> SplitPattern::Finder::next_literal() {
  const std::size_t begin = text_.find(pattern_.literal_, from_);
  if (begin == std::string_view::npos) return std::nullopt;
  from_ = begin + pattern_.literal_.size();
  return Match{begin, from_};
}

std::size_t SplitPattern::Finder::byte_at(std::size_t index) {
  for (; at_char_ < index; ++at_char_) at_byte_ += utf8_length(text_[at_byte_]);
  return at_byte_;
}

}  // namespace lmtp::tokenizer
