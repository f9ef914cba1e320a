#include "step_sampling.h"

#include <new>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

Result<void> choose_one(sampling::Sampler& sampler, const scheduler::PlanRow& row,
                        const LogitTarget& target, std::span<float> logits,
                        scheduler::TokenResult& to) {
  const scheduler::Sequence& sequence = *row.sequence;
  const auto next = static_cast<std::size_t>(next_position(row, target));
  const std::span<const TokenId> before(sequence.tokens.data(), next);
  auto chosen = target.index < row.num_scored
                    ? sampler.score(logits, sequence.params, before, sequence.tokens[next])
                    : sampler.sample(logits, sequence.params, before);
  if (!chosen.ok()) return chosen.error();
  to = std::move(*chosen);
  return {};
}

}  // namespace

void list_targets(const scheduler::StepPlan& plan, std::vector<LogitTarget>& targets,
                  scheduler::StepResult& result) {
  result.rows.resize(plan.rows.size());
  targets.clear();
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    result.rows[i].tokens.resize(static_cast<std::size_t>(plan.rows[i].num_logits));
    for (int index = 0; index < plan.rows[i].num_logits; ++index) {
      targets.push_back({static_cast<int>(i), index});
    }
  }
}

StepSampling::StepSampling(const kernels::Backend& backend, kernels::WorkerPool& pool,
                           int vocab_size)
    : pool_(pool) {
  for (int worker = 0; worker < pool.num_threads(); ++worker) {
    samplers_.emplace_back(backend, vocab_size);
  }
}

void StepSampling::choose(const scheduler::StepPlan& plan, std::span<const LogitTarget> targets,
                          kernels::Matrix<float> logits, scheduler::StepResult& result) {
  LMTP_CHECK(logits.rows == static_cast<std::int64_t>(targets.size()), logits.rows, targets.size());
  errors_.assign(targets.size(), {});
  pool_.parallel_for(static_cast<int>(targets.size()), [&](int task, int worker) {
    const auto at = static_cast<std::size_t>(task);
    const LogitTarget& target = targets[at];
    const auto plan_row = static_cast<std::size_t>(target.plan_row);
    scheduler::TokenResult& to =
        result.rows[plan_row].tokens[static_cast<std::size_t>(target.index)];
    try {
      const Result<void> done =
          choose_one(samplers_[static_cast<std::size_t>(worker)], plan.rows[plan_row], target,
                     {logits.row(task), static_cast<std::size_t>(logits.columns)}, to);
      if (!done.ok()) errors_[at] = done.error().message;
    } catch (const std::bad_alloc&) {
      errors_[at] = "out of memory";
    }
  });
  for (std::size_t i = 0; i < errors_.size(); ++i) {
    auto& error = result.rows[static_cast<std::size_t>(targets[i].plan_row)].error;
    if (!errors_[i].empty() && !error.has_value()) error = std::move(errors_[i]);
  }
}

}  // namespace lmtp::agent
