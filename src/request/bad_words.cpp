#include "lmtp/request/bad_words.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace lmtp {
namespace {

class BadWordMasks : public MaskSource {
 public:
  BadWordMasks(std::shared_ptr<const BadWords> words, std::shared_ptr<const MaskSource> inner)
      : words_(std::move(words)), inner_(std::move(inner)) {}

  Result<void> compute(std::span<const TokenId> before, std::span<const TokenId> generated,
                       NextTokens& next) const override {
    if (inner_ == nullptr) {
      std::ranges::fill(next.words, ~std::uint32_t{0});
    } else if (Result<void> done = inner_->compute(before, generated, next); !done) {
      return done;
    }
    if (!next.forced.empty()) cut_forced(generated, next);
    for (const std::vector<TokenId>& word : words_->ids) {
      const auto last = static_cast<std::size_t>(word.back());
      if (last / 32 >= next.words.size() || !ends_as(generated, word)) continue;
      const std::uint32_t bit = 1U << (last % 32);
      if ((next.words[last / 32] & bit) != 0) next.forced.clear();  // of that token, if any
      next.words[last / 32] &= ~bit;
    }
    return {};
  }

  // As little work as this is done at once.
  bool begin(std::span<const TokenId> before, std::span<const TokenId> generated, NextTokens& next,
             const Done& done) const override {
    if (inner_ != nullptr) return false;
    done(compute(before, generated, next));
    return true;
  }

  std::shared_ptr<const MaskSource> forked() const override {
    return std::make_shared<BadWordMasks>(words_, inner_ == nullptr ? nullptr : inner_->forked());
  }

 private:
  // Whether all of the word but its last token is there.
  static bool ends_as(std::span<const TokenId> tokens, std::span<const TokenId> word) {
    const std::size_t count = word.size() - 1;
    return tokens.size() >= count && std::ranges::equal(tokens.last(count), word.first(count));
  }

  // To those before the first that ends a word: it is asked for anew, and nothing may follow.
  void cut_forced(std::span<const TokenId> generated, NextTokens& next) const {
    std::vector<TokenId> tokens(generated.begin(), generated.end());
    const auto drawn =
        std::ranges::find_if(next.words, [](std::uint32_t word) { return word != 0; });
    tokens.push_back(static_cast<TokenId>((drawn - next.words.begin()) * 32) +
                     std::countr_zero(*drawn));
    for (std::size_t i = 0; i < next.forced.size(); ++i) {
      const bool ends_a_word = std::ranges::any_of(words_->ids, [&](const auto& word) {
        return word.back() == next.forced[i] && ends_as(tokens, word);
      });
      if (ends_a_word) return next.forced.resize(i);
      tokens.push_back(next.forced[i]);
    }
  }

  const std::shared_ptr<const BadWords> words_;
  const std::shared_ptr<const MaskSource> inner_;
};

}  // namespace

std::shared_ptr<const MaskSource> without(std::shared_ptr<const BadWords> words,
                                          std::shared_ptr<const MaskSource> inner) {
  return std::make_shared<BadWordMasks>(std::move(words), std::move(inner));
}

}  // namespace lmtp
