#include "state_pooling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "lmtp/base/result.h"

namespace lmtp::agent {
namespace {

const Error kNoStates{ErrorCode::kInternal, "the model's hidden states here are not numbers"};

// The tokens of a row whose states are asked for: the first, and one more than the last.
std::pair<int, int> pooled_tokens(Pooling pooling, const scheduler::PlanRow& row, bool is_end) {
  const int count = row.num_tokens;
  if (pooling == Pooling::kMean) return {0, count};
  if (pooling == Pooling::kFirst) return {0, row.first_position == 0 ? 1 : 0};
  return {is_end ? count - 1 : count, count};
}

}  // namespace

StatePooling::StatePooling(kernels::Stream& stream, model::CausalLM& model)
    : stream_(stream), model_(model), width_(model.state_size()), out_(stream, sizeof(float)) {}

void StatePooling::prepare(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots,
                           int turn, PendingStates& pending) {
  for (const scheduler::SlotStart& start : plan.changes.started) {
    const auto slot = static_cast<std::size_t>(start.slot);
    if (sums_.size() <= slot) sums_.resize(slot + 1);
    sums_[slot].reset();
    if (start.params.pooling == Pooling::kNone) continue;
    sums_[slot] = std::make_shared<std::vector<double>>(static_cast<std::size_t>(width_));
  }
  rows_.clear();
  pending.rows.clear();
  int first = 0;  // of the row's tokens, as they are packed
  for (std::size_t i = 0; i < plan.rows.size(); first += plan.rows[i++].num_tokens) {
    const scheduler::PlanRow& row = plan.rows[i];
    const scheduler::SlotState& state = slots.at(row.slot);
    const Pooling pooling = state.params.pooling;
    if (pooling == Pooling::kNone) continue;
    const int length = static_cast<int>(state.tokens.size());
    const bool is_end = row.first_position + row.num_tokens == length;
    const auto [begin, end] = pooled_tokens(pooling, row, is_end);
    for (int token = begin; token < end; ++token) rows_.push_back(first + token);
    if (begin == end && !is_end) continue;
    const int num_pooled = pooling == Pooling::kMean ? length : 1;
    pending.rows.push_back({static_cast<int>(i), end - begin, is_end ? num_pooled : 0,
                            sums_[static_cast<std::size_t>(row.slot)]});
  }
  if (rows_.empty()) return;
  out_.reserve(turn, rows_.size() * static_cast<std::size_t>(width_) * sizeof(float));
  pending.states = reinterpret_cast<const float*>(out_.data());
  pending.width = width_;
}

void StatePooling::compute(kernels::Matrix<const float> hidden, const std::int32_t* rows) {
  model_.states(stream_, hidden, rows,
                kernels::make_matrix(reinterpret_cast<float*>(out_.data()),
                                     static_cast<std::int64_t>(rows_.size()), width_));
}

void read_states(const PendingStates& pending, scheduler::StepResult& result) {
  const float* state = pending.states;
  for (const PendingStates::Row& row : pending.rows) {
    std::vector<double>& sum = *row.sum;
    for (int i = 0; i < row.num_states; ++i, state += pending.width) {
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += static_cast<double>(state[k]);
    }
    if (row.num_pooled == 0) continue;
    scheduler::RowResult& to = result.rows[static_cast<std::size_t>(row.plan_row)];
    auto embedding = std::make_shared<std::vector<float>>();
    embedding->reserve(sum.size());
    for (const double one : sum) embedding->push_back(static_cast<float>(one / row.num_pooled));
    const bool is_finite =
        std::ranges::all_of(*embedding, [](float x) { return std::isfinite(x); });
    if (!is_finite) to.error = kNoStates;
    to.embedding = std::move(embedding);
  }
}

}  // namespace lmtp::agent
