#include "sample_text.h"

#include <algorithm>
#include <random>
#include <utility>

namespace lmtp::server {
namespace {

// Samples of a request at most, as a power of two.
constexpr std::uint64_t kSamples = 256;

}  // namespace

SampleText::SampleText(const registry::ReadyModel& model, std::span<const TokenId> prompt,
                       std::size_t num_resumed, const SamplingParams& params, TextOptions options)
    : decoder_{*model.tokenizer, options.skip_special_tokens, false},
      include_stop_(options.include_stop),
      tokens_(prompt.begin(), prompt.end()),
      num_before_(prompt.size() - num_resumed) {
  decoder_.at_start = is_without_text(decoder_, prompt.first(num_before_));
  if (!options.stop.empty()) {
    auto strings = std::make_shared<const text::StopStrings>(std::move(options.stop));
    std::vector<TokenId> ids = params.stop_token_ids;
    if (!params.ignore_eos) {
      const std::vector<TokenId>& eos = model.limits.eos_ids;
      ids.insert(ids.end(), eos.begin(), eos.end());
    }
    text::TextStopChecker checker(decoder_, strings, prompt.last(num_resumed));
    stops_ = std::make_shared<const Stops>(
        Stops{std::move(checker), std::move(ids), std::move(strings)});
  }
  begin_text();
}

void SampleText::begin_text() {
  const auto tokens = std::span<const TokenId>(tokens_);
  text_.emplace(decoder_, stops_ != nullptr ? stops_->strings : nullptr, include_stop_,
                tokens.subspan(num_before_));
}

void SampleText::backtrack(std::size_t num_tokens) {
  if (num_tokens == 0) return;
  tokens_.resize(tokens_.size() - num_tokens);
  num_before_ = std::min(num_before_, tokens_.size());
  decoder_.at_start =
      is_without_text(decoder_, std::span<const TokenId>(tokens_).first(num_before_));
  begin_text();
}

std::shared_ptr<StopChecker> SampleText::make_stop_checker() const {
  if (stops_ == nullptr) return nullptr;
  return std::make_shared<text::TextStopChecker>(stops_->checker);
}

text::StreamText::Piece SampleText::push(TokenId token, FinishReason reason) {
  const bool by_token =
      stops_ != nullptr && std::ranges::find(stops_->ids, token) != stops_->ids.end();
  const bool is_last = reason != FinishReason::kNone;
  if (token != kNoToken) tokens_.push_back(token);
  return text_->push(token, is_last && by_token ? FinishReason::kLength : reason);
}

std::uint64_t fresh_seed() {
  std::random_device random;
  const std::uint64_t high = random();
  return ((high << 32 | random()) & ((std::uint64_t{1} << 53) - 1)) & ~(kSamples - 1);
}

}  // namespace lmtp::server
