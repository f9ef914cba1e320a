#include "lmtp/agent/cpu_agent.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batch_builder.h"
#include "free_memory.h"
#include "kernels/backend.h"
#include "kernels/stream.h"
#include "kernels/worker_pool.h"
#include "lmtp/base/check.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/weights.h"
#include "lmtp/sampling/sampler.h"

namespace lmtp::agent {
namespace {

constexpr std::int64_t kDefaultKvBytesMax = std::int64_t{4} << 30;

// A row of logits that is wanted: which row of the plan, and which of that row's results.
struct LogitTarget {
  int plan_row = 0;
  int index = 0;
};

class CpuAgent : public ModelAgent {
 public:
  CpuAgent(std::unique_ptr<kernels::WorkerPool> pool, std::unique_ptr<model::CausalLM> model,
           const CpuAgentOptions& options, int num_blocks)
      : weight_type_(options.weight_type),
        pool_(std::move(pool)),
        stream_(options.backend != nullptr ? *options.backend : kernels::cpu_backend(), *pool_),
        model_(std::move(model)),
        cache_(model_->config(), num_blocks, stream_),
        max_batched_tokens_(options.max_batched_tokens) {
    for (int worker = 0; worker < pool_->num_threads(); ++worker) {
      samplers_.emplace_back(stream_.backend(), model_->config().vocab_size);
    }
  }

  AgentInfo info() const override {
    return {.device = "cpu",
            .dtype = dtype_name(weight_type_),
            .num_blocks = cache_.num_blocks(),
            .kv_bytes = cache_.num_bytes(),
            .num_parameters = model_->num_parameters()};
  }

  Result<scheduler::StepResult> execute(const scheduler::StepPlan& plan) override {
    LMTP_CHECK(!plan.empty() && plan.num_tokens <= max_batched_tokens_, plan.num_tokens,
               max_batched_tokens_);
    try {
      return run(plan);
    } catch (const std::exception& exception) {
      return Error{exception.what()};
    }
  }

 private:
  scheduler::StepResult run(const scheduler::StepPlan& plan) {
    build_input(plan, input_);
    const auto hidden = model_->forward(stream_, model::arrays_of(input_), cache_);
    scheduler::StepResult result;
    result.rows.resize(plan.rows.size());
    targets_.clear();
    for (std::size_t i = 0; i < plan.rows.size(); ++i) {
      result.rows[i].tokens.resize(static_cast<std::size_t>(plan.rows[i].num_logits));
      for (int index = 0; index < plan.rows[i].num_logits; ++index) {
        targets_.push_back({static_cast<int>(i), index});
      }
    }
    LMTP_CHECK(targets_.size() == input_.logit_rows.size());
    const std::span<const std::int32_t> rows(input_.logit_rows);
    constexpr auto kTile = static_cast<std::size_t>(model::kLogitRowsMax);
    for (std::size_t first = 0; first < rows.size(); first += kTile) {
      const std::size_t count = std::min(kTile, rows.size() - first);
      process_tile(plan, hidden, rows.subspan(first, count), {targets_.data() + first, count},
                   result);
    }
    return result;
  }

  // Logits of a few rows, and from each its token.
  void process_tile(const scheduler::StepPlan& plan, kernels::Matrix<const float> hidden,
                    std::span<const std::int32_t> rows, std::span<const LogitTarget> targets,
                    scheduler::StepResult& result) {
    const auto vocab_size = static_cast<std::size_t>(model_->config().vocab_size);
    if (logits_.size() < rows.size() * vocab_size) {
      logits_.resize(rows.size() * vocab_size);
    }
    const auto logits = kernels::make_matrix(logits_.data(), static_cast<std::int64_t>(rows.size()),
                                             static_cast<std::int64_t>(vocab_size));
    model_->logits(stream_, hidden, rows.data(), logits);
    std::vector<std::string> errors(rows.size());
    pool_->parallel_for(static_cast<int>(rows.size()), [&](int task, int worker) {
      const LogitTarget& target = targets[static_cast<std::size_t>(task)];
      const auto plan_row = static_cast<std::size_t>(target.plan_row);
      scheduler::TokenResult& to =
          result.rows[plan_row].tokens[static_cast<std::size_t>(target.index)];
      try {
        const Result<void> done =
            choose(samplers_[static_cast<std::size_t>(worker)], plan.rows[plan_row], target.index,
                   {logits.row(task), vocab_size}, to);
        if (!done.ok()) {
          errors[static_cast<std::size_t>(task)] = done.error().message;
        }
      } catch (const std::bad_alloc&) {
        errors[static_cast<std::size_t>(task)] = "out of memory";
      }
    });
    for (std::size_t i = 0; i < errors.size(); ++i) {
      auto& error = result.rows[static_cast<std::size_t>(targets[i].plan_row)].error;
      if (!errors[i].empty() && !error.has_value()) {
        error = std::move(errors[i]);
      }
    }
  }

  static Result<void> choose(sampling::Sampler& sampler, const scheduler::PlanRow& row, int index,
                             std::span<float> logits, scheduler::TokenResult& to) {
    const scheduler::Sequence& sequence = *row.sequence;
    const int next = row.first_position + row.num_tokens - row.num_logits + index + 1;
    if (sequence.kind == scheduler::SequenceKind::kScore) {
      to.token = sequence.tokens[static_cast<std::size_t>(next)];
      const Result<float> logprob = sampler.score(logits, to.token);
      if (!logprob.ok()) {
        return logprob.error();
      }
      to.logprob = *logprob;
      return {};
    }
    auto chosen = sampler.sample(logits, sequence.params,
                                 {sequence.tokens.data(), static_cast<std::size_t>(next)});
    if (!chosen.ok()) {
      return chosen.error();
    }
    to = std::move(*chosen);
    return {};
  }

  kernels::WeightType weight_type_;
  std::unique_ptr<kernels::WorkerPool> pool_;
  kernels::Stream stream_;
  std::unique_ptr<model::CausalLM> model_;
  model::KvCache cache_;
  int max_batched_tokens_;
  std::vector<sampling::Sampler> samplers_;  // one for each worker
  model::ModelInput input_;
  std::vector<LogitTarget> targets_;
  std::vector<float> logits_;  // [up to kLogitRowsMax, vocab_size]
};

std::string gibibytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

// Better no model than a process that is killed for memory while it loads.
Result<void> check_room(std::int64_t num_elements, kernels::WeightType type) {
  const std::int64_t needed = num_elements * weight_bytes(type);
  const std::optional<std::int64_t> free = free_memory_bytes();
  if (free.has_value() && needed > *free) {
    return Error{"the weights take " + gibibytes(needed) + " as " + dtype_name(type) + ", and " +
                 gibibytes(*free) +
                 " of memory are free; serve a smaller model, or free some memory"};
  }
  return {};
}

Result<std::unique_ptr<model::CausalLM>> load_model(const CpuAgentOptions& options,
                                                    kernels::WorkerPool& pool,
                                                    const LoadProgress& progress) {
  const auto tensors = model::describe_tensors(options.config);
  if (!tensors.ok()) {
    return tensors.error();
  }
  std::int64_t num_elements = 0;
  for (const model::TensorSpec& tensor : *tensors) {
    num_elements += tensor.num_elements();
  }
  if (const Result<void> room = check_room(num_elements, options.weight_type); !room.ok()) {
    return room.error();
  }
  std::unique_ptr<model::TensorSource> source;
  if (options.source.kind == hub::SourceKind::kRandom) {
    source = model::make_random_source(options.source.seed, options.config.weight_type, pool);
  } else {
    auto checkpoint = model::open_checkpoint(options.source.folder);
    if (!checkpoint.ok()) {
      return checkpoint.error();
    }
    source = std::move(*checkpoint);
  }
  const auto store = model::make_host_store(pool, options.weight_type);
  model::WeightLoader loader(*source, *store, num_elements, progress);
  return model::make_causal_lm(options.config, loader, options.max_batched_tokens);
}

// How many blocks the cache has room for, or why that is not enough.
Result<int> count_blocks(const CpuAgentOptions& options) {
  const std::int64_t bytes =
      options.kv_cache_bytes > 0 ? options.kv_cache_bytes : default_kv_cache_bytes();
  const std::int64_t block_bytes = model::kv_block_bytes(options.config);
  const std::int64_t num_blocks =
      std::min<std::int64_t>(bytes / block_bytes, INT32_MAX / kBlockSize);
  const int context =
      options.context_length > 0 ? options.context_length : options.config.context_length;
  // One stream of full length, and block 0, which is never handed out.
  const std::int64_t needed = (context + kBlockSize - 1) / kBlockSize + 1;
  if (num_blocks < needed) {
    return Error{"a KV cache of " + std::to_string(bytes) + " bytes does not hold one stream of " +
                 std::to_string(context) + " tokens; give --kv-cache at least " +
                 std::to_string(needed * block_bytes)};
  }
  return static_cast<int>(num_blocks);
}

}  // namespace

const char* dtype_name(kernels::WeightType type) {
  switch (type) {
    case kernels::WeightType::kF32:
      return "float32";
    case kernels::WeightType::kBF16:
      return "bfloat16";
    case kernels::WeightType::kInt8:
      return "int8";
    case kernels::WeightType::kF16:
      return "float16";
  }
  return "";
}

std::int64_t default_kv_cache_bytes() {
  const std::optional<std::int64_t> free = free_memory_bytes();
  return free.has_value() ? std::min(kDefaultKvBytesMax, *free / 4) : kDefaultKvBytesMax;
}

Result<std::unique_ptr<ModelAgent>> make_cpu_agent(const CpuAgentOptions& options,
                                                   const LoadProgress& progress) {
  LMTP_CHECK(options.max_batched_tokens >= 1, options.max_batched_tokens);
  try {
    const int num_threads =
        options.num_threads > 0
            ? options.num_threads
            : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const auto num_blocks = count_blocks(options);
    if (!num_blocks.ok()) {
      return num_blocks.error();
    }
    auto pool = std::make_unique<kernels::WorkerPool>(
        std::min(num_threads, kernels::WorkerPool::kMaxThreads));
    auto loaded = load_model(options, *pool, progress);
    if (!loaded.ok()) {
      return loaded.error();
    }
    return std::unique_ptr<ModelAgent>(
        std::make_unique<CpuAgent>(std::move(pool), std::move(*loaded), options, *num_blocks));
  } catch (const std::exception& exception) {
    return Error{std::string("the model cannot be loaded: ") + exception.what()};
  }
}

}  // namespace lmtp::agent
