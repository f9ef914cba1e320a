#include "lmtp/sampling/logits_processor.h"

#include "lmtp/base/check.h"

namespace lmtp::sampling {

LogitsProcessor::LogitsProcessor(int vocab_size)
    : counts_(static_cast<std::size_t>(vocab_size), 0) {}

void LogitsProcessor::process(std::span<float> row, const SamplingParams& params,
                              std::span<const TokenId> tokens) {
  LMTP_CHECK(row.size() == counts_.size(), row.size(), counts_.size());
  if (params.has_penalties()) apply_penalties(row, params, tokens);
  if (params.logit_bias == nullptr) return;
  const std::vector<TokenId>& ids = params.logit_bias->ids;
  const std::vector<float>& values = params.logit_bias->values;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    if (id < row.size()) row[id] += values[i];
  }
}

void LogitsProcessor::apply_penalties(std::span<float> row, const SamplingParams& params,
                                      std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    const auto id = static_cast<std::size_t>(token);
    if (id < counts_.size()) ++counts_[id];
  }
  for (const TokenId token : tokens) {
    const auto id = static_cast<std::size_t>(token);
    if (id >= counts_.size() || counts_[id] == 0) continue;
    float& logit = row[id];
    logit = logit > 0.0F ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(counts_[id]);
    counts_[id] = 0;
  }
}

}  // namespace lmtp::sampling
