#include "worker_info.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"

namespace lmtp::balance {
namespace {

using engine::EngineStats;

struct Counter {
  std::string_view field;
  std::int64_t EngineStats::*member;
};
constexpr Counter kCounters[] = {
    {"num_steps", &EngineStats::num_steps},
    {"num_steps_ahead", &EngineStats::num_steps_ahead},
    {"num_failed_steps", &EngineStats::num_failed_steps},
    {"busy_us", &EngineStats::busy_us},
    {"device_wait_us", &EngineStats::device_wait_us},
    {"num_tokens_computed", &EngineStats::num_tokens_computed},
    {"num_prompt_tokens", &EngineStats::num_prompt_tokens},
    {"num_cached_tokens", &EngineStats::num_cached_tokens},
    {"num_partial_hits", &EngineStats::num_partial_hits},
    {"num_generated_tokens", &EngineStats::num_generated_tokens},
    {"num_accepted_drafts", &EngineStats::num_accepted_drafts},
    {"num_refused_drafts", &EngineStats::num_refused_drafts},
    {"num_scored_tokens", &EngineStats::num_scored_tokens},
    {"num_cached_scores", &EngineStats::num_cached_scores},
    {"num_preemptions", &EngineStats::num_preemptions},
    {"num_adapter_loads", &EngineStats::num_adapter_loads},
    {"num_swapped_out", &EngineStats::num_swapped_out},
    {"num_swapped_in", &EngineStats::num_swapped_in},
    {"num_host_hits", &EngineStats::num_host_hits},
    {"num_forced_tokens", &EngineStats::num_forced_tokens},
    {"num_masks", &EngineStats::num_masks},
    {"num_late_masks", &EngineStats::num_late_masks},
    {"mask_wait_us", &EngineStats::mask_wait_us},
};

struct Gauge {
  std::string_view field;
  int EngineStats::*member;
};
constexpr Gauge kGauges[] = {
    {"num_waiting", &EngineStats::num_waiting},
    {"num_running", &EngineStats::num_running},
    {"num_blocks_free", &EngineStats::num_blocks_free},
    {"num_blocks_evictable", &EngineStats::num_blocks_evictable},
    {"num_blocks_pinned", &EngineStats::num_blocks_pinned},
    {"num_blocks_adapter", &EngineStats::num_blocks_adapter},
    {"num_host_blocks_used", &EngineStats::num_host_blocks_used},
};

constexpr std::string_view kStates[] = {"unloaded", "loading", "ready", "failed", "stopping"};

// Paths are names of models too.
constexpr std::size_t kTextBytesMax = 1000;

// A worker's word as clients, logs and terminals are shown it: of limited length, and nothing in it
// moves a cursor.
std::string shown(std::string_view word) {
  std::string text = shortened(word, kTextBytesMax);
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return text;
}

std::string text_of(const Json& info, std::string_view key) {
  const std::string* text = find_json_text(info, key);
  return text != nullptr ? shown(*text) : std::string();
}

// Nothing: it is missing, no number, or not in [0, the largest int64 / 2].
std::optional<std::int64_t> number_of(const Json& info, std::string_view key) {
  const Json* value = find_json(info, key);
  const auto number = value != nullptr ? json_integer(*value) : std::nullopt;
  const bool is_sane =
      number && *number >= 0 && *number <= std::numeric_limits<std::int64_t>::max() / 2;
  return is_sane ? number : std::nullopt;
}

int int_of(const Json& info, std::string_view key) {
  const std::int64_t number = number_of(info, key).value_or(0);
  return number <= std::numeric_limits<int>::max() ? static_cast<int>(number) : 0;
}

EngineStats read_stats(const Json& info) {
  EngineStats stats;
  if (const Json* fields = find_json(info, "stats")) {
    for (const Counter& counter : kCounters) {
      stats.*counter.member = number_of(*fields, counter.field).value_or(0);
    }
    for (const Gauge& gauge : kGauges) stats.*gauge.member = int_of(*fields, gauge.field);
    stats.agent.num_blocks = int_of(*fields, "num_blocks");
    stats.agent.kv_layout.num_groups = std::max(1, int_of(*fields, "num_kv_groups"));
    stats.agent.num_host_blocks = int_of(*fields, "num_host_blocks");
    stats.agent.kv_bytes = number_of(*fields, "kv_cache_bytes").value_or(0);
    stats.score_cache_bytes = number_of(*fields, "score_cache_bytes").value_or(0);
    stats.score_cache_bytes_used = number_of(*fields, "score_cache_bytes_used").value_or(0);
  }
  stats.agent.device = text_of(info, "device");
  stats.agent.dtype = text_of(info, "dtype");
  stats.agent.kv_dtype = text_of(info, "kv_cache_dtype");
  stats.agent.num_parameters = number_of(info, "num_parameters").value_or(0);
  stats.agent.numerics = text_of(info, "numerics");
  return stats;
}

registry::ModelState state_of(std::string_view name) {
  if (name == "ready") return registry::ModelState::kReady;
  if (name == "failed") return registry::ModelState::kFailed;
  if (name == "stopping") return registry::ModelState::kStopping;
  return name == "unloaded" ? registry::ModelState::kUnloaded : registry::ModelState::kLoading;
}

Result<engine::ModelLimits> read_limits(const Json& info) {
  engine::ModelLimits limits;
  limits.vocab_size = int_of(info, "vocab_size");
  limits.context_length = int_of(info, "context_length");
  limits.max_input_tokens = int_of(info, "max_input_tokens");
  limits.max_total_tokens = int_of(info, "max_total_tokens");
  if (limits.vocab_size < 1 || limits.context_length < 1) {
    return Error{ErrorCode::kUnavailable,
                 "its MODEL_INFO says it is ready and has no vocab_size or no context_length"};
  }
  // MODEL_INFO always has them; an error should name the operator's options only where there are.
  if (limits.max_total_tokens >= limits.context_length) limits.max_total_tokens = 0;
  if (limits.max_input_tokens >= limits.total_tokens_max() - 1) limits.max_input_tokens = 0;
  const Json* ids = find_json(info, "eos_token_ids");
  if (ids == nullptr || !ids->is_array()) return limits;
  for (const Json& id : *ids) {
    const auto number = json_integer(id);
    if (!number || *number < 0 || *number >= limits.vocab_size) {
      return Error{ErrorCode::kUnavailable,
                   "its MODEL_INFO has eos_token_ids that are not in its vocabulary"};
    }
    limits.eos_ids.push_back(static_cast<TokenId>(*number));
  }
  return limits;
}

std::string ids_text(const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  return text.empty() ? "none" : shortened(text, kNameBytesMax);
}

}  // namespace

Result<WorkerInfo> parse_worker_info(const std::string& json) {
  const Result<Json> info = parse_json_object(json, "its MODEL_INFO");
  if (!info) return Error{ErrorCode::kUnavailable, info.error().message};
  WorkerInfo worker;
  // Clients and logs see it.
  worker.state = text_of(*info, "state");
  if (std::ranges::find(kStates, worker.state) == std::end(kStates)) worker.state = "loading";
  registry::ModelStatus& status = worker.status;
  status.state = state_of(worker.state);
  status.progress_percent = std::min(int_of(*info, "progress"), 100);
  registry::ModelDescription& model = status.description;
  model.name = text_of(*info, "model");
  model.type = text_of(*info, "model_type");
  model.architecture = text_of(*info, "architecture");
  model.constructor = text_of(*info, "constructor");
  model.tokenizer = text_of(*info, "tokenizer");
  model.dtype = text_of(*info, "dtype");
  model.kv_dtype = text_of(*info, "kv_cache_dtype");
  model.device = text_of(*info, "device");
  model.num_parameters = number_of(*info, "num_parameters").value_or(0);
  if (const Json* adapters = find_json(*info, "adapters"); adapters && adapters->is_array()) {
    for (const Json& adapter : *adapters) {
      const auto* name = adapter.get_ptr<const std::string*>();
      if (name != nullptr) status.adapters.push_back({shown(*name), ""});
    }
  }
  status.stats = read_stats(*info);
  if (!worker.is_ready()) return worker;
  Result<engine::ModelLimits> limits = read_limits(*info);
  if (!limits) return limits.error();
  status.limits = *std::move(limits);
  model.trained_context_length = status.limits.context_length;
  return worker;
}

Result<void> check_same(const engine::ModelLimits& one, const std::string& name_of_one,
                        const engine::ModelLimits& other, const std::string& name_of_other) {
  const auto compare = [&](const char* what, const std::string& a,
                           const std::string& b) -> Result<void> {
    if (a == b) return {};
    return Error{ErrorCode::kInvalid, "the workers " + name_of_one + " and " + name_of_other +
                                          " differ in " + what + ", " + a + " and " + b +
                                          "; all workers serve one model, with one context"};
  };
  const auto number = [&](const char* what, int engine::ModelLimits::*member) {
    return compare(what, std::to_string(one.*member), std::to_string(other.*member));
  };
  using engine::ModelLimits;
  if (auto same = number("vocab_size", &ModelLimits::vocab_size); !same) return same;
  if (auto same = number("context_length", &ModelLimits::context_length); !same) return same;
  if (auto same = number("max_input_tokens", &ModelLimits::max_input_tokens); !same) return same;
  if (auto same = number("max_total_tokens", &ModelLimits::max_total_tokens); !same) return same;
  return compare("eos_token_ids", ids_text(one.eos_ids), ids_text(other.eos_ids));
}

void add_counters(const EngineStats& of_one, EngineStats& sum) {
  for (const Counter& counter : kCounters) sum.*counter.member += of_one.*counter.member;
}

void add_gauges(const EngineStats& of_one, EngineStats& sum) {
  for (const Gauge& gauge : kGauges) sum.*gauge.member += of_one.*gauge.member;
  sum.agent.num_blocks += of_one.agent.num_blocks;
  sum.agent.kv_layout.num_groups =
      std::max(sum.agent.kv_layout.num_groups, of_one.agent.kv_layout.num_groups);
  sum.agent.num_host_blocks += of_one.agent.num_host_blocks;
  sum.agent.kv_bytes += of_one.agent.kv_bytes;
  sum.score_cache_bytes += of_one.score_cache_bytes;
  sum.score_cache_bytes_used += of_one.score_cache_bytes_used;
}

}  // namespace lmtp::balance
