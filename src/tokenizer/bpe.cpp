#include "bpe.h"

#include <array>
#include <utility>

#include "byte_alphabet.h"
#include "lmtp/base/utf8.h"

namespace lmtp::tokenizer {
namespace {

// "<0x0A>"
std::string byte_token(std::size_t byte) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 0xF], '>'};
}

}  // namespace

void Bpe::append_tokens(std::string_view word, std::vector<TokenId>& out) const {
  if (options_.ignore_merges) {
    if (const TokenId whole = vocab_.find(word); whole >= 0) {
      out.push_back(whole);
      return;
    }
  }
  const std::size_t begin = out.size();
  if (options_.byte_level) {
    append_bytes(word, out);
  } else {
    append_chars(word, out);
  }
  merges_.apply(out, begin);
}

void Bpe::append_bytes(std::string_view word, std::vector<TokenId>& out) const {
  bool after_unk = false;
  for (const char letter : word) {
    const TokenId token = byte_tokens_[static_cast<unsigned char>(letter)];
    const bool unknown = token < 0;
    if (!unknown) {
      out.push_back(token);
    } else if (unk_id_ >= 0 && !(options_.fuse_unk && after_unk)) {
      out.push_back(unk_id_);
    }
    after_unk = unknown;
  }
}

void Bpe::append_chars(std::string_view word, std::vector<TokenId>& out) const {
  // Hugging Face holds an unknown token back until a known character or the end follows, past byte
  // tokens; where only some bytes have tokens this order shows.
  bool unk_held = false;
  const auto release = [&] {
    if (unk_held) out.push_back(unk_id_);
    unk_held = false;
  };
  for (std::size_t pos = 0; pos < word.size();) {
    const std::string_view character = word.substr(pos, code_point_at(word, pos).num_bytes);
    pos += character.size();
    if (const TokenId token = vocab_.find(character); token >= 0) {
      release();
      out.push_back(token);
      continue;
    }
    if (options_.byte_fallback && append_byte_fallback(character, out)) continue;
    if (unk_id_ < 0) continue;
    if (!options_.fuse_unk) release();
    unk_held = true;
  }
  release();
}

bool Bpe::append_byte_fallback(std::string_view character, std::vector<TokenId>& out) const {
  for (const char letter : character) {
    if (byte_tokens_[static_cast<unsigned char>(letter)] < 0) return false;
  }
  for (const char letter : character) {
    out.push_back(byte_tokens_[static_cast<unsigned char>(letter)]);
  }
  return true;
}

TokenId Bpe::find(std::string_view spelling) const {
  if (!options_.byte_level) return vocab_.find(spelling);
  std::string bytes;
  if (append_spelt_bytes(spelling, bytes)) return vocab_.find(bytes);
  const auto entry = unspelt_.find(std::string(spelling));
  return entry == unspelt_.end() ? -1 : entry->second;
}

bool Bpe::never_crosses(std::string_view mark) const {
  if (options_.byte_level || options_.ignore_merges || vocab_.find(mark) < 0) return false;
  for (TokenId id = 0; id < vocab_.size(); ++id) {
    std::string_view text = vocab_.bytes(id);
    while (text.starts_with(mark)) text.remove_prefix(mark.size());
    if (text.find(mark) != std::string_view::npos) return false;
  }
  return true;
}

BpeBuilder::BpeBuilder(Bpe::Options options) : bpe_(new Bpe) {
  bpe_->options_ = std::move(options);
  one_byte_tokens_.fill(-1);
}

void BpeBuilder::reserve(std::size_t num_tokens, std::size_t num_bytes, std::size_t num_merges) {
  bpe_->vocab_.reserve(num_tokens, num_bytes);
  bpe_->merges_.reserve(num_merges);
}

// Appends a spelling's bytes to buffer_; false if a character is not in the alphabet.
bool BpeBuilder::append_part(std::string_view spelling) {
  if (bpe_->options_.byte_level) return append_spelt_bytes(spelling, buffer_);
  buffer_.append(spelling);
  return true;
}

Result<void> BpeBuilder::add_token(std::string_view spelling, std::int64_t id) {
  if (id < 0 || id > kTokenIdMax) {
    return Error{ErrorCode::kInvalid, "token '" + std::string(spelling) + "' has id " +
                                          std::to_string(id) + "; allowed are 0 to " +
                                          std::to_string(kTokenIdMax)};
  }
  const auto token = static_cast<TokenId>(id);
  ++bpe_->num_tokens_;
  buffer_.clear();
  if (append_part(spelling)) {
    bpe_->vocab_.set_bytes(token, buffer_);
    bpe_->vocab_.index(token);
    if (buffer_.size() == 1) one_byte_tokens_[static_cast<unsigned char>(buffer_[0])] = token;
  } else {
    // No word can become this token, since words are spelt in the alphabet; it decodes to its
    // spelling.
    bpe_->vocab_.set_bytes(token, spelling);
    bpe_->unspelt_.insert_or_assign(std::string(spelling), token);
  }
  return {};
}

Result<void> BpeBuilder::add_merge(std::string_view both) {
  const std::size_t space = both.find(' ');
  if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
    return Error{ErrorCode::kInvalid,
                 "merge '" + std::string(both) + "' is not two tokens with a space between"};
  }
  return add_merge(both.substr(0, space), both.substr(space + 1));
}

Result<void> BpeBuilder::add_merge(std::string_view left, std::string_view right) {
  const auto unknown = [](std::string_view spelling) {
    return Error{ErrorCode::kInvalid, "a merge speaks of '" + std::string(spelling) +
                                          "', which is not in the vocabulary"};
  };
  buffer_.clear();
  if (!append_part(left)) return unknown(left);
  const std::size_t left_size = buffer_.size();
  if (!append_part(right)) return unknown(right);
  const std::string_view bytes = buffer_;
  const TokenId left_id = find_bytes(bytes.substr(0, left_size));
  if (left_id < 0) return unknown(left);
  const TokenId right_id = find_bytes(bytes.substr(left_size));
  if (right_id < 0) return unknown(right);
  // Trainers number tokens in the order of merges, so it is nearly always the next id.
  const bool as_usual = last_merged_ >= 0 && bpe_->vocab_.bytes(last_merged_ + 1) == bytes;
  const TokenId merged = as_usual ? last_merged_ + 1 : bpe_->vocab_.find(bytes);
  if (merged < 0) return unknown(std::string(left) + std::string(right));
  last_merged_ = merged;
  bpe_->merges_.add(left_id, right_id, {next_rank_++, merged});
  return {};
}

TokenId BpeBuilder::find_bytes(std::string_view bytes) const {
  if (bytes.size() == 1) return one_byte_tokens_[static_cast<unsigned char>(bytes[0])];
  return bpe_->vocab_.find(bytes);
}

std::unique_ptr<Bpe> BpeBuilder::take() {
  if (bpe_->options_.byte_level) {
    bpe_->byte_tokens_ = one_byte_tokens_;
  } else {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      bpe_->byte_tokens_[byte] = bpe_->vocab_.find(byte_token(byte));
    }
  }
  if (!bpe_->options_.unk_token.empty()) bpe_->unk_id_ = bpe_->find(bpe_->options_.unk_token);
  return std::move(bpe_);
}

}  // namespace lmtp::tokenizer
