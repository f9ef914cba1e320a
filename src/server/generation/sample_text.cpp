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
                       std::size_t num_resumed, const SamplingParams& params, TextOptions options) {
  const auto resumed = prompt.last(num_resumed);
  text::TokenDecoder::Options decoder{*model.tokenizer, options.skip_special_tokens, false};
  decoder.at_start = is_without_text(decoder, prompt.first(prompt.size() - num_resumed));
  std::shared_ptr<const text::StopStrings> strings;
  if (!options.stop.empty()) {
    strings = std::make_shared<const text::StopStrings>(std::move(options.stop));
    std::vector<TokenId> ids = params.stop_token_ids;
    if (!params.ignore_eos) {
      const std::vector<TokenId>& eos = model.limits.eos_ids;
      ids.insert(ids.end(), eos.begin(), eos.end());
    }
    stops_ = std::make_shared<const Stops>(
        Stops{text::TextStopChecker(decoder, strings, resumed), std::move(ids)});
  }
  text_.emplace(decoder, std::move(strings), options.include_stop, resumed);
}

std::shared_ptr<StopChecker> SampleText::make_stop_checker() const {
  if (stops_ == nullptr) return nullptr;
  return std::make_shared<text::TextStopChecker>(stops_->checker);
}

text::StreamText::Piece SampleText::push(TokenId token, FinishReason reason) {
  const bool by_token =
      stops_ != nullptr && std::ranges::find(stops_->ids, token) != stops_->ids.end();
  const bool is_last = reason != FinishReason::kNone;
  return text_->push(token, is_last && by_token ? FinishReason::kLength : reason);
}

std::uint64_t fresh_seed() {
  std::random_device random;
  const std::uint64_t high = random();
  return ((high << 32 | random()) & ((std::uint64_t{1} << 53) - 1)) & ~(kSamples - 1);
}

}  // namespace lmtp::server
