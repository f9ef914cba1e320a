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

// What was chosen is always in the list.
void list_token(scheduler::TokenResult& result) {
  const bool listed =
      std::any_of(result.top_logprobs.begin(), result.top_logprobs.end(),
                  [&](const TokenLogprob& entry) { return entry.token == result.token; });
  if (!listed) result.top_logprobs.push_back({result.token, result.logprob});
}

}  // namespace

Sampler::Sampler(const kernels::Backend& backend, int vocab_size)
    : backend_(backend),
      processor_(vocab_size),
      weights_(static_cast<std::size_t>(vocab_size)),
      indices_(static_cast<std::size_t>(vocab_size)),
      nucleus_(std::make_unique<Nucleus>()) {}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

Result<kernels::LogSumExp> Sampler::total_of(std::span<const float> row) const {
  const kernels::LogSumExp total =
      kernels::row_logsumexp(backend_, row.data(), static_cast<std::int64_t>(row.size()));
  if (!std::isfinite(total.log_sum)) return Error{ErrorCode::kInternal, kNoNumbers};
  return total;
}

Result<scheduler::TokenResult> Sampler::score(std::span<float> row, const SamplingParams& params,
                                              std::span<const TokenId> tokens, TokenId token) {
  if (!params.raw_logprobs) processor_.process(row, params, tokens);
  return score(row, token, params.top_logprobs);
}

Result<scheduler::TokenResult> Sampler::score(std::span<const float> row, TokenId token,
                                              int num_top) {
  LMTP_CHECK(token >= 0 && static_cast<std::size_t>(token) < row.size(), token, row.size());
  const Result<kernels::LogSumExp> total = total_of(row);
  if (!total.ok()) return total.error();
  num_top = std::min(num_top, kMaxTopLogprobs);
  scheduler::TokenResult result;
  if (num_top > 0) {
    select_best(row, std::min<std::int64_t>(num_top, static_cast<std::int64_t>(row.size())));
    list_best(num_top, *total, result);
  }
  result.token = token;
  result.logprob = kernels::log_probability(row[static_cast<std::size_t>(token)], *total);
  if (num_top > 0) list_token(result);
  return result;
}

Result<scheduler::TokenResult> Sampler::sample(std::span<float> row, const SamplingParams& params,
                                               std::span<const TokenId> tokens) {
  const bool is_raw = params.raw_logprobs && has_edits(params);
  if (is_raw) raw_.assign(row.begin(), row.end());
  processor_.process(row, params, tokens);
  const Result<kernels::LogSumExp> total = total_of(row);
  if (!total.ok()) return total.error();
  const int num_top = std::min(params.top_logprobs, kMaxTopLogprobs);
  const auto count = static_cast<std::int64_t>(row.size());
  select_best(row, is_raw ? 1 : std::clamp<std::int64_t>(num_top, 1, count));
  scheduler::TokenResult result;
  if (!is_raw) list_best(num_top, *total, result);
  result.token = best_.front().id;
  if (params.temperature > 0.0F) {
    result.token =
        draw(row, best_.front().value, params, kernels::uniform(params.seed, tokens.size()));
  }
  if (is_raw) {
    Result<scheduler::TokenResult> reported = score(raw_, result.token, num_top);
    if (!reported.ok()) return reported.error();
    result = std::move(*reported);
  } else {
    result.logprob = kernels::log_probability(row[static_cast<std::size_t>(result.token)], *total);
  }
  list_token(result);
  return result;
}

// Those of best_ that are possible.
void Sampler::list_best(int num_top, const kernels::LogSumExp& total,
                        scheduler::TokenResult& result) const {
  for (const Candidate& candidate : best_) {
    if (static_cast<int>(result.top_logprobs.size()) == num_top || std::isinf(candidate.value)) {
      break;
    }
    result.top_logprobs.push_back({candidate.id, kernels::log_probability(candidate.value, total)});
  }
}

// Fills best_ with the `count` greatest of the row that are possible, ties by the lowest id.
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
  // Impossible tokens are not: there may be as many as a mask forbids.
  const float least = std::max(*nth, std::numeric_limits<float>::lowest());
  const std::int64_t found =
      kernels::row_select_at_least(backend_, row.data(), size, least, indices_.data(), size);
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
