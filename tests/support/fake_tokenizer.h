// A tokenizer without files: the first 256 ids are the bytes, the others pieces of text that end
// anywhere, also inside a character; the last two are special.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::testing {

class FakeTokenizer : public tokenizer::Tokenizer {
 public:
  // `has_eos`: whether it says which token ends a text, by which answers would end.
  explicit FakeTokenizer(int vocab_size, bool has_eos = true) : has_eos_(has_eos) {
    const std::string text = "Es war einmal ein süßes Mädchen, 5 € und 𝄞. \n<b>été</b> ";
    for (int id = 0; id < vocab_size; ++id) {
      const auto at = static_cast<std::size_t>(id);
      bytes_.push_back(id < 256 ? std::string(1, static_cast<char>(id))
                                : (text + text).substr(at % text.size(), 1 + at % 5));
    }
    bytes_.at(at(bos_id())) = "<s>";
    bytes_.at(at(last())) = "</s>";
  }

  Result<std::vector<TokenId>> encode(std::string_view text) const override {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  // It never finds special tokens.
  Result<std::vector<TokenId>> encode_around(
      std::string_view text, std::span<const tokenizer::TextRange> /*plain*/) const override {
    return encode(text);
  }
  std::string decode(std::span<const TokenId> ids) const override {
    std::string bytes;
    for (const TokenId id : ids) bytes += token_bytes(id);
    tokenizer::StreamDecoder decoder;
    std::string text = decoder.push(bytes);
    return text + decoder.finish();
  }
  std::string_view token_bytes(TokenId id) const override {
    if (id < 0 || id >= vocab_size()) return {};
    return bytes_[at(id)];
  }
  bool is_special(TokenId id) const override { return id == bos_id() || id == last(); }
  int vocab_size() const override { return static_cast<int>(bytes_.size()); }
  TokenId bos_id() const override { return vocab_size() - 2; }
  TokenId eos_id() const override { return has_eos_ ? last() : -1; }
  bool adds_bos() const override { return true; }
  std::size_t spaces_dropped_max() const override { return 0; }

 private:
  TokenId last() const { return vocab_size() - 1; }
  static std::size_t at(TokenId id) { return static_cast<std::size_t>(id); }

  const bool has_eos_;
  std::vector<std::string> bytes_;
};

}  // namespace lmtp::testing
