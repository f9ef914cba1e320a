#include "lmtp/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lmtp/base/check.h"
#include "lmtp/sampling/philox.h"

namespace lmtp::sampling {
namespace {

// A nucleus is looked for among so many best tokens, then among eight times as many, and so on.
constexpr std::int64_t kFirstNucleus = 64;
constexpr std::int64_t kNucleusGrowth = 8;
// Chunks whose maxima are looked at, for each token that is selected.
constexpr std::int64_t kChunksPerSelected = 4;

const char* const kNoNumbers =
    "the model's logits at this position are not numbers, or no token is possible";

}  // namespace

Sampler::Sampler(const kernels::Backend& backend, int vocab_size)
    : backend_(backend),
      processor_(vocab_size),
      weights_(static_cast<std::size_t>(vocab_size)),
      indices_(static_cast<std::size_t>(vocab_size)) {}

Result<float> Sampler::score(std::span<const float> row, TokenId token) const {
  LMTP_CHECK(token >= 0 && static_cast<std::size_t>(token) < row.size(), token, row.size());
  const float total =
      kernels::row_logsumexp(backend_, row.data(), static_cast<std::int64_t>(row.size()));
  if (!std::isfinite(total)) {
    return Error{kNoNumbers};
  }
  return row[static_cast<std::size_t>(token)] - total;
}

Result<scheduler::TokenResult> Sampler::sample(std::span<float> row,
                                               const protocol::SamplingParams& params,
                                               std::span<const TokenId> tokens) {
  processor_.process(row, params, tokens);
  const auto count = static_cast<std::int64_t>(row.size());
  const float total = kernels::row_logsumexp(backend_, row.data(), count);
  if (!std::isfinite(total)) {
    return Error{kNoNumbers};
  }
  const int num_top = std::min(params.top_logprobs, protocol::kMaxTopLogprobs);
  select_best(row, std::clamp<std::int64_t>(num_top, 1, count));
  scheduler::TokenResult result;
  for (const Candidate& candidate : best_) {
    if (static_cast<int>(result.top_logprobs.size()) == num_top || std::isinf(candidate.value)) {
      break;
    }
    result.top_logprobs.push_back({candidate.id, candidate.value - total});
  }
  result.token = best_.front().id;
  if (params.temperature > 0.0F) {
    result.token = draw(row, best_.front().value, params, uniform(params.seed, tokens.size()));
  }
  result.logprob = row[static_cast<std::size_t>(result.token)] - total;
  const bool listed =
      std::any_of(result.top_logprobs.begin(), result.top_logprobs.end(),
                  [&](const protocol::TokenLogprob& entry) { return entry.token == result.token; });
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
  chunk_maxima_.clear();
  for (std::int64_t first = 0; first < size; first += chunk) {
    chunk_maxima_.push_back(
        kernels::row_max(backend_, row.data() + first, std::min(chunk, size - first)));
  }
  const auto nth = chunk_maxima_.begin() + (count - 1);
  std::nth_element(chunk_maxima_.begin(), nth, chunk_maxima_.end(), std::greater<>());
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

TokenId Sampler::draw(std::span<const float> row, float max, const protocol::SamplingParams& params,
                      double number) {
  kernels::row_exp(backend_, row.data(), static_cast<std::int64_t>(row.size()), max,
                   params.temperature, weights_.data());
  if (params.top_k > 0 || params.top_p < 1.0F) {
    return draw_of_best(row, params, number);
  }
  return draw_of_all(number);
}

TokenId Sampler::draw_of_all(double number) const {
  double total = 0.0;
  for (const float weight : weights_) {
    total += static_cast<double>(weight);
  }
  const double target = number * total;
  double sum = 0.0;
  TokenId last = 0;
  for (std::size_t id = 0; id < weights_.size(); ++id) {
    if (weights_[id] > 0.0F) {
      last = static_cast<TokenId>(id);
      sum += static_cast<double>(weights_[id]);
      if (sum > target) {
        break;
      }
    }
  }
  return last;
}

// The nucleus is the shortest list of best tokens, among the top_k, that holds top_p of their
// weight.
TokenId Sampler::draw_of_best(std::span<const float> row, const protocol::SamplingParams& params,
                              double number) {
  const auto size = static_cast<std::int64_t>(row.size());
  const std::int64_t limit = params.top_k > 0 ? std::min<std::int64_t>(params.top_k, size) : size;
  double total = 0.0;
  if (limit == size) {
    for (const float weight : weights_) {
      total += static_cast<double>(weight);
    }
  } else {
    select_best(row, limit);
    for (const Candidate& candidate : best_) {
      total += static_cast<double>(weights_[static_cast<std::size_t>(candidate.id)]);
    }
  }
  const double wanted = static_cast<double>(params.top_p) * total;
  std::int64_t selected = limit == size ? std::min(kFirstNucleus, size) : limit;
  for (;;) {
    if (limit == size) {
      select_best(row, selected);
    }
    double sum = 0.0;
    std::size_t length = 0;
    while (length < best_.size() && (length == 0 || sum < wanted)) {
      sum += static_cast<double>(weights_[static_cast<std::size_t>(best_[length].id)]);
      ++length;
    }
    if (sum < wanted && selected < limit) {
      selected = std::min(selected * kNucleusGrowth, limit);
      continue;
    }
    const double target = number * sum;
    double reached = 0.0;
    for (std::size_t i = 0; i < length; ++i) {
      reached += static_cast<double>(weights_[static_cast<std::size_t>(best_[i].id)]);
      if (reached > target) {
        return best_[i].id;
      }
    }
    return best_[length - 1].id;
  }
}

}  // namespace lmtp::sampling
