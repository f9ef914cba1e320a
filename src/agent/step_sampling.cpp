#include "step_sampling.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

template <typename T>
std::size_t bytes_of(std::size_t count) {
  return count * sizeof(T);
}

std::size_t raw_bytes(int vocab_size, int num_logits) {
  return bytes_of<float>(static_cast<std::size_t>(num_logits) *
                         static_cast<std::size_t>(vocab_size));
}

// Words of a RowMask.
std::size_t mask_words_of(int vocab_size) {
  return (static_cast<std::size_t>(vocab_size) + 31) / 32;
}

std::size_t masks_bytes_max(int vocab_size, const BatchLimits& batch) {
  return Upload::size_of(bytes_of<std::int32_t>(static_cast<std::size_t>(batch.max_tokens))) +
         static_cast<std::size_t>(batch.rows_max()) *
             bytes_of<std::uint32_t>(mask_words_of(vocab_size));
}

std::size_t record_bytes(const BatchLimits& batch) {
  return bytes_of<kernels::SampleRecord>(static_cast<std::size_t>(batch.max_tokens));
}

// Whether anything changes the logits before what is reported.
bool has_edits(const SamplingParams& params) {
  return params.has_penalties() || params.logit_bias != nullptr || params.mask != nullptr;
}

// The position in its sequence of the token that a target's row of logits predicts.
int next_position(const scheduler::PlanRow& row, const LogitTarget& target) {
  return row.first_position + row.num_tokens - row.num_logits + target.index + 1;
}

}  // namespace

void list_targets(const scheduler::StepPlan& plan, std::vector<LogitTarget>& targets,
                  scheduler::StepResult& result) {
  result.rows.resize(plan.rows.size());
  targets.clear();
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const scheduler::PlanRow& row = plan.rows[i];
    result.rows[i].tokens.resize(static_cast<std::size_t>(row.num_logits));
    for (int index = 0; index < row.num_logits; ++index) {
      targets.push_back({static_cast<int>(i), index, index > row.num_scored});
    }
  }
}

StepSampling::StepSampling(kernels::Stream& stream, int vocab_size, const BatchLimits& batch,
                           int num_logits)
    : stream_(stream),
      vocab_size_(vocab_size),
      batch_(batch),
      shared_(stream, vocab_size, batch.rows_max()),
      count_of_(static_cast<std::size_t>(vocab_size)),
      raw_(kernels::Memory::allocate(stream.backend(), raw_bytes(vocab_size, num_logits))),
      masks_(stream),
      records_(kernels::Memory::allocate(stream.backend(), record_bytes(batch))),
      counts_to_(stream, bytes_of<kernels::TokenCount>(1)),  // enough that graphs seldom move
      out_(stream, out_bytes(static_cast<std::size_t>(batch.rows_max()), stride_max())) {
  masks_.reserve(masks_bytes_max(vocab_size, batch));
}

std::int64_t StepSampling::num_bytes(int vocab_size, const BatchLimits& batch, int num_logits) {
  return SharedArrays::num_bytes(vocab_size, batch.rows_max()) +
         static_cast<std::int64_t>(raw_bytes(vocab_size, num_logits) +
                                   masks_bytes_max(vocab_size, batch) + record_bytes(batch));
}

// Appends to counts_ what has been counted.
void StepSampling::add_counts_of(const scheduler::SlotState& state) {
  for (const auto& [id, count] : state.counts.entries()) counts_.push_back({id, count});
}

// Of a token in the middle: appends to counts_ how often each of the first num_tokens tokens
// occurs, as TokenCounts does.
void StepSampling::count_tokens(const scheduler::SlotState& state, std::size_t num_tokens) {
  const std::span<const TokenId> tokens(state.tokens.data(), num_tokens);
  const auto from = static_cast<std::size_t>(state.params.penalties_from);
  for (std::size_t i = 0; i < num_tokens; ++i) {  // one more than its count; 0: does not occur
    std::int32_t& count = count_of_[static_cast<std::size_t>(tokens[i])];
    count = std::max(count, 1) + (i < from ? 0 : 1);
  }
  for (const TokenId token : tokens) {
    std::int32_t& count = count_of_[static_cast<std::size_t>(token)];
    if (count > 0) {
      counts_.push_back({token, std::exchange(count, 0) - 1});
    }
  }
}

kernels::SampleRow StepSampling::make_sample_row(const scheduler::PlanRow& row,
                                                 scheduler::SlotState& state,
                                                 const LogitTarget& target) {
  const auto next = static_cast<std::size_t>(next_position(row, target));
  const SamplingParams& params = state.params;
  kernels::SampleRow sample_row;
  sample_row.num_top = std::min(params.top_logprobs, top_max());
  if (params.logprob_token_ids != nullptr) {
    const SharedArray listed = shared_array(params.logprob_token_ids);
    sample_row.listed_ids = reinterpret_cast<const TokenId*>(shared_.at(listed).first);
    sample_row.num_listed = static_cast<std::int64_t>(params.logprob_token_ids->size());
  }
  sample_row.is_measured = params.measures.any() ? 1 : 0;
  if (target.index < row.num_scored) {
    sample_row.scored = state.tokens.at(next);
    if (params.raw_logprobs) return sample_row;  // nothing is drawn by what edits would change
  }
  sample_row.is_raw = params.raw_logprobs && has_edits(params) ? 1 : 0;
  static_cast<DrawParams&>(sample_row) = params;
  if (params.has_penalties()) {
    sample_row.first_count = static_cast<std::int64_t>(counts_.size());
    if (next < state.tokens.size() || row.num_drafts > 0) {  // drafts may leave the sequence again
      count_tokens(state, next);
    } else {
      state.counts.update(state.tokens, static_cast<std::size_t>(params.penalties_from));
      add_counts_of(state);
      sample_row.counts_input = static_cast<std::int64_t>(next - state.tokens.size());
      LMTP_CHECK(sample_row.counts_input == (row.input_row >= 0 ? 1 : 0), next,
                 state.tokens.size());
    }
    sample_row.num_counts = static_cast<std::int64_t>(counts_.size()) - sample_row.first_count;
  }
  if (params.logit_bias != nullptr) {
    const SharedArray bias = shared_array(params.logit_bias, vocab_size_);
    const SharedArrays::Location at = shared_.at(bias);
    sample_row.num_biases = static_cast<std::int64_t>(bias.first.size() / sizeof(TokenId));
    sample_row.bias_ids = reinterpret_cast<const TokenId*>(at.first);
    sample_row.bias_values = reinterpret_cast<const float*>(at.second);
  }
  if (params.mask != nullptr) {
    const SharedArray mask = shared_array(params.mask, vocab_size_);
    sample_row.num_mask_words =
        static_cast<std::int64_t>(mask.first.size() / sizeof(std::uint32_t));
    sample_row.mask = reinterpret_cast<const std::uint32_t*>(shared_.at(mask).first);
  }
  return sample_row;
}

bool StepSampling::upload_shared(const scheduler::StepPlan& plan,
                                 const scheduler::SlotTable& slots) {
  used_.clear();
  int last_row = -1;  // a row's targets lie side by side
  for (const LogitTarget& target : targets_) {
    if (target.plan_row == std::exchange(last_row, target.plan_row)) continue;
    const scheduler::PlanRow& row = plan.rows[static_cast<std::size_t>(target.plan_row)];
    const SamplingParams& params = slots.at(row.slot).params;
    if (params.logit_bias != nullptr) used_.push_back(shared_array(params.logit_bias, vocab_size_));
    if (params.mask != nullptr) used_.push_back(shared_array(params.mask, vocab_size_));
    if (params.logprob_token_ids != nullptr) {
      used_.push_back(shared_array(params.logprob_token_ids));
    }
  }
  return shared_.upload(used_);
}

bool StepSampling::prepare(const scheduler::StepPlan& plan, scheduler::SlotTable& slots,
                           const std::vector<LogitTarget>& targets, int turn) {
  targets_ = targets;
  const bool has_moved = upload_shared(plan, slots);
  rows_.clear();
  positions_.clear();
  measures_.clear();
  counts_.clear();
  top_stride_ = 0;
  for (const LogitTarget& target : targets) {
    const scheduler::PlanRow& row = plan.rows[static_cast<std::size_t>(target.plan_row)];
    rows_.push_back(make_sample_row(row, slots.at(row.slot), target));
    positions_.push_back(next_position(row, target) - 1);
    measures_.push_back(slots.at(row.slot).params.measures);
    const kernels::SampleRow& made = rows_.back();
    top_stride_ =
        std::max(top_stride_, made.num_top + static_cast<int>(made.num_listed + made.is_measured));
  }
  // The same in each decode step, for its graph. A SCORE may have many more rows.
  if (rows_.size() <= static_cast<std::size_t>(batch_.rows_max())) top_stride_ = stride_max();
  out_.reserve(turn, out_bytes(rows_.size(), top_stride_));
  if (!masks_.is_host()) {
    counts_to_.reserve(turn, bytes_of<kernels::TokenCount>(counts_.size()));
    std::ranges::copy(counts_, reinterpret_cast<kernels::TokenCount*>(counts_to_.data()));
  }
  return has_moved;
}

int StepSampling::top_max() const { return std::min(kernels::kSampleTopMax, vocab_size_); }

std::size_t StepSampling::out_bytes(std::size_t num_rows, int top_stride) const {
  return record_bytes(batch_) +
         bytes_of<kernels::TopToken>(num_rows * static_cast<std::size_t>(top_stride));
}

kernels::SampleRecord* StepSampling::sent_records() const {
  return reinterpret_cast<kernels::SampleRecord*>(out_.data());
}

kernels::TopToken* StepSampling::sent_top() const {
  return reinterpret_cast<kernels::TopToken*>(out_.data() + record_bytes(batch_));
}

SampleRows StepSampling::add_rows(Upload& upload) const {
  const kernels::SampleRow* rows = upload.add(rows_);
  return {.rows = rows, .positions = upload.add(positions_)};
}

void StepSampling::set_masks(std::span<const scheduler::RowMask> masks,
                             scheduler::StepResult& result) {
  using State = scheduler::RowMask::State;
  mask_of_.clear();
  if (masks.empty()) return;
  LMTP_CHECK(masks.size() == result.rows.size(), masks.size(), result.rows.size());
  std::int32_t num_masks = 0;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const auto row = static_cast<std::size_t>(targets_[i].plan_row);
    if (masks[row].state == State::kLate) result.rows[row].skipped = true;
    if (masks[row].state == State::kHeld) result.rows[row].held = true;
    if (masks[row].state == State::kFailed) result.rows[row].error = masks[row].error;
    const bool is_drawn = rows_[i].scored < 0;
    mask_of_.push_back(masks[row].state == State::kReady && is_drawn ? num_masks++ : -1);
  }
  if (num_masks == 0) return mask_of_.clear();
  const std::size_t bytes_of_mask = bytes_of<std::uint32_t>(mask_words_of(vocab_size_));
  const std::size_t first = Upload::size_of(mask_of_);
  const std::size_t num_bytes = first + static_cast<std::size_t>(num_masks) * bytes_of_mask;
  masks_.reserve(num_bytes);
  std::memcpy(masks_.host(), mask_of_.data(), bytes_of<std::int32_t>(mask_of_.size()));
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (mask_of_[i] < 0) continue;
    const scheduler::RowMask& mask = masks[static_cast<std::size_t>(targets_[i].plan_row)];
    std::memcpy(masks_.host() + first + static_cast<std::size_t>(mask_of_[i]) * bytes_of_mask,
                mask.words, bytes_of_mask);
  }
  masks_.send(num_bytes);
}

void StepSampling::choose(const SampleRows& rows, std::size_t first,
                          kernels::Matrix<float> logits) {
  LMTP_CHECK(
      first + static_cast<std::size_t>(logits.rows) <= static_cast<std::size_t>(batch_.max_tokens),
      first, logits.rows, batch_.max_tokens);
  const std::byte* masks = masks_.device();
  kernels::sample(
      stream_,
      {.logits = logits,
       .rows = rows.rows + first,
       .positions = rows.positions + first,
       .counts = masks_.is_host() ? counts_.data()
                                  : reinterpret_cast<const kernels::TokenCount*>(counts_to_.data()),
       .ids = rows.ids == nullptr ? nullptr : rows.ids + first,
       .records = static_cast<kernels::SampleRecord*>(records_.data()) + first,
       .sent = sent_records() + first,
       .top = sent_top() + first * static_cast<std::size_t>(top_stride_),
       .top_stride = top_stride_,
       .raw = kernels::make_matrix(raw_.floats(), logits.rows, std::int64_t{vocab_size_}),
       .masks = has_masks()
                    ? reinterpret_cast<const std::uint32_t*>(masks + Upload::size_of(mask_of_))
                    : nullptr,
       .mask_words = static_cast<std::int64_t>(mask_words_of(vocab_size_)),
       .mask_of = has_masks() ? reinterpret_cast<const std::int32_t*>(masks) + first : nullptr});
}

void StepSampling::list(PendingTokens& tokens) const {
  tokens.rows.clear();
  tokens.top_stride = top_stride_;
  tokens.records = sent_records();
  tokens.top = sent_top();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const bool is_masked = has_masks() && mask_of_[i] >= 0;
    const kernels::SampleRow& row = rows_[i];
    tokens.rows.push_back({targets_[i], row.scored < 0 || row.num_top > 0, is_masked, row.num_top,
                           static_cast<int>(row.num_listed), measures_[i]});
  }
}

void read_tokens(const PendingTokens& tokens, scheduler::StepResult& result) {
  const kernels::SampleRecord* records = tokens.records;
  const kernels::TopToken* top = tokens.top;
  for (std::size_t i = 0; i < tokens.rows.size(); ++i, top += tokens.top_stride) {
    const LogitTarget& target = tokens.rows[i].target;
    scheduler::RowResult& row = result.rows[static_cast<std::size_t>(target.plan_row)];
    if (row.skipped) {
      row.tokens.clear();
      continue;
    }
    if (row.held && static_cast<std::size_t>(target.index) + 1 == row.tokens.size()) {
      row.tokens.pop_back();
      continue;
    }
    if (target.index >= static_cast<int>(row.tokens.size())) continue;  // behind such a draft
    if (records[i].is_valid == 0) {
      if (target.is_behind_draft) {
        // Where the draft is right, the next step asks for these logits again.
        row.tokens.resize(static_cast<std::size_t>(target.index));
        continue;
      }
      if (!row.error) row.error = tokens.rows[i].is_masked ? kNothingPossible : kNoNumbers;
      continue;
    }
    scheduler::TokenResult& to = row.tokens[static_cast<std::size_t>(target.index)];
    to.token = records[i].token;
    to.logprob = records[i].logprob;
    if (const int num_listed = tokens.rows[i].num_listed; num_listed > 0) {
      auto listed = std::make_shared<std::vector<TokenLogprob>>();
      for (const auto& one : std::span(top + tokens.rows[i].listed_at, num_listed)) {
        listed->push_back({one.id, one.logprob});
      }
      to.listed_logprobs = std::move(listed);
    }
    if (const Measures& measures = tokens.rows[i].measures; measures.any()) {
      const auto& measured = top[tokens.rows[i].listed_at + tokens.rows[i].num_listed];
      if (measures.entropy) to.measured.entropy = measured.logprob;
      if (measures.rank) to.measured.rank = measured.id;
    }
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
