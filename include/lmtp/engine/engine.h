// Engine: one model's loop thread. It owns the command queue, the scheduler and the model agent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/base/batch_limits.h"
#include "lmtp/base/result.h"
#include "lmtp/engine/engine_instance.h"
#include "lmtp/engine/engine_metrics.h"
#include "lmtp/request/request.h"
#include "lmtp/scheduler/counters.h"
#include "lmtp/scheduler/debug_options.h"
#include "lmtp/scheduler/model_agent.h"
#include "lmtp/trace/trace.h"

namespace lmtp::engine {

// What is known of a model before its weights are loaded (from config.json).
struct ModelLimits {
  int vocab_size = 0;
  int context_length = 0;        // prompt + generated tokens at most
  std::vector<TokenId> eos_ids;  // a generated one ends its stream with finish_reason "stop"
  // What the operator allows of that; 0: all.
  int max_input_tokens = 0;  // of a prompt; of a Score with what is scored
  int max_total_tokens = 0;  // prompt + generated tokens
  bool generates = true;     // false: the model has no output head, and gives embeddings alone

  // Of one stream.
  int total_tokens_max() const {
    return max_total_tokens > 0 ? std::min(max_total_tokens, context_length) : context_length;
  }
  int input_tokens_max() const {
    const int most = total_tokens_max() - 1;
    return max_input_tokens > 0 ? std::min(max_input_tokens, most) : most;
  }
  // The same where nothing is generated.
  int whole_tokens_max() const {
    const int most = total_tokens_max();
    return max_input_tokens > 0 ? std::min(max_input_tokens, most) : most;
  }
};

// REQUIRES of each number what its comment says; Engine's constructor checks it.
struct EngineOptions {
  BatchLimits batch;  // of a step
  // >= 1: waiting and running; more are refused with an error
  int max_concurrent_requests = kDefaultConcurrentRequests;
  // How long masks are waited for once the forward pass is over, or on a device has been queued;
  // rows whose masks come later are skipped.
  int mask_wait_ms = 5;
  std::shared_ptr<trace::Trace> trace;  // null: none
  std::string name;                     // of the model there
  std::int64_t score_cache_bytes = 0;   // >= 0: of cache::ScoreCache
  int max_drafts = 0;  // >= 0: of a stream in a step; then no step is started ahead
  scheduler::DebugOptions debug;
};

// What an engine counts; none of it ever goes down. What each is called and shown as:
// metric_table.h.
struct EngineCounters : scheduler::SchedulerCounters {
  std::int64_t num_steps = 0;
  std::int64_t num_steps_ahead = 0;  // of those, started before the last one had ended
  std::int64_t num_failed_steps = 0;
  // Time of the steps, with what the engine does between two of them; and how much of it, at least,
  // a device was at work, whatever the host did meanwhile. The rest is the host's own.
  std::int64_t busy_us = 0;
  std::int64_t device_wait_us = 0;
  // Rows that waited for a mask, and of these skipped ones; and how long steps waited.
  std::int64_t num_masks = 0;
  std::int64_t num_late_masks = 0;
  std::int64_t mask_wait_us = 0;
  EngineMetrics metrics;
};

// A snapshot of the engine: its counters, and what holds now.
struct EngineStats : EngineCounters {
  bool stopped = false;
  scheduler::AgentInfo agent;
  int num_waiting = 0;
  int num_running = 0;
  int num_blocks_free = 0;
  int num_blocks_evictable = 0;  // kept for the prefix cache, unreferenced
  int num_blocks_pinned = 0;     // referenced by running sequences
  int num_blocks_adapter = 0;    // hold adapters
  int num_host_blocks_used = 0;  // of AgentInfo::num_host_blocks
  std::int64_t score_cache_bytes = 0;
  std::int64_t score_cache_bytes_used = 0;  // of those
  int max_adapters = 0;                     // BatchLimits'
  std::string running_adapters;  // the names of those that have running requests, comma-separated
  std::string waiting_adapters;  // and waiting ones
};

// Owner: the registry. Constructor, stop and destructor from one thread; the rest from any.
class Engine {
 public:
  // Called as the last act of the engine's thread where the agent's device is lost: its streams
  // have been answered, the agent is destroyed, and nothing is taken any more. Requests that had
  // been submitted and not begun are handed back as they were.
  using OnLost = std::function<void(std::vector<Request> unanswered)>;

  // Starts the loop thread. REQUIRES: agent is not null. on_lost may be empty: what comes back is
  // then answered with an error. Counting goes on from `counters`, those of an engine that this
  // one replaces.
  Engine(std::unique_ptr<scheduler::ModelAgent> agent, ModelLimits limits, EngineOptions options,
         OnLost on_lost = {}, const EngineCounters& counters = {});
  // As stop(0).
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  EngineInstance instance() const;

  // As EngineInstance's.
  EngineStats stats() const;

  // Refuses new requests, lets running ones finish for at most `grace_ms`, ends the others with an
  // error, and joins the thread. Idempotent.
  void stop(int grace_ms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Checks a request against the model: token ids, context, bias ids; clamps nothing.
// The error's text is "<field>: what is wrong and what is allowed". Any thread.
Result<void> check_request(const Request& request, const ModelLimits& limits);

// Blocks that a KV cache of so many has beside a stream of the whole context; may be negative. An
// adapter that takes more could never run. Any thread.
int adapter_blocks_max(int num_blocks, const KvLayout& layout, const ModelLimits& limits);
Result<void> check_adapter(const Adapter& adapter, int num_blocks, const KvLayout& layout,
                           const ModelLimits& limits);

// "<field>[2]: ..." where one is not in the vocabulary. Any thread.
Result<void> check_ids(const char* field, const std::vector<TokenId>& ids, int vocab_size);

}  // namespace lmtp::engine
