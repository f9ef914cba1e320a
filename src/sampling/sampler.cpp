#include "lmtp/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/philox.h"
#include "lmtp/base/check.h"
#include "nucleus.h"

namespace lmtp::sampling {
namespace {

// Chunks of the row whose maxima bound the selection, for each selected token.
constexpr std::int64_t kChunksPerSelected = 4;

}  // namespace

Sampler::Sampler(const kernels::Backend& backend, int vocab_size)
    : backend_(backend),
      processor_(vocab_size),
      weights_(static_cast<std::size_t>(vocab_size)),
      indices_(static_cast<std::size_t>(vocab_size)),
      nucleus_(std::make_unique<Nucleus>()) {}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

Result<float> Sampler::score(std::span<const float> row, TokenId token) const {
  LMTP_CHECK(token >= 0 && static_cast<std::size_t>(token) < row.size(), token, row.size());
  const kernels::LogSumExp total =
      kernels::row_logsumexp(backend_, row.data(), static_cast<std::int64_t>(row.size()));
  if (!std::isfinite(total.log_sum)) {
    return Error{ErrorCode::kInternal, kNoNumbers};
  }
  return kernels::log_probability(row[static_cast<std::size_t>(token)], total);
}

Result<scheduler::TokenResult> Sampler::sample(std::span<float> row, const SamplingParams& params,
                                               std::span<const TokenId> tokens) {
  processor_.process(row, params, tokens);
  const auto count = static_cast<std::int64_t>(row.size());
  const kernels::LogSumExp total = kernels::row_logsumexp(backend_, row.data(), count);
  if (!std::isfinite(total.log_sum)) {
    return Error{ErrorCode::kInternal, kNoNumbers};
  }
  const int num_top = std::min(params.top_logprobs, kMaxTopLogprobs);
  select_best(row, std::clamp<std::int64_t>(num_top, 1, count));
  scheduler::TokenResult result;
  for (const Candidate& candidate : best_) {
    if (static_cast<int>(result.top_logprobs.size()) == num_top || std::isinf(candidate.value)) {
      break;
    }
    result.top_logprobs.push_back({candidate.id, kernels::log_probability(candidate.value, total)});
  }
  result.token = best_.front().id;
  if (params.temperature > 0.0F) {
    result.token =
        draw(row, best_.front().value, params, kernels::uniform(params.seed, tokens.size()));
  }
  result.logprob = kernels::log_probability(row[static_cast<std::size_t>(result.token)], total);
  const bool listed =
      std::any_of(result.top_logprobs.begin(), result.top_logprobs.end(),
                  [&](const TokenLogprob& entry) { return entry.token == result.token; });
  if (!listed) {
    result.top_logprobs.push_back({result.token, result.logprob});
  }
  return result;
}

// Fills best_ with the `count` greatest of the row, ties by the lowest id.
void Sampler::select_best(std::span<const float> row, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(row.size());
  // At least `count` elements are not below the count-th greatest of the chunks' maxima.
  const std::int64_t chunk = std::max<std::int64_t>(1, size / (kChunksPerSelected * count));
  values_.clear();
  for (std::int64_t first = 0; first < size; first += chunk) {
    values_.push_back(
        kernels::row_max(backend_, row.data() + first, std::min(chunk, size - first)));
  }
  const auto nth = values_.begin() + (count - 1);
  std::nth_element(values_.begin(), nth, values_.end(), std::greater<>());
  const std::int64_t found =
      kernels::row_select_at_least(backend_, row.data(), size, *nth, indices_.data(), size);
  best_.clear();
  for (std::int64_t i = 0; i < found; ++i) {
    const std::int32_t id = indices_[static_cast<std::size_t>(i)];
    best_.push_back({row[static_cast<std::size_t>(id)], id});
  }
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  };
  const auto end = best_.begin() + std::min<std::int64_t>(count, found);
  std::partial_sort(best_.begin(), end, best_.end(), better);
  best_.erase(end, best_.end());
}

TokenId Sampler::draw(std::span<const float> row, float max, const SamplingParams& params,
                      double number) {
  kernels::row_exp(backend_, row.data(), static_cast<std::int64_t>(row.size()), max,
                   params.temperature, weights_.data());
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < row.size()) {
    keep_best(row, params.top_k);
  }
  if (params.top_p < 1.0F) nucleus_->keep(weights_, params.top_p);
  return draw_of_weights(number);
}

// Sets the weights of all but the `count` best tokens to zero.
void Sampler::keep_best(std::span<const float> row, std::int64_t count) {
  select_best(row, count);
  values_.clear();
  for (const Candidate& candidate : best_) {
    values_.push_back(weights_[static_cast<std::size_t>(candidate.id)]);
  }
  std::fill(weights_.begin(), weights_.end(), 0.0F);
  for (std::size_t i = 0; i < best_.size(); ++i) {
    weights_[static_cast<std::size_t>(best_[i].id)] = values_[i];
  }
}

// The token at which the sum of the weights, in order of ids, passes number * total.
TokenId Sampler::draw_of_weights(double number) const {
  double total = 0.0;
  for (const float weight : weights_) total += static_cast<double>(weight);
  const double target = number * total;
  double sum = 0.0;
  TokenId last = 0;
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    if (weights_[id] > 0.0F) {
      last = static_cast<TokenId>(id);
      sum += static_cast<double>(weights_[id]);
      if (sum > target) break;
    }
  }
  return last;
}

}  // namespace lmtp::sampling
