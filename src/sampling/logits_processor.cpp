#include "lmtp/sampling/logits_processor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "lmtp/base/check.h"

namespace lmtp::sampling {
namespace {

constexpr std::size_t kByteBits = 8;
using ByteBiases = std::array<float, kByteBits>;

// For each byte of a mask what is added to the logits of its eight tokens. -0 changes no float.
constexpr auto kBiasesOfByte = [] {
  std::array<ByteBiases, 256> all{};
  for (std::size_t byte = 0; byte < all.size(); ++byte) {
    for (std::size_t bit = 0; bit < kByteBits; ++bit) {
      const bool allowed = ((byte >> bit) & 1) != 0;
      all[byte][bit] = allowed ? -0.0F : -std::numeric_limits<float>::infinity();
    }
  }
  return all;
}();

// By additions, as a bias, so that what is not a number stays so; eight at a time, without
// branches.
void apply_mask(std::span<float> row, const TokenMask& mask) {
  constexpr std::size_t kWordBits = 64;
  for (std::size_t first = 0; first < row.size(); first += kByteBits) {
    const std::size_t at = first / kWordBits;
    const std::uint64_t word = at < mask.words.size() ? mask.words[at] : 0;
    const ByteBiases& biases = kBiasesOfByte[(word >> (first % kWordBits)) & 0xFF];
    const std::size_t count = std::min(kByteBits, row.size() - first);
    if (count == kByteBits) {
      for (std::size_t i = 0; i < kByteBits; ++i) row[first + i] += biases[i];
    } else {
      for (std::size_t i = 0; i < count; ++i) row[first + i] += biases[i];
    }
  }
}

}  // namespace

LogitsProcessor::LogitsProcessor(int vocab_size)
    : counts_(static_cast<std::size_t>(vocab_size), 0) {}

void LogitsProcessor::process(std::span<float> row, const SamplingParams& params,
                              std::span<const TokenId> tokens) {
  LMTP_CHECK(row.size() == counts_.size(), row.size(), counts_.size());
  if (params.has_penalties()) apply_penalties(row, params, tokens);
  if (params.logit_bias != nullptr) {
    const std::vector<TokenId>& ids = params.logit_bias->ids;
    const std::vector<float>& values = params.logit_bias->values;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<std::size_t>(ids[i]);
      if (id < row.size()) row[id] += values[i];
    }
  }
  if (params.mask != nullptr) apply_mask(row, *params.mask);
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
