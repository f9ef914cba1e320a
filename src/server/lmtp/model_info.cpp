#include "model_info.h"

#include <cstdint>
#include <string>
#include <vector>

#include "lmtp/protocol/codec.h"

namespace lmtp::server {
namespace {

// Writes the fields of one JSON object in order.
class ObjectWriter {
 public:
  explicit ObjectWriter(std::string& out) : out_(out) { out_.push_back('{'); }
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;
  ~ObjectWriter() { out_.push_back('}'); }

  void text(std::string_view key, std::string_view value) {
    begin(key);
    protocol::append_json_string(value, out_);
  }
  void number(std::string_view key, std::int64_t value) { raw(key, std::to_string(value)); }
  // `value` is JSON as it stands.
  void raw(std::string_view key, std::string_view value) {
    begin(key);
    out_.append(value);
  }

 private:
  void begin(std::string_view key) {
    if (out_.back() != '{') out_.append(", ");
    protocol::append_json_string(key, out_);
    out_.append(": ");
  }

  std::string& out_;
};

std::string ids_json(const std::vector<TokenId>& ids) {
  std::string out = "[";
  for (const TokenId id : ids) {
    if (out.size() > 1) out.append(", ");
    out.append(std::to_string(id));
  }
  return out + "]";
}

std::string texts_json(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) {
    if (out.size() > 1) out.append(", ");
    protocol::append_json_string(text, out);
  }
  return out + "]";
}

std::string stats_json(const engine::EngineStats& stats) {
  std::string out;
  {
    ObjectWriter object(out);
    object.number("num_steps", stats.num_steps);
    object.number("num_steps_ahead", stats.num_steps_ahead);
    object.number("num_failed_steps", stats.num_failed_steps);
    object.number("busy_us", stats.busy_us);
    object.number("device_wait_us", stats.device_wait_us);
    object.number("num_tokens_computed", stats.num_tokens_computed);
    object.number("num_prompt_tokens", stats.num_prompt_tokens);
    object.number("num_cached_tokens", stats.num_cached_tokens);
    object.number("num_partial_hits", stats.num_partial_hits);
    object.number("num_generated_tokens", stats.num_generated_tokens);
    object.number("num_scored_tokens", stats.num_scored_tokens);
    object.number("num_preemptions", stats.num_preemptions);
    object.number("num_waiting", stats.num_waiting);
    object.number("num_running", stats.num_running);
    object.number("num_blocks", stats.agent.num_blocks);
    object.number("num_blocks_free", stats.num_blocks_free);
    object.number("num_blocks_evictable", stats.num_blocks_evictable);
    object.number("num_blocks_pinned", stats.num_blocks_pinned);
    object.number("tokens_per_block", kBlockSize);
    object.number("kv_cache_bytes", stats.agent.kv_bytes);
  }
  return out;
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
                            std::string_view version) {
  const engine::EngineStats& stats = status.stats;
  const registry::ModelDescription& model = status.description;
  const bool found = status.limits.vocab_size > 0;  // a download tells nothing before its end
  const bool loaded = stats.agent.num_blocks > 0;
  const std::int64_t num_parameters = loaded ? stats.agent.num_parameters : model.num_parameters;
  const bool loading = status.state == registry::ModelState::kLoading;
  const bool counted = loaded || (!loading && num_parameters > 0);
  std::string out;
  {
    ObjectWriter object(out);
    const auto text = [&](std::string_view key, std::string_view value) {
      found ? object.text(key, value) : object.raw(key, "null");
    };
    const auto number = [&](std::string_view key, std::int64_t value, bool known) {
      object.raw(key, known ? std::to_string(value) : "null");
    };
    object.text("model", asked_name.empty() ? model.name : asked_name);
    text("model_type", model.type);
    text("architecture", model.architecture);
    text("constructor", model.constructor);
    text("tokenizer", model.tokenizer);
    number("vocab_size", status.limits.vocab_size, found);
    number("context_length", status.limits.context_length, found);
    object.raw("eos_token_ids", found ? ids_json(status.limits.eos_ids) : "null");
    text("dtype", loaded ? stats.agent.dtype : model.dtype);
    text("device", loaded ? stats.agent.device : model.device);
    number("num_parameters", num_parameters, counted);
    object.text("state", state_name(status.state));
    object.number("progress", status.progress_percent);
    if (!status.error.empty()) object.text("error", status.error);
    std::vector<std::string> notes = model.notes;
    if (loaded) notes.insert(notes.end(), stats.agent.notes.begin(), stats.agent.notes.end());
    if (!notes.empty()) object.raw("notes", texts_json(notes));
    object.text("server", "lmtp-serve/" + std::string(version));
    object.raw("extensions", R"(["CANCEL", "LOADING"])");
    object.raw("stats", stats_json(stats));
  }
  return out;
}

}  // namespace lmtp::server
