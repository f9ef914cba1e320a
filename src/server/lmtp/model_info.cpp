#include "model_info.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/json.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/engine/metric_table.h"
#include "lmtp/text/reply_layout.h"

namespace lmtp::server {
namespace {

OrderedJson stats_json(const engine::EngineStats& stats) {
  OrderedJson fields;
  for (const engine::MetricRow& row : engine::metric_table()) {
    if (row.field.empty()) continue;
    fields[std::string(row.field)] = static_cast<std::int64_t>(row.value(stats));
  }
  return fields;
}

OrderedJson tool_call_format_json(const text::ReplyLayout* layout) {
  if (layout == nullptr) return {};
  return {{"name", layout->name},
          {"source", layout->source.empty() ? OrderedJson() : OrderedJson(layout->source)}};
}

// Whether the name is an adapter's, or may be told.
bool repeats(std::string_view asked_name, const registry::ModelStatus& status) {
  const auto is_asked = [&](const AdapterSource& adapter) { return adapter.name == asked_name; };
  const bool may_tell =
      !status.description.hides_path || std::ranges::any_of(status.adapters, is_asked);
  return !asked_name.empty() && may_tell;
}

}  // namespace

std::string_view state_name(registry::ModelState state) {
  switch (state) {
    case registry::ModelState::kUnloaded:
      return "unloaded";
    case registry::ModelState::kLoading:
      return "loading";
    case registry::ModelState::kReady:
      return "ready";
    case registry::ModelState::kFailed:
      return "failed";
    case registry::ModelState::kStopping:
      break;
  }
  return "stopping";
}

std::string model_info_json(const registry::ModelStatus& status, std::string_view asked_name,
                            const ServerTraits& server) {
  const engine::EngineStats& stats = status.stats;
  const registry::ModelDescription& model = status.description;
  const bool found = status.limits.vocab_size > 0;  // not before its download has ended
  const bool loaded = stats.agent.num_blocks > 0;
  const std::int64_t num_parameters = loaded ? stats.agent.num_parameters : model.num_parameters;
  const bool loading = status.state == registry::ModelState::kLoading;
  const bool counted = loaded || (!loading && num_parameters > 0);
  const std::string& kv_dtype = loaded ? stats.agent.kv_dtype : model.kv_dtype;
  const auto known = [](bool is_known, OrderedJson value) {
    return is_known ? std::move(value) : OrderedJson();
  };
  OrderedJson info = {
      {"model", repeats(asked_name, status) ? asked_name : model.name},
      {"model_type", known(found, model.type)},
      {"architecture", known(found, model.architecture)},
      {"constructor", known(found, model.constructor)},
      {"tokenizer", known(found, model.tokenizer)},
      {"vocab_size", known(found, status.limits.vocab_size)},
      {"context_length", known(found, status.limits.context_length)},
      {"max_input_tokens", known(found, status.limits.input_tokens_max())},
      {"max_total_tokens", known(found, status.limits.total_tokens_max())},
      {"eos_token_ids", known(found, status.limits.eos_ids)},
      {"answer_end_token_ids", known(loaded, status.answer_end_ids)},
      {"tool_call_format", tool_call_format_json(status.reply_layout.get())},
      {"dtype", known(found, loaded ? stats.agent.dtype : model.dtype)},
      {"kv_cache_dtype", known(found && !kv_dtype.empty(), kv_dtype)},
      {"device", known(found, loaded ? stats.agent.device : model.device)},
      {"num_parameters", known(counted, num_parameters)},
      {"state", state_name(status.state)},
      {"progress", status.progress_percent},
  };
  if (stats.agent.ranks.size() > 1) {
    for (const scheduler::RankInfo& rank : stats.agent.ranks) {
      info["ranks"].push_back({{"device", rank.device}, {"weights_bytes", rank.weights_bytes}});
    }
  }
  if (!model.quantization.empty()) {
    info["quantization"] = {{"method", model.quantization},
                            {"weights", model.quantized_weights},
                            {"widened", known(loaded, stats.agent.num_widened)}};
  }
  if (!status.error.empty()) info["error"] = status.error;
  std::vector<std::string> notes = model.notes;
  if (loaded) notes.insert(notes.end(), stats.agent.notes.begin(), stats.agent.notes.end());
  if (!notes.empty()) info["notes"] = notes;
  info["server"] = "lmtp-serve/" + server.version;
  info["lmtp"] = "1.1";
  info["extensions"] = {"CANCEL", "LOADING", "TEXT",   "BUFFERS",    "NOTICES", "ERRORS", "SAMPLES",
                        "MASK",   "CHAT",    "PARSED", "CANDIDATES", "DECIDE",  "SALT"};
  if (status.workers.empty()) info["extensions"].push_back("FORK");
  if (constraint::grammar_support()) info["extensions"].push_back("GRAMMAR");
  if (server.runs_controllers) info["extensions"].push_back("CONTROLLER");
  OrderedJson adapters = OrderedJson::array();
  for (const AdapterSource& adapter : status.adapters) adapters.push_back(adapter.name);
  info["adapters"] = std::move(adapters);
  info["numerics"] = known(!stats.agent.numerics.empty(), stats.agent.numerics);
  info["stats"] = stats_json(stats);
  for (const registry::WorkerStatus& worker : status.workers) {
    info["workers"].push_back({{"name", worker.name},
                               {"state", worker.state},
                               {"num_running", worker.num_running},
                               {"num_waiting", worker.num_waiting},
                               {"num_blocks_free", worker.num_blocks_free}});
  }
  return json_text(info);
}

}  // namespace lmtp::server
