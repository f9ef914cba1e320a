#include "fill_in.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "encode_text.h"

namespace lmtp::server {
namespace {

// The tokens before the first text, before the second one, and before what is filled in; that one
// is empty where the text before comes last.
struct FillInTokens {
  std::string_view before;
  std::string_view after;
  std::string_view middle;
};
constexpr FillInTokens kFillInTokens[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"[PREFIX]", "[SUFFIX]", ""},
};

// The token of that text; nothing: it is several, or another one.
std::optional<TokenId> token_of(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode_continuation(text);
  const bool is_one = ids && ids->size() == 1 && tokenizer.token_bytes(ids->front()) == text;
  return is_one ? std::optional(ids->front()) : std::nullopt;
}

// In one text; each costs a call of the tokenizer.
constexpr std::size_t kMarksMax = 1000;

// After the first characters of all of these in the text, ascending; no more than one beyond the
// limit.
std::vector<std::size_t> cuts_of(std::string_view text, const FillInTokens& tokens) {
  std::vector<std::size_t> cuts;
  for (const std::string_view mark : {tokens.before, tokens.after, tokens.middle}) {
    if (mark.empty()) continue;
    for (std::size_t at = text.find(mark); at != std::string_view::npos && cuts.size() <= kMarksMax;
         at = text.find(mark, at + 1)) {
      cuts.push_back(at + 1);
    }
  }
  std::ranges::sort(cuts);
  return cuts;
}

// What is filled in stands between two parts of somebody's file. Nothing in these is a special
// token, nor one of those tokens, which many models have as ordinary added ones: such a text is cut
// after its first character.
Result<std::vector<TokenId>> encode_part(const tokenizer::Tokenizer& tokenizer,
                                         std::string_view field, std::string_view text,
                                         const FillInTokens& tokens) {
  std::vector<std::size_t> cuts = cuts_of(text, tokens);
  if (cuts.size() > kMarksMax) {
    return Error{ErrorCode::kInvalid, std::string(field) + ": has more than " +
                                          std::to_string(kMarksMax) + " times the text of " +
                                          std::string(tokens.before) +
                                          " and its like; allowed are so many"};
  }
  cuts.push_back(text.size());
  std::vector<TokenId> all;
  std::size_t begin = 0;
  for (const std::size_t end : cuts) {
    const std::string_view piece = text.substr(begin, end - begin);
    const tokenizer::TextRange plain{0, piece.size()};
    auto ids = tokenizer.encode_continuation(piece, {&plain, 1});
    if (!ids) return Error{ErrorCode::kInvalid, std::string(field) + ": " + ids.error().message};
    all.insert(all.end(), ids->begin(), ids->end());
    begin = end;
  }
  return all;
}

}  // namespace

Result<std::vector<TokenId>> encode_fill_in(const registry::LoadedTokenizer& loaded,
                                            const std::string& before, const std::string& after,
                                            bool adds_bos) {
  if (!loaded) return no_tokenizer("suffix", loaded.error());
  const tokenizer::Tokenizer& tokenizer = **loaded;
  for (const FillInTokens& tokens : kFillInTokens) {
    const auto first = token_of(tokenizer, tokens.before);
    const auto second = token_of(tokenizer, tokens.after);
    const auto last = tokens.middle.empty() ? first : token_of(tokenizer, tokens.middle);
    if (!first || !second || !last) continue;
    const auto head = encode_part(tokenizer, "prompt", before, tokens);
    if (!head) return head.error();
    const auto tail = encode_part(tokenizer, "suffix", after, tokens);
    if (!tail) return tail.error();
    std::vector<TokenId> ids;
    const auto add = [&](TokenId mark, const std::vector<TokenId>& text) {
      ids.push_back(mark);
      ids.insert(ids.end(), text.begin(), text.end());
    };
    if (adds_bos && tokenizer.adds_bos() && tokenizer.bos_id() >= 0) {
      ids.push_back(tokenizer.bos_id());
    }
    const bool is_last = tokens.middle.empty();
    if (!is_last) add(*first, *head);
    add(*second, *tail);
    is_last ? add(*first, *head) : ids.push_back(*last);
    return ids;
  }
  return Error{ErrorCode::kInvalid,
               "suffix: is not supported by this model: tokens for filling in, such as "
               "<|fim_suffix|>, are needed; leave it out"};
}

}  // namespace lmtp::server
