#include "added_tokens.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/utf8.h"

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
  std::vector<std::pair<std::string_view, std::int32_t>> entries;
  for (std::size_t i = tokens_.size(); i-- > 0;) {
    entries.emplace_back(tokens_[i].content, static_cast<std::int32_t>(i));
    begins_[byte_at(tokens_[i].content, 0)] = true;
    has_special_ |= tokens_[i].special;
  }
  trie_ = ByteTrie(std::move(entries));
  one_first_byte_ = std::count(begins_.begin(), begins_.end(), true) == 1;
}

bool AddedTokens::Plain::touches(std::size_t begin, std::size_t end) const {
  const auto first = std::ranges::partition_point(
      ranges, [&](const TextRange& range) { return range.end <= begin + offset; });
  return first != ranges.end() && first->begin < end + offset;
}

std::optional<AddedTokens::Match> AddedTokens::next(const CharClasses& classes,
                                                    std::string_view text, Plain plain,
                                                    Cursor& cursor) const {
  if (tokens_.empty()) return std::nullopt;
  for (;;) {
    const std::size_t pos = find_first_byte(text, cursor.search_from);
    if (pos == std::string_view::npos) return std::nullopt;
    const AddedToken* token = token_at(text, plain, pos);
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

const AddedToken* AddedTokens::token_at(std::string_view text, Plain plain, std::size_t pos) const {
  const AddedToken* longest = nullptr;
  trie_.for_each_prefix(text.substr(pos), [&](std::size_t size, std::int32_t index) {
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    if (!token.special || !plain.touches(pos, pos + size)) longest = &token;
  });
  return longest;
}

std::size_t AddedTokens::find_first_byte(std::string_view text, std::size_t pos) const {
  if (one_first_byte_) return text.find(tokens_.front().content.front(), pos);
  while (pos < text.size() && !begins_[byte_at(text, pos)]) ++pos;
  return pos < text.size() ? pos : std::string_view::npos;
}

}  // namespace lmtp::tokenizer
