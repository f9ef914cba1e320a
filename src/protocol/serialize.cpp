// Serialises messages without a JSON library: a token's entry is a few numbers, and there are
// thousands of them a second.
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/request/error_kind.h"
#include "lmtp/request/sampling_table.h"
#include "mask_codec.h"

namespace lmtp::protocol {
namespace {

// JSON has no infinities: infinity is written as this number, minus infinity as its negative.
constexpr float kJsonInfinity = 1e30F;

template <typename Int>
void append_int(Int value, std::string& out) {
  char text[24];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  out.append(text, end);
}

void append_float(float value, std::string& out) {
  if (!std::isfinite(value)) value = value > 0.0F ? kJsonInfinity : -kJsonInfinity;
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  const std::string_view written(text, static_cast<std::size_t>(end - text));
  out.append(written);
  // As the reference does, for clients whose language distinguishes 0 from 0.0.
  if (written.find_first_of(".e") == std::string_view::npos) out.append(".0");
}

void append_stream_id(const std::optional<StreamId>& id, std::string& out) {
  if (id) {
    append_int(*id, out);
  } else {
    out.append("null");
  }
}

void append_reason(FinishReason reason, std::string& out) {
  switch (reason) {
    case FinishReason::kNone:
      out.append("null");
      return;
    case FinishReason::kStop:
      out.append("\"stop\"");
      return;
    case FinishReason::kLength:
      out.append("\"length\"");
      return;
  }
}

void append_index(const std::optional<int>& index, std::string& out) {
  if (!index) return;
  out.append(", \"index\": ");
  append_int(*index, out);
}

void append_text(std::string_view key, const std::optional<std::string>& text, std::string& out) {
  if (!text) return;
  out.append(", \"").append(key).append("\": ");
  append_json_string(*text, out);
}

void append_token(const TokenEvent& entry, const TokenEntry* more, std::string& out) {
  out.append("{\"token\": ");
  append_int(entry.token, out);
  out.append(", \"stream_id\": ");
  append_int(entry.stream_id, out);
  if (more != nullptr) append_index(more->index, out);
  out.append(", \"logprob\": ");
  append_float(entry.logprob, out);
  if (entry.num_backtracked > 0) {
    out.append(", \"backtrack\": ");
    append_int(entry.num_backtracked, out);
  }
  if (entry.is_appended) out.append(", \"appended\": true");
  if (more != nullptr && more->fork) {
    out.append(", \"fork_of\": ");
    append_int(more->fork->fork_of, out);
    out.append(", \"fork_at\": ");
    append_int(more->fork->num_shared, out);
    out.append(", \"fork_prompt\": ");
    append_int(more->fork->num_prompt, out);
  }
  out.append(", \"finish_reason\": ");
  append_reason(entry.finish_reason, out);
  if (more != nullptr) {
    append_text("text", more->text, out);
    append_text("stop_text", more->stop_text, out);
  }
  if (entry.top_logprobs) {
    out.append(", \"top_logprobs\": {");
    bool first = true;
    for (const TokenLogprob& top : *entry.top_logprobs) {
      out.append(first ? "\"" : ", \"");
      first = false;
      append_int(top.token, out);
      out.append("\": ");
      append_float(top.logprob, out);
    }
    out.push_back('}');
  }
  out.push_back('}');
}

void append_entry(const TokenEvent& entry, std::string& out) { append_token(entry, nullptr, out); }

void append_entry(const TokenEntry& entry, std::string& out) {
  append_token(entry.event, &entry, out);
}

// Why a model could not be had is an error of it, not of the server, and may be over the next time.
const ErrorKind& kind_of(const ErrorEntry& entry) {
  const bool is_models = entry.no_model && (entry.code == ErrorCode::kUnavailable ||
                                            entry.code == ErrorCode::kInternal);
  return error_kind(is_models ? ErrorCode::kDeviceLost : entry.code);
}

void append_entry(const ErrorEntry& entry, std::string& out) {
  out.append("{\"stream_id\": ");
  append_stream_id(entry.stream_id, out);
  append_index(entry.index, out);
  out.append(", \"error\": ");
  append_json_string(entry.error, out);
  const ErrorKind& kind = kind_of(entry);
  out.append(", \"code\": \"").append(kind.lmtp_code).append("\", \"retryable\": ");
  const int retry_after = retry_after_ms(kind, entry.retry_after_ms);
  out.append(retry_after > 0 ? "true, \"retry_after_ms\": " : "false");
  if (retry_after > 0) append_int(retry_after, out);
  out.push_back('}');
}

void append_entry(const NoticeEntry& entry, std::string& out) {
  out.append("{\"stream_id\": ");
  append_int(entry.stream_id, out);
  append_index(entry.index, out);
  out.append(", \"status\": \"").append(entry.status).push_back('"');
  if (entry.status == "accepted") {
    out.append(", \"seed\": ");
    append_int(entry.seed, out);
    out.append(", \"model\": ");
    append_json_string(entry.model, out);
    out.append(", \"num_prompt\": ");
    append_int(entry.num_prompt, out);
  } else if (entry.status == "queued") {
    out.append(", \"position\": ");
    append_int(entry.position, out);
    out.append(", \"wait_ms_estimate\": ");
    append_int(entry.wait_ms, out);
  } else if (entry.status == "draining") {
    out.append(", \"deadline_ms\": ");
    append_int(entry.wait_ms, out);
  }
  out.push_back('}');
}

void append_entry(const LoadingNotice& entry, std::string& out) {
  out.append("{\"stream_id\": ");
  append_int(entry.stream_id, out);
  out.append(", \"status\": \"loading\", \"model\": ");
  append_json_string(entry.model, out);
  out.append(", \"progress\": ");
  append_int(entry.progress_percent, out);
  out.push_back('}');
}

void append_key(std::string_view key, std::string& out) {
  out.append(out.back() == '{' ? "\"" : ", \"").append(key).append("\": ");
}

template <typename Items, typename Append>
void append_array(const Items& items, std::string& out, Append append) {
  out.push_back('[');
  bool first = true;
  for (const auto& item : items) {
    if (!first) out.append(", ");
    first = false;
    append(item);
  }
  out.push_back(']');
}

void append_ids(const std::vector<TokenId>& tokens, std::string& out) {
  append_array(tokens, out, [&](TokenId token) { append_int(token, out); });
}

void append_tokens(std::string_view key, const std::vector<TokenId>& tokens, std::string& out) {
  append_key(key, out);
  append_ids(tokens, out);
}

void append_string(std::string_view key, std::string_view text, std::string& out) {
  append_key(key, out);
  append_json_string(text, out);
}

void append_bool(std::string_view key, bool value, std::string& out) {
  append_key(key, out);
  out.append(value ? "true" : "false");
}

void append_count(std::string_view key, std::int64_t value, std::string& out) {
  append_key(key, out);
  append_int(value, out);
}

void append_part(const PromptPart& part, std::string& out) {
  if (const auto* text = std::get_if<std::string>(&part)) return append_json_string(*text, out);
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&part)) return append_ids(*ids, out);
  const auto& buffer = std::get<BufferPart>(part);
  out.push_back('{');
  append_string("buffer", buffer.name, out);
  if (buffer.upto) append_count("upto", static_cast<std::int64_t>(*buffer.upto), out);
  out.push_back('}');
}

void append_prompt(const std::vector<TokenId>& ids, const StreamOptions& options,
                   std::string& out) {
  const std::vector<PromptPart>& parts = options.prompt_parts;
  if (parts.empty()) return append_tokens("prompt", ids, out);
  append_key("prompt", out);
  if (parts.size() == 1 && std::holds_alternative<std::string>(parts.front())) {
    return append_part(parts.front(), out);
  }
  append_array(parts, out, [&](const PromptPart& part) { append_part(part, out); });
}

// Options at their defaults are omitted.
void append_options(const StreamOptions& options, std::string& out) {
  if (!options.add_special_tokens) append_bool("add_special_tokens", false, out);
  if (options.text) append_bool("text", *options.text, out);
  if (!options.skip_special_tokens) append_bool("skip_special_tokens", false, out);
  if (options.notices) append_bool("notices", true, out);
  if (options.first_token_timeout_ms > 0) {
    append_count("first_token_timeout_ms", options.first_token_timeout_ms, out);
  }
  if (options.timeout_ms > 0) append_count("timeout_ms", options.timeout_ms, out);
}

void append_param(const SamplingParams& params, const SamplingParam& row,
                  std::string_view bias_json, std::string& out) {
  const auto append = [&]<typename T>(T SamplingParams::*member) {
    if constexpr (std::is_same_v<T, bool>) return append_bool(row.name, params.*member, out);
    append_key(row.name, out);
    if constexpr (std::is_same_v<T, std::shared_ptr<const LogitBias>>) {
      if (!bias_json.empty()) {
        out.append(bias_json);
      } else {
        out.append(params.*member != nullptr ? serialize_bias(*(params.*member)) : "{}");
      }
    } else if constexpr (std::is_same_v<T, float>) {
      append_float(params.*member, out);
    } else if constexpr (!std::is_same_v<T, bool>) {
      append_int(params.*member, out);
    }
  };
  std::visit(append, row.member);
}

// Parameters at their defaults are omitted.
void append_params(const SamplingParams& params, std::string_view bias_json, std::string& out) {
  const SamplingParams absent;
  for (const SamplingParam& row : kSamplingTable) {
    const auto is_given = [&]<typename T>(T SamplingParams::*member) {
      if constexpr (std::is_same_v<T, std::uint64_t>) return params.has_seed;
      return params.*member != absent.*member;
    };
    const bool has_bias = row.name == kLogitBiasName && !bias_json.empty();
    if (has_bias || std::visit(is_given, row.member)) append_param(params, row, bias_json, out);
  }
  if (!params.stop_token_ids.empty()) append_tokens("stop_token_ids", params.stop_token_ids, out);
  if (params.raw_logprobs) append_string("logprobs", "raw", out);
  if (params.mask) append_string("mask", encode_mask(*params.mask), out);
}

void append_common(StreamId stream_id, std::string_view model, std::string& out) {
  if (!model.empty()) {
    append_key("model", out);
    append_json_string(model, out);
  }
  append_key("stream_id", out);
  append_int(stream_id, out);
}

void append_chat(const Chat& chat, std::string& out) {
  const auto append = [&out](std::string_view key, const std::string& json) {
    if (json.empty()) return;
    append_key(key, out);
    out.append(json);
  };
  append("messages", chat.messages);
  append("tools", chat.tools);
  append("chat_template_kwargs", chat.template_kwargs);
  if (!chat.add_generation_prompt) append_bool("add_generation_prompt", false, out);
}

void append_message(const GenerateMessage& message, std::string_view bias_json, std::string& out) {
  out.append("GENERATE {");
  append_params(message.params, bias_json, out);
  if (message.chat) append_chat(*message.chat, out);
  if (!message.chat || !message.prompt.empty()) append_prompt(message.prompt, message.options, out);
  append_options(message.options, out);
  if (!message.stop.empty()) {
    append_key("stop", out);
    append_array(message.stop, out, [&](const auto& stop) { append_json_string(stop, out); });
  }
  if (message.include_stop) append_bool("include_stop", true, out);
  if (message.num_resumed > 0) append_count("resumed", message.num_resumed, out);
  if (message.num_samples > 1) append_count("n", message.num_samples, out);
  if (!message.into.empty()) append_string("into", message.into, out);
  append_common(message.stream_id, message.model, out);
}

void append_message(const ScoreMessage& message, std::string_view, std::string& out) {
  out.append("SCORE {");
  append_prompt(message.prompt, message.options, out);
  if (message.scored_text.empty()) {
    append_tokens("scored", message.scored, out);
  } else {
    append_string("scored", message.scored_text, out);
  }
  append_options(message.options, out);
  if (message.top_logprobs > 0) append_count("top_logprobs", message.top_logprobs, out);
  append_common(message.stream_id, message.model, out);
}

void append_message(const TokenizeMessage& message, std::string_view, std::string& out) {
  out.append("TOKENIZE {");
  if (message.chat) {
    append_chat(*message.chat, out);
  } else {
    append_string("text", message.text, out);
  }
  if (!message.add_special_tokens) append_bool("add_special_tokens", false, out);
  append_common(message.stream_id, message.model, out);
}

void append_message(const DetokenizeMessage& message, std::string_view, std::string& out) {
  out.append("DETOKENIZE {");
  append_tokens("tokens", message.tokens, out);
  if (!message.skip_special_tokens) append_bool("skip_special_tokens", false, out);
  append_common(message.stream_id, message.model, out);
}

void append_message(const BufferMessage& message, std::string_view, std::string& out) {
  out.append("BUFFER {");
  append_string("buffer", message.buffer, out);
  if (const auto* text = std::get_if<std::string>(&message.content)) {
    append_string("text", *text, out);
  } else {
    append_tokens("tokens", std::get<std::vector<TokenId>>(message.content), out);
  }
  if (message.append) append_bool("append", true, out);
  if (message.add_special_tokens) {
    append_bool("add_special_tokens", *message.add_special_tokens, out);
  }
  append_common(message.stream_id, message.model, out);
}

void append_message(const FreeMessage& message, std::string_view, std::string& out) {
  out.append("FREE {");
  append_string("buffer", message.buffer, out);
  if (message.stream_id) append_count("stream_id", *message.stream_id, out);
}

void append_message(const ForkMessage& message, std::string_view, std::string& out) {
  out.append("FORK {");
  append_key("streams", out);
  append_array(message.streams, out, [&](StreamId id) { append_int(id, out); });
  append_key("params", out);
  out.push_back('{');
  for (std::size_t i = 0; i < kSamplingTable.size(); ++i) {
    if (message.changes.given[i]) append_param(message.changes.values, kSamplingTable[i], {}, out);
  }
  out.push_back('}');
  append_common(message.stream_id, {}, out);
}

void append_message(const BacktrackMessage& message, std::string_view, std::string& out) {
  out.append("BACKTRACK {");
  if (message.num_dropped > 0) append_count("drop", message.num_dropped, out);
  if (!message.appended.empty()) append_tokens("append", message.appended, out);
  append_common(message.stream_id, {}, out);
}

void append_message(const ModelInfoMessage& message, std::string_view, std::string& out) {
  out.append("MODEL_INFO {");
  append_common(message.stream_id, message.model, out);
}

void append_message(const CancelMessage& message, std::string_view, std::string& out) {
  out.append("CANCEL {");
  append_common(message.stream_id, {}, out);
}

}  // namespace

void serialize_msg_error(const ErrorEntry& entry, std::string& out) {
  out.append("MSG [");
  append_entry(entry, out);
  out.push_back(']');
}

void serialize_tokens(std::span<const TokenOrError> entries, std::string& out) {
  out.append("TOKEN ");
  append_array(entries, out, [&](const auto& entry) {
    std::visit([&](const auto& e) { append_entry(e, out); }, entry);
  });
}

void serialize_loading(std::span<const LoadingNotice> entries, std::string& out) {
  out.append("MSG ");
  append_array(entries, out, [&](const auto& entry) { append_entry(entry, out); });
}

void serialize_notices(std::span<const NoticeEntry> entries, std::string& out) {
  out.append("MSG ");
  append_array(entries, out, [&](const auto& entry) { append_entry(entry, out); });
}

void serialize_answer(const std::variant<TokensEntry, TextEntry, BufferEntry>& entry,
                      std::string& out) {
  out.append("MSG [{\"stream_id\": ");
  append_int(std::visit([](const auto& kind) { return kind.stream_id; }, entry), out);
  if (const auto* tokens = std::get_if<TokensEntry>(&entry)) {
    append_tokens("tokens", tokens->tokens, out);
  } else if (const auto* text = std::get_if<TextEntry>(&entry)) {
    append_string("text", text->text, out);
  } else {
    const auto& buffer = std::get<BufferEntry>(entry);
    append_string("buffer", buffer.buffer, out);
    append_count("length", static_cast<std::int64_t>(buffer.length), out);
  }
  out.append("}]");
}

void serialize_model_info(const ModelInfoEntry& entry, std::string& out) {
  out.append("MSG [{\"stream_id\": ");
  append_int(entry.stream_id, out);
  out.append(", \"model_info\": ").append(entry.info_json).append("}]");
}

std::string serialize_bias(const LogitBias& bias) {
  std::string out = "{";
  for (std::size_t i = 0; i < bias.ids.size(); ++i) {
    out.append(i == 0 ? "\"" : ", \"");
    append_int(bias.ids[i], out);
    // JSON's -0 is a whole number, which has no sign to keep.
    const bool is_minus_zero = bias.values[i] == 0.0F && std::signbit(bias.values[i]);
    out.append("\": ").append(is_minus_zero ? "-0.0" : number_text(bias.values[i]));
  }
  out.push_back('}');
  return out;
}

std::string serialize_client_message(const ClientMessage& message, std::string_view bias_json) {
  std::string out;
  std::visit([&](const auto& kind) { append_message(kind, bias_json, out); }, message);
  out.push_back('}');
  return out;
}

}  // namespace lmtp::protocol
