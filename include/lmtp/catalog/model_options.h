// How models are loaded: what an operator says once, for all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/aici/embedded_runtime.h"
#include "lmtp/aici/process_runtime.h"
#include "lmtp/base/batch_limits.h"
#include "lmtp/hub/fetch.h"
#include "lmtp/model/shard.h"
#include "lmtp/request/adapter.h"
#include "lmtp/text/decision_config.h"
#include "lmtp/trace/trace.h"

namespace lmtp::catalog {

inline constexpr int kTensorParallelMax = model::kRanksMax;
inline constexpr int kDraftsMax = 16;  // of ModelOptions::max_drafts

struct ModelOptions {
  std::string device = "cpu";           // as parse_device reads it
  int tensor_parallel_size = 1;         // [1, kTensorParallelMax]: ranks of each model
  std::string communicator = "auto";    // as parse_communicator reads it
  std::string dtype = "auto";           // as parse_dtype reads it
  std::string kv_cache_dtype = "auto";  // as parse_kv_cache_dtype reads it
  bool force = false;                   // model::ConfigOptions
  std::optional<bool> tie_embeddings;   // as well
  int context_length = 0;               // the longest stream; 0: the model's own
  int num_threads = 0;                  // 0: as many as the machine has processors
  std::int64_t kv_cache_bytes = 0;      // 0: by what is free
  std::int64_t swap_bytes = 0;          // of the host, for what a device's KV cache has no place
  std::int64_t score_cache_bytes = kDefaultScoreCacheBytes;  // engine::EngineOptions
  int max_drafts = 0;                                        // as well; 0 on a device
  BatchLimits batch;
  int max_input_tokens = 0;  // engine::ModelLimits
  int max_total_tokens = 0;  // as well
  int max_concurrent_requests = kDefaultConcurrentRequests;
  // What the one model is called in the place of its path or name on the hub: the first is what
  // clients are told. No adapter has one of them.
  std::vector<std::string> served_names;
  std::string chat_template_file;   // in the place of the model's own; empty: that
  text::DecisionOptions decisions;  // of the one model
  std::string tool_call_format;     // as text::find_reply_layout takes it; empty: found
  bool aici = false;                // runs AICI controllers in this process
  std::string aici_cache;           // the folder of uploaded controllers
  aici::Limits aici_limits;
  aici::ProcessOptions aicirt;          // the program that runs them instead; `path` empty: none
  std::vector<AdapterSource> adapters;  // of the one model
  int max_lora_rank = 64;               // of an adapter
  int max_cpu_loras = 64;               // adapters of a model
  std::int64_t download_bytes_max = hub::kDownloadBytesMax;
  std::shared_ptr<trace::Trace> trace;  // of all models; null: none
};

}  // namespace lmtp::catalog
