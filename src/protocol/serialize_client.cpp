// What a client sends.
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <variant>

#include "json_pieces.h"
#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/request/sampling_table.h"
#include "mask_codec.h"

namespace lmtp::protocol {
namespace {

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

void append_grammar(const Grammar& grammar, std::string& out) {
  append_key("grammar", out);
  out.push_back('{');
  append_string("type", grammar_type(grammar.kind), out);
  if (grammar.kind == Grammar::Kind::kChoice) {
    append_key("value", out);
    out.append(grammar.text);
  } else if (grammar.kind != Grammar::Kind::kJson) {
    append_string("value", grammar.text, out);
  }
  out.push_back('}');
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
  if (message.grammar) append_grammar(*message.grammar, out);
  if (!message.controller.empty()) append_string("controller", message.controller, out);
  if (!message.controller_arg.empty()) append_string("controller_arg", message.controller_arg, out);
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

void append_message(const ControllerMessage& message, std::string_view, std::string& out) {
  out.append("CONTROLLER {");
  append_string("op", controller_op_name(message.op), out);
  if (message.op == ControllerMessage::Op::kUpload) {
    append_string("binary", encode_base64(message.binary), out);
  }
  if (message.op == ControllerMessage::Op::kTag) {
    append_string("module_id", message.module_id, out);
    append_key("tags", out);
    append_array(message.tags, out, [&](const auto& tag) { append_json_string(tag, out); });
  }
  append_common(message.stream_id, message.model, out);
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
