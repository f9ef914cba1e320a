#include "added_tokens.h"

#include <algorithm>
#include <utility>

#include "utf8.h"

namespace lmtp::tokenizer {
namespace {

unsigned char byte_at(std::string_view text, std::size_t pos) {
  return static_cast<unsigned char>(text[pos]);
}

std::size_t previous_start(std::string_view text, std::size_t pos) {
  do {
    --pos;
  } while ((byte_at(text, pos) & 0xC0) == 0x80);
  return pos;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word_char(code_point_at(text, previous_start(text, begin)).value)) {
    return false;
  }
  return end == text.size() || !is_word_char(code_point_at(text, end).value);
}

std::size_t spaces_begin(const CharClasses& classes, std::string_view text, std::size_t pos,
                         std::size_t limit) {
  while (pos > limit) {
    const std::size_t before = previous_start(text, pos);
    if (classes.of(code_point_at(text, before).value) != CharClass::kSpace) break;
    pos = before;
  }
  return pos;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    const unsigned char first_a = byte_at(a.content, 0);
    const unsigned char first_b = byte_at(b.content, 0);
    return first_a != first_b ? first_a < first_b : a.content.size() > b.content.size();
  });
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    Range& range = by_first_byte_[byte_at(tokens_[i].content, 0)];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
  one_first_byte_ =
      !tokens_.empty() && tokens_.front().content.front() == tokens_.back().content.front();
}

std::optional<AddedTokens::Match> AddedTokens::next(const CharClasses& classes,
                                                    std::string_view text, Cursor& cursor) const {
  if (tokens_.empty()) return std::nullopt;
  for (;;) {
    const std::size_t pos = find_first_byte(text, cursor.search_from);
    if (pos == std::string_view::npos) return std::nullopt;
    const AddedToken* token = token_at(text, pos);
    if (token == nullptr) {
      cursor.search_from = pos + 1;
      continue;
    }
    Match match{token, pos, pos + token->content.size()};
    cursor.search_from = match.end;
    if (token->single_word && !stands_alone(text, match.begin, match.end)) continue;
    if (token->lstrip) match.begin = spaces_begin(classes, text, pos, cursor.taken_to);
    if (token->rstrip) match.end = classes.run_end(text, match.end, CharClass::kSpace);
    cursor.taken_to = match.end;
    return match;
  }
}

const AddedToken* AddedTokens::token_at(std::string_view text, std::size_t pos) const {
  const Range range = by_first_byte_[byte_at(text, pos)];
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const std::string& content = tokens_[i].content;
    if (text.compare(pos, content.size(), content) == 0) return &tokens_[i];
  }
  return nullptr;
}

std::size_t AddedTokens::find_first_byte(std::string_view text, std::size_t pos) const {
  if (one_first_byte_) return text.find(tokens_.front().content.front(), pos);
  while (pos < text.size() && by_first_byte_[byte_at(text, pos)].end == 0) ++pos;
  return pos < text.size() ? pos : std::string_view::npos;
}

}  // namespace lmtp::tokenizer
