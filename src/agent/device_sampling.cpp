#include "device_sampling.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/request/logit_bias.h"
#include "lmtp/sampling/sampler.h"

namespace lmtp::agent {
namespace {

template <typename T>
std::size_t bytes_of(std::size_t count) {
  return count * sizeof(T);
}

std::size_t raw_bytes(int vocab_size, const BatchLimits& batch) {
  return bytes_of<float>(static_cast<std::size_t>(batch.rows_max()) *
                         static_cast<std::size_t>(vocab_size));
}

std::size_t out_bytes_max(int vocab_size, const BatchLimits& batch) {
  const auto num_top = static_cast<std::size_t>(std::min(kernels::kSampleTopMax, vocab_size));
  return static_cast<std::size_t>(batch.max_tokens) *
         (sizeof(kernels::SampleRecord) + bytes_of<kernels::TopToken>(num_top));
}

}  // namespace

// A SCORE may ask for the best tokens at each position of a step.
DeviceSampling::DeviceSampling(kernels::Stream& stream, int vocab_size, const BatchLimits& batch)
    : stream_(stream),
      vocab_size_(vocab_size),
      biases_(stream, vocab_size, batch.rows_max()),
      count_of_(static_cast<std::size_t>(vocab_size)),
      raw_(kernels::Memory::allocate(stream.backend(), raw_bytes(vocab_size, batch))),
      out_(stream) {
  out_.reserve(out_bytes_max(vocab_size, batch));
}

std::int64_t DeviceSampling::num_bytes(int vocab_size, const BatchLimits& batch) {
  return DeviceBiases::num_bytes(vocab_size, batch.rows_max()) +
         static_cast<std::int64_t>(raw_bytes(vocab_size, batch) + out_bytes_max(vocab_size, batch));
}

// Appends to counts_ how often each of the first num_tokens tokens occurs.
void DeviceSampling::count_tokens(const scheduler::Sequence& sequence, std::size_t num_tokens) {
  const std::span<const TokenId> tokens(sequence.tokens.data(), num_tokens);
  for (const TokenId token : tokens) ++count_of_[static_cast<std::size_t>(token)];
  for (const TokenId token : tokens) {
    std::int32_t& count = count_of_[static_cast<std::size_t>(token)];
    if (count > 0) {
      counts_.push_back({token, std::exchange(count, 0)});
    }
  }
}

kernels::SampleRow DeviceSampling::make_sample_row(const scheduler::PlanRow& row,
                                                   const LogitTarget& target) {
  const scheduler::Sequence& sequence = *row.sequence;
  const auto next = static_cast<std::size_t>(next_position(row, target));
  const SamplingParams& params = sequence.params;
  kernels::SampleRow sample_row;
  sample_row.num_top = std::min({params.top_logprobs, kernels::kSampleTopMax, vocab_size_});
  if (target.index < row.num_scored) sample_row.scored = sequence.tokens[next];
  LMTP_CHECK(row.input_row < 0 || !params.has_penalties());  // they depend on the input token
  sample_row.is_raw = params.raw_logprobs && sampling::has_edits(params) ? 1 : 0;
  sample_row.top_k = params.top_k;
  sample_row.temperature = params.temperature;
  sample_row.top_p = params.top_p;
  sample_row.seed = params.seed;
  if (params.has_penalties()) {
    sample_row.repetition_penalty = params.repetition_penalty;
    sample_row.presence_penalty = params.presence_penalty;
    sample_row.frequency_penalty = params.frequency_penalty;
    sample_row.first_count = static_cast<std::int64_t>(counts_.size());
    count_tokens(sequence, next);
    sample_row.num_counts = static_cast<std::int64_t>(counts_.size()) - sample_row.first_count;
  }
  if (const auto& request_bias = bias_of(params); request_bias != nullptr) {
    const DeviceBiases::Location bias = biases_.at(*request_bias);
    sample_row.num_biases = bias.num_ids;
    sample_row.bias_ids = bias.ids;
    sample_row.bias_values = bias.values;
  }
  return sample_row;
}

// A mask is made a bias once, and kept while steps use it.
void DeviceSampling::upload_biases(const scheduler::StepPlan& plan) {
  used_biases_.clear();
  MaskedBiases masked;
  for (const LogitTarget& target : targets_) {
    const scheduler::Sequence& sequence =
        *plan.rows[static_cast<std::size_t>(target.plan_row)].sequence;
    const SamplingParams& params = sequence.params;
    if (params.mask != nullptr) {
      const auto key = std::pair(params.mask.get(), params.logit_bias.get());
      MaskedBias& entry = masked[key];
      if (const auto known = masked_biases_.find(key); known != masked_biases_.end()) {
        entry = known->second;
      }
      if (entry.merged == nullptr) {
        entry = {params.mask, params.logit_bias,
                 forbid(params.logit_bias.get(), *params.mask, vocab_size_)};
      }
      used_biases_.push_back(entry.merged);
    } else if (params.logit_bias != nullptr) {
      used_biases_.push_back(params.logit_bias);
    }
  }
  masked_biases_.swap(masked);
  biases_.upload(used_biases_);
}

// REQUIRES: upload_biases() was given its step.
const std::shared_ptr<const LogitBias>& DeviceSampling::bias_of(
    const SamplingParams& params) const {
  if (params.mask == nullptr) return params.logit_bias;
  return masked_biases_.at({params.mask.get(), params.logit_bias.get()}).merged;
}

void DeviceSampling::prepare(const scheduler::StepPlan& plan,
                             const std::vector<LogitTarget>& targets) {
  targets_ = targets;
  upload_biases(plan);
  rows_.clear();
  positions_.clear();
  counts_.clear();
  top_stride_ = 0;
  for (const LogitTarget& target : targets) {
    const scheduler::PlanRow& row = plan.rows[static_cast<std::size_t>(target.plan_row)];
    rows_.push_back(make_sample_row(row, target));
    positions_.push_back(next_position(row, target) - 1);
    top_stride_ = std::max(top_stride_, rows_.back().num_top);
  }
  out_.reserve(out_bytes());
}

std::size_t DeviceSampling::out_bytes() const {
  const std::size_t num_top = rows_.size() * static_cast<std::size_t>(top_stride_);
  return record_bytes() + bytes_of<kernels::TopToken>(num_top);
}

SampleRows DeviceSampling::add_rows(Upload& upload) const {
  const kernels::SampleRow* rows = upload.add(rows_);
  return {.rows = rows, .positions = upload.add(positions_)};
}

std::size_t DeviceSampling::record_bytes() const {
  return bytes_of<kernels::SampleRecord>(rows_.size());
}

void DeviceSampling::choose(const SampleRows& rows, std::size_t first,
                            kernels::Matrix<float> logits) {
  LMTP_CHECK(first + static_cast<std::size_t>(logits.rows) <= rows_.size(), first, logits.rows,
             rows_.size());
  std::byte* out = out_.device();
  auto* top = reinterpret_cast<kernels::TopToken*>(out + record_bytes());
  kernels::sample(stream_, {.logits = logits,
                            .rows = rows.rows + first,
                            .positions = rows.positions + first,
                            .counts = uploaded_counts_,
                            .records = reinterpret_cast<kernels::SampleRecord*>(out) + first,
                            .top = top + first * static_cast<std::size_t>(top_stride_),
                            .top_stride = top_stride_,
                            .raw = kernels::make_matrix(raw_.floats(), logits.rows,
                                                        std::int64_t{vocab_size_})});
}

PendingTokens DeviceSampling::fetch() {
  PendingTokens tokens;
  if (rows_.empty()) return tokens;
  out_.fetch(out_bytes());
  tokens.top_stride = top_stride_;
  tokens.out = out_.host();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    tokens.rows.push_back({targets_[i], rows_[i].scored < 0 || rows_[i].num_top > 0});
  }
  return tokens;
}

void read_tokens(const PendingTokens& tokens, scheduler::StepResult& result) {
  const auto* records = reinterpret_cast<const kernels::SampleRecord*>(tokens.out);
  const auto* top = reinterpret_cast<const kernels::TopToken*>(records + tokens.rows.size());
  for (std::size_t i = 0; i < tokens.rows.size(); ++i, top += tokens.top_stride) {
    const LogitTarget& target = tokens.rows[i].target;
    scheduler::RowResult& row = result.rows[static_cast<std::size_t>(target.plan_row)];
    if (records[i].is_valid == 0) {
      if (!row.error.has_value()) row.error = sampling::kNoNumbers;
      continue;
    }
    scheduler::TokenResult& to = row.tokens[static_cast<std::size_t>(target.index)];
    to.token = records[i].token;
    to.logprob = records[i].logprob;
    if (!tokens.rows[i].lists_top) continue;
    bool listed = false;
    for (int k = 0; k < records[i].num_top; ++k) {
      to.top_logprobs.push_back({top[k].id, top[k].logprob});
      listed = listed || top[k].id == to.token;
    }
    if (!listed) {
      to.top_logprobs.push_back({to.token, to.logprob});
    }
  }
}

}  // namespace lmtp::agent
