// TopLogprobs: the most probable tokens of one position.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp {

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;

  bool operator==(const TokenLogprob&) const = default;
};

// Shared and immutable; null: none.
using TokenLogprobs = std::shared_ptr<const std::vector<TokenLogprob>>;

// What SamplingParams::measures asks for of one position.
struct Measured {
  std::optional<float> entropy = {};  // of the probabilities that are reported, in nats
  int rank = 0;  // as many tokens are as probable as the position's or more; 0: it is not asked for

  bool operator==(const Measured&) const = default;
};

// As a vector of them, but a single one, as most streams ask for, is held in place.
class TopLogprobs {
 public:
  TopLogprobs() = default;
  TopLogprobs(std::initializer_list<TokenLogprob> tops) { assign({tops.begin(), tops.size()}); }
  TopLogprobs(const std::vector<TokenLogprob>& tops) { assign(tops); }  // NOLINT: the same thing
  TopLogprobs(const TopLogprobs& other) { assign(other); }
  TopLogprobs(TopLogprobs&& other) noexcept
      : size_(std::exchange(other.size_, 0)), one_(other.one_), many_(std::move(other.many_)) {}
  TopLogprobs& operator=(const TopLogprobs& other) { return *this = TopLogprobs(other); }
  TopLogprobs& operator=(TopLogprobs&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    one_ = other.one_;
    many_ = std::move(other.many_);
    return *this;
  }
  ~TopLogprobs() = default;

  void push_back(TokenLogprob top) {
    // The array's size is a power of two, so that one that is full is seen by the number held.
    if (size_ > 0 && std::has_single_bit(size_)) {
      auto grown = std::make_unique<TokenLogprob[]>(size_ * 2);
      std::ranges::copy(*this, grown.get());
      many_ = std::move(grown);
    }
    (many_ != nullptr ? many_[size_] : one_) = top;
    ++size_;
  }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const TokenLogprob* data() const { return many_ != nullptr ? many_.get() : &one_; }
  const TokenLogprob* begin() const { return data(); }
  const TokenLogprob* end() const { return data() + size_; }
  const TokenLogprob& operator[](std::size_t i) const { return data()[i]; }

  bool operator==(const TopLogprobs& other) const { return std::ranges::equal(*this, other); }

 private:
  void assign(std::span<const TokenLogprob> tops) {
    size_ = tops.size();
    if (size_ == 1) one_ = tops.front();
    if (size_ < 2) return;
    many_ = std::make_unique<TokenLogprob[]>(std::bit_ceil(size_));
    std::ranges::copy(tops, many_.get());
  }

  std::size_t size_ = 0;
  TokenLogprob one_;  // where there is one
  // Of more than one: [the next power of two]. Null: there is none, or one.
  std::unique_ptr<TokenLogprob[]> many_;
};

}  // namespace lmtp
