#include "model_builder.h"

#include <utility>

#include "byte_alphabet.h"

namespace lmtp::tokenizer {

void ModelBuilder::reserve(std::size_t num_tokens, std::size_t num_bytes, std::size_t num_merges) {
  model_.vocab.reserve(num_tokens, num_bytes);
  model_.merges.reserve(num_merges);
}

Result<void> ModelBuilder::add_token(std::string_view spelling, std::int64_t id) {
  if (id < 0 || id > kTokenIdMax) {
    return Error{"token '" + std::string(spelling) + "' has id " + std::to_string(id) +
                 "; allowed are 0 to " + std::to_string(kTokenIdMax)};
  }
  const auto token = static_cast<TokenId>(id);
  buffer_.clear();
  if (append_spelt_bytes(spelling, buffer_)) {
    model_.vocab.set_bytes(token, buffer_);
    model_.vocab.index(token);
    if (buffer_.size() == 1) byte_tokens_[static_cast<unsigned char>(buffer_[0])] = token;
  } else {
    // No word can become it, since words are spelt in the alphabet; it decodes as it stands.
    model_.vocab.set_bytes(token, spelling);
  }
  return {};
}

Result<void> ModelBuilder::add_merge(std::string_view both) {
  const std::size_t space = both.find(' ');
  if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
    return Error{"merge '" + std::string(both) + "' is not two tokens with a space between"};
  }
  return add_merge(both.substr(0, space), both.substr(space + 1));
}

Result<void> ModelBuilder::add_merge(std::string_view left, std::string_view right) {
  const auto unknown = [](std::string_view spelling) {
    return Error{"a merge speaks of '" + std::string(spelling) +
                 "', which is not in the vocabulary"};
  };
  buffer_.clear();
  if (!append_spelt_bytes(left, buffer_)) return unknown(left);
  const std::size_t left_size = buffer_.size();
  if (!append_spelt_bytes(right, buffer_)) return unknown(right);
  const std::string_view bytes = buffer_;
  const TokenId left_id = find_bytes(bytes.substr(0, left_size));
  if (left_id < 0) return unknown(left);
  const TokenId right_id = find_bytes(bytes.substr(left_size));
  if (right_id < 0) return unknown(right);
  // Trainers number tokens as they merge them, so the next id is nearly always the one.
  const bool as_usual = last_merged_ >= 0 && model_.vocab.bytes(last_merged_ + 1) == bytes;
  const TokenId merged = as_usual ? last_merged_ + 1 : model_.vocab.find(bytes);
  if (merged < 0) return unknown(std::string(left) + std::string(right));
  last_merged_ = merged;
  model_.merges.add(left_id, right_id, {next_rank_++, merged});
  return {};
}

TokenId ModelBuilder::find_bytes(std::string_view bytes) const {
  if (bytes.size() == 1) return byte_tokens_[static_cast<unsigned char>(bytes[0])];
  return model_.vocab.find(bytes);
}

Result<void> ModelBuilder::add_added_token(AddedToken token) {
  const TokenId in_vocab = find(token.content);
  if (in_vocab >= 0) token.id = in_vocab;
  if (token.id < 0 || token.id > kTokenIdMax) {
    return Error{"added token '" + token.content + "' has id " + std::to_string(token.id) +
                 "; allowed are 0 to " + std::to_string(kTokenIdMax)};
  }
  if (in_vocab < 0) {
    buffer_.clear();
    const bool spelt = append_spelt_bytes(token.content, buffer_);
    model_.vocab.set_bytes(token.id, spelt ? std::string_view(buffer_) : token.content);
  }
  model_.added_tokens.push_back(std::move(token));
  return {};
}

TokenId ModelBuilder::find(std::string_view spelling) const {
  return find_spelling(model_, spelling);
}

TokenId find_spelling(const ByteBpeModel& model, std::string_view spelling) {
  for (const AddedToken& token : model.added_tokens) {
    if (token.content == spelling) return token.id;
  }
  std::string bytes;
  if (!append_spelt_bytes(spelling, bytes)) return -1;
  return model.vocab.find(bytes);
}

}  // namespace lmtp::tokenizer
