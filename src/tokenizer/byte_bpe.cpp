#include "byte_bpe.h"

#include <simdjson.h>
#include <algorithm>
#include <span>
#include <utility>

#include "gpt2_split.h"
#include "utf8.h"

namespace lmtp::tokenizer {

ByteBpe::ByteBpe(ByteBpeModel model) : model_(std::move(model)) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  special_.resize(static_cast<std::size_t>(model_.vocab.size()));
  for (const AddedToken& token : model_.added_tokens) {
    (token.normalized ? normalized : raw).push_back(token);
    special_[static_cast<std::size_t>(token.id)] = token.special;
  }
  raw_added_ = AddedTokens(std::move(raw));
  normalized_added_ = AddedTokens(std::move(normalized));
  for (int byte = 0; byte < 256; ++byte) {
    const char letter = static_cast<char>(byte);
    byte_tokens_[static_cast<std::size_t>(byte)] = model_.vocab.find({&letter, 1});
  }
}

std::string_view ByteBpe::token_bytes(TokenId id) const { return model_.vocab.bytes(id); }

bool ByteBpe::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<std::size_t>(id)];
}

std::vector<TokenId> ByteBpe::encode(std::string_view text) const {
  std::vector<TokenId> out;
  if (text.empty()) return out;
  std::unique_ptr<Scratch> scratch = take_scratch();
  out.reserve(text.size() / 4 + 4);
  if (simdjson::validate_utf8(text.data(), text.size())) {
    encode_text(text, *scratch, out);
  } else {
    std::string valid;
    append_valid_utf8(text, valid);
    encode_text(valid, *scratch, out);
  }
  give_back(std::move(scratch));
  return out;
}

std::unique_ptr<ByteBpe::Scratch> ByteBpe::take_scratch() const {
  {
    const std::lock_guard lock(scratches_mutex_);
    if (!scratches_.empty()) {
      std::unique_ptr<Scratch> scratch = std::move(scratches_.back());
      scratches_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<Scratch>();
}

void ByteBpe::give_back(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard lock(scratches_mutex_);
  if (scratches_.size() < kScratchesMax) scratches_.push_back(std::move(scratch));
}

void ByteBpe::encode_text(std::string_view text, Scratch& scratch,
                          std::vector<TokenId>& out) const {
  AddedTokens::Cursor cursor;
  std::size_t done = 0;
  while (const auto match = raw_added_.next(classes_, text, cursor)) {
    encode_between(text.substr(done, match->begin - done), scratch, out);
    out.push_back(match->token->id);
    done = match->end;
  }
  encode_between(text.substr(done), scratch, out);
}

void ByteBpe::encode_between(std::string_view text, Scratch& scratch,
                             std::vector<TokenId>& out) const {
  AddedTokens::Cursor cursor;
  std::size_t done = 0;
  while (const auto match = normalized_added_.next(classes_, text, cursor)) {
    encode_plain(text.substr(done, match->begin - done), scratch, out);
    out.push_back(match->token->id);
    done = match->end;
  }
  encode_plain(text.substr(done), scratch, out);
}

void ByteBpe::encode_plain(std::string_view text, Scratch& scratch,
                           std::vector<TokenId>& out) const {
  if (text.empty()) return;
  if (model_.add_prefix_space && text.front() != ' ') {
    scratch.prefixed.assign(1, ' ').append(text);
    text = scratch.prefixed;
  }
  if (!model_.splits_words) return encode_word(text, scratch, out);
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t end = gpt2_word_end(classes_, text, pos);
    encode_word(text.substr(pos, end - pos), scratch, out);
    pos = end;
  }
}

void ByteBpe::encode_word(std::string_view word, Scratch& scratch,
                          std::vector<TokenId>& out) const {
  if (word.size() > WordCache::kWordBytesMax) {
    merge_word(word, scratch.word);
    out.insert(out.end(), scratch.word.begin(), scratch.word.end());
    return;
  }
  WordCache::Slot& slot = scratch.cache.slot_of(word);
  if (WordCache::holds(slot, word)) {
    out.insert(out.end(), slot.tokens.begin(), slot.tokens.begin() + slot.num_tokens);
    return;
  }
  merge_word(word, scratch.word);
  out.insert(out.end(), scratch.word.begin(), scratch.word.end());
  WordCache::store(slot, word, scratch.word);
}

void ByteBpe::merge_word(std::string_view word, std::vector<TokenId>& tokens) const {
  tokens.clear();
  if (model_.ignore_merges) {
    if (const TokenId whole = model_.vocab.find(word); whole >= 0) {
      tokens.push_back(whole);
      return;
    }
  }
  bool after_unk = false;
  for (const char letter : word) {
    const TokenId token = byte_tokens_[static_cast<unsigned char>(letter)];
    const bool unknown = token < 0;
    if (!unknown) {
      tokens.push_back(token);
    } else if (model_.unk_id >= 0 && !(model_.fuse_unk && after_unk)) {
      tokens.push_back(model_.unk_id);
    }
    after_unk = unknown;
  }
  model_.merges.apply(tokens);
}

}  // namespace lmtp::tokenizer
