#include "scheduling.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lmtp::engine {
namespace {

// Tokens for which a sequence has memory from the start, so that no step takes any for them. One
// that grows longer takes as much again, and so on.
constexpr int kReservedTokensMax = 4096;

void reserve(scheduler::Sequence& sequence, int max_tokens, const ModelLimits& limits) {
  const int most = std::min(limits.total_tokens_max(), kReservedTokensMax);
  const int num_tokens = std::min(most - std::min(most, sequence.length()), max_tokens);
  const std::size_t num_reserved = sequence.tokens.size() + static_cast<std::size_t>(num_tokens);
  sequence.tokens.reserve(num_reserved);
  sequence.blocks.reserve(num_reserved / kBlockSize + 1);
}

}  // namespace

std::unique_ptr<scheduler::Scheduler> make_scheduler(const scheduler::AgentInfo& agent,
                                                     const ModelLimits& limits,
                                                     const EngineOptions& options,
                                                     const scheduler::SchedulerCounters& counters) {
  scheduler::SchedulerOptions scheduling;
  scheduling.num_blocks = agent.num_blocks;
  scheduling.num_host_blocks = agent.num_host_blocks;
  scheduling.kv_layout = agent.kv_layout;
  scheduling.context_length = limits.total_tokens_max();
  scheduling.score_cache_bytes = options.score_cache_bytes;
  scheduling.batch = options.batch;
  scheduling.max_drafts = options.max_drafts;
  scheduling.debug = options.debug;
  scheduling.vocab_size = limits.vocab_size;
  scheduling.eos_ids = limits.eos_ids;
  scheduling.counters = counters;
  return std::make_unique<scheduler::Scheduler>(std::move(scheduling));
}

std::unique_ptr<scheduler::Sequence> make_sequence(Request request, const ModelLimits& limits,
                                                   std::uint64_t seed) {
  auto sequence = std::make_unique<scheduler::Sequence>();
  sequence->key = request.key;
  sequence->arrival = request.arrival;
  sequence->share = request.share();
  sequence->kind = request.kind;
  sequence->num_prompt = static_cast<int>(request.prompt.size());
  sequence->tokens = std::move(request.prompt);
  sequence->tokens.insert(sequence->tokens.end(), request.scored.begin(), request.scored.end());
  if (request.kind == RequestKind::kScore) {
    sequence->params.top_logprobs = request.params.top_logprobs;
    sequence->params.logprob_token_ids = std::move(request.params.logprob_token_ids);
    sequence->params.measures = request.params.measures;
  } else if (request.kind == RequestKind::kEmbed) {
    sequence->params.pooling = request.params.pooling;
  } else {
    sequence->params = std::move(request.params);
  }
  reserve(*sequence, sequence->params.max_tokens, limits);
  sequence->weights_of_adapter = std::move(request.adapter);
  sequence->cache_salt = std::move(request.cache_salt);
  sequence->priority = request.priority;
  sequence->num_resumed = request.num_resumed;
  sequence->stops = std::move(request.stops);
  sequence->mask_source = std::move(request.mask_source);
  sequence->wants_notices = request.wants_notices;
  if (!sequence->params.has_seed) sequence->params.seed = seed;
  return sequence;
}

void read_counters(const scheduler::Scheduler& scheduler, EngineStats& stats) {
  static_cast<scheduler::SchedulerCounters&>(stats) = scheduler.counters();
  stats.num_waiting = scheduler.num_waiting();
  stats.num_running = scheduler.num_running();
  stats.num_blocks_free = scheduler.pool().num_free();
  stats.num_blocks_evictable = scheduler.pool().num_evictable();
  stats.num_blocks_pinned = scheduler.pool().num_pinned();
  stats.num_host_blocks_used = scheduler.host_pool().num_evictable();
  stats.score_cache_bytes = scheduler.score_cache().num_bytes_max();
  stats.score_cache_bytes_used = scheduler.score_cache().num_bytes();
  stats.num_blocks_adapter = scheduler.pool().num_adapter();
  stats.running_adapters = scheduler.running_adapters();
  stats.waiting_adapters = scheduler.waiting_adapters();
}

}  // namespace lmtp::engine
