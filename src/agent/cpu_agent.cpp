#include "lmtp/agent/cpu_agent.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch_builder.h"
#include "free_memory.h"
#include "kernels/backend.h"
#include "kernels/stream.h"
#include "kernels/worker_pool.h"
#include "lmtp/agent/model_memory.h"
#include "lmtp/base/check.h"
#include "lmtp/base/text.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/weight_store.h"
#include "load_model.h"
#include "numerics_id.h"
#include "staged_memory.h"
#include "step_sampling.h"

namespace lmtp::agent {
namespace {

class CpuAgent : public scheduler::ModelAgent {
 public:
  CpuAgent(std::unique_ptr<kernels::WorkerPool> pool, LoadedModel loaded,
           const AgentOptions& options, int num_blocks)
      : weight_type_(options.weight_type),
        pool_(std::move(pool)),
        stream_(options.debug.backend != nullptr ? *options.debug.backend : kernels::cpu_backend(),
                *pool_),
        model_(std::move(loaded.model)),
        notes_(std::move(loaded.notes)),
        cache_(model_->config(), num_blocks, stream_, kv_type(options)),
        max_batched_tokens_(options.batch.max_tokens),
        numerics_(numerics_id(options, stream_.backend())),
        upload_(stream_),
        sampling_(stream_, model_->config().vocab_size, options.batch, kTile) {}

  scheduler::AgentInfo info() const override {
    return {.device = "cpu",
            .dtype = dtype_name(weight_type_),
            .num_blocks = cache_.num_blocks(),
            .kv_bytes = cache_.num_bytes(),
            .num_parameters = model_->num_parameters(),
            .notes = notes_,
            .numerics = numerics_};
  }

  Result<scheduler::StepResult> execute(const scheduler::StepPlan& plan) override {
    LMTP_CHECK(!plan.empty() && plan.num_tokens <= max_batched_tokens_, plan.num_tokens,
               max_batched_tokens_);
    try {
      return run(plan);
    } catch (const std::exception& exception) {
      return Error{exception_code(exception), exception.what()};
    }
  }

 private:
  // Rows of logits computed and sampled at a time: 13 MB for a vocabulary of 50,000.
  static constexpr int kTile = 64;

  scheduler::StepResult run(const scheduler::StepPlan& plan) {
    build_input(plan, input_);
    const auto hidden = model_->forward(stream_, model::arrays_of(input_), cache_);
    scheduler::StepResult result;
    list_targets(plan, targets_, result);
    LMTP_CHECK(targets_.size() == input_.logit_rows.size());
    sampling_.prepare(plan, targets_);
    const SampleRows sample_rows = sampling_.add_rows(upload_);
    sampling_.add_counts(upload_);
    static_assert(kTile <= BatchLimits::kSequencesMax);
    const std::int64_t vocab_size = model_->config().vocab_size;
    for (std::size_t first = 0; first < targets_.size(); first += kTile) {
      const std::size_t count = std::min<std::size_t>(kTile, targets_.size() - first);
      const std::size_t num_logits = count * static_cast<std::size_t>(vocab_size);
      if (logits_.size() < num_logits) logits_.resize(num_logits);
      const auto logits =
          kernels::make_matrix(logits_.data(), static_cast<std::int64_t>(count), vocab_size);
      model_->logits(stream_, hidden, input_.logit_rows.data() + first, logits);
      sampling_.choose(sample_rows, first, logits);
    }
    read_tokens(sampling_.fetch(), result);
    return result;
  }

  kernels::WeightType weight_type_;
  std::unique_ptr<kernels::WorkerPool> pool_;
  kernels::Stream stream_;
  std::unique_ptr<model::CausalLM> model_;
  std::vector<std::string> notes_;
  model::KvCache cache_;
  int max_batched_tokens_;
  const std::string numerics_;
  Upload upload_;
  StepSampling sampling_;
  model::ModelInput input_;
  std::vector<LogitTarget> targets_;
  std::vector<float> logits_;  // [up to kTile, vocab_size]
};

// A guard behind the registry's decision, which lets a static server's only model be tried, and
// since which memory may have been taken: an error instead of a process killed while it loads.
Result<void> check_fit(std::int64_t num_elements, kernels::WeightType type) {
  const std::int64_t needed = num_elements * weight_bytes(type);
  const std::optional<std::int64_t> free = free_memory_bytes();
  if (free.has_value() && needed > *free) {
    return Error{ErrorCode::kUnavailable,
                 "the weights take " + gib_text(needed) + " as " + dtype_name(type) + ", and " +
                     gib_text(*free) +
                     " of memory are free; serve a smaller model, or free some memory"};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<scheduler::ModelAgent>> make_cpu_agent(
    const AgentOptions& options, const scheduler::LoadProgress& progress) {
  LMTP_CHECK(options.batch.max_tokens >= 1 && !options.cuda_device.has_value(),
             options.batch.max_tokens);
  try {
    const auto num_blocks = count_blocks(options);
    if (!num_blocks.ok()) return num_blocks.error();
    auto pool = make_pool(options);
    const auto num_weights = count_weights(options);
    if (!num_weights.ok()) return num_weights.error();
    if (const auto fit = check_fit(*num_weights, options.weight_type); !fit.ok()) {
      return fit.error();
    }
    const auto store = model::make_host_store(*pool, options.weight_type);
    auto loaded = load_model(options, *num_weights, *store, progress);
    if (!loaded.ok()) return loaded.error();
    return std::unique_ptr<scheduler::ModelAgent>(
        std::make_unique<CpuAgent>(std::move(pool), std::move(*loaded), options, *num_blocks));
  } catch (const std::exception& exception) {
    return Error{exception_code(exception),
                 std::string("the model cannot be loaded: ") + exception.what()};
  }
}

}  // namespace lmtp::agent
