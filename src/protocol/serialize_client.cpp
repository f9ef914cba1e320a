// What a client sends.
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <variant>

#include "json_numbers.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/request/sampling_table.h"
#include "mask_codec.h"

namespace lmtp::protocol {
namespace {

void write_part(const PromptPart& part, JsonWriter& json) {
  if (const auto* text = std::get_if<std::string>(&part)) {
    json.value(*text);
  } else if (const auto* ids = std::get_if<std::vector<TokenId>>(&part)) {
    json.value(*ids);
  } else {
    const auto& buffer = std::get<BufferPart>(part);
    json.begin_object().field("buffer", buffer.name).given_field("upto", buffer.upto).end_object();
  }
}

void write_prompt(const std::vector<TokenId>& ids, const StreamOptions& options, JsonWriter& json) {
  const std::vector<PromptPart>& parts = options.prompt_parts;
  json.key("prompt");
  if (parts.empty()) {
    json.value(ids);
  } else if (parts.size() == 1 && std::holds_alternative<std::string>(parts.front())) {
    write_part(parts.front(), json);
  } else {
    json.begin_array();
    for (const PromptPart& part : parts) write_part(part, json);
    json.end_array();
  }
}

// Options at their defaults are omitted.
void write_options(const StreamOptions& options, JsonWriter& json) {
  if (!options.add_special_tokens) json.field("add_special_tokens", false);
  json.given_field("text", options.text);
  if (!options.skip_special_tokens) json.field("skip_special_tokens", false);
  if (options.notices) json.field("notices", true);
  if (options.first_token_timeout_ms > 0) {
    json.field("first_token_timeout_ms", options.first_token_timeout_ms);
  }
  if (options.timeout_ms > 0) json.field("timeout_ms", options.timeout_ms);
  if (!options.cache_salt.empty()) json.field("cache_salt", options.cache_salt);
}

void write_param(const SamplingParams& params, const SamplingParam& row, std::string_view bias_json,
                 JsonWriter& json) {
  const auto write = [&]<typename T>(T SamplingParams::*member) {
    json.key(row.name);
    if constexpr (std::is_same_v<T, std::shared_ptr<const LogitBias>>) {
      if (!bias_json.empty()) {
        json.raw(bias_json);
      } else {
        json.raw(params.*member != nullptr ? serialize_bias(*(params.*member)) : "{}");
      }
    } else if constexpr (std::is_same_v<T, float>) {
      append_float(params.*member, json.out());
    } else {
      json.value(params.*member);
    }
  };
  std::visit(write, row.member);
}

// What is reported besides, as SamplingParams and ScoreMessage have it.
template <typename Params>
void write_reported(const Params& params, JsonWriter& json) {
  if (params.logprob_token_ids != nullptr) {
    json.field("logprob_token_ids", *params.logprob_token_ids);
  }
  if (params.measures.entropy) json.field("entropy", true);
  if (params.measures.rank) json.field("rank", true);
}

// Parameters at their defaults are omitted.
void write_params(const SamplingParams& params, std::string_view bias_json, JsonWriter& json) {
  const SamplingParams absent;
  for (const SamplingParam& row : kSamplingTable) {
    const auto is_given = [&]<typename T>(T SamplingParams::*member) {
      if constexpr (std::is_same_v<T, std::uint64_t>) return params.has_seed;
      return params.*member != absent.*member;
    };
    const bool has_bias = row.name == kLogitBiasName && !bias_json.empty();
    if (has_bias || std::visit(is_given, row.member)) write_param(params, row, bias_json, json);
  }
  if (!params.stop_token_ids.empty()) json.field("stop_token_ids", params.stop_token_ids);
  if (params.raw_logprobs) json.field("logprobs", "raw");
  if (params.mask) json.field("mask", encode_mask(*params.mask));
  write_reported(params, json);
}

void write_common(StreamId stream_id, std::string_view model, JsonWriter& json) {
  if (!model.empty()) json.field("model", model);
  json.field("stream_id", stream_id);
}

void write_chat(const Chat& chat, JsonWriter& json) {
  const auto write = [&json](std::string_view name, const std::string& text) {
    if (!text.empty()) json.raw_field(name, text);
  };
  write("messages", chat.messages);
  write("tools", chat.tools);
  write("chat_template_kwargs", chat.template_kwargs);
  if (!chat.add_generation_prompt) json.field("add_generation_prompt", false);
}

void write_reading(const ReplyReading& reading, JsonWriter& json) {
  json.field("parsed", true);
  if (!reading.tool_choice.empty()) json.raw_field("tool_choice", reading.tool_choice);
  if (!reading.parallel_tool_calls) json.field("parallel_tool_calls", false);
  if (reading.thinking_token_budget >= 0) {
    json.field("thinking_token_budget", reading.thinking_token_budget);
  }
}

void write_triggers(const GrammarTriggers& triggers, JsonWriter& json) {
  json.key("triggers").begin_object();
  if (!triggers.reasoning_begin.empty()) json.field("reasoning_begin", triggers.reasoning_begin);
  if (!triggers.reasoning_end.empty()) json.field("reasoning_end", triggers.reasoning_end);
  if (triggers.in_reasoning) json.field("in_reasoning", true);
  if (triggers.reasoning_tokens_max >= 0) {
    json.field("reasoning_tokens_max", triggers.reasoning_tokens_max);
  }
  if (triggers.min_tokens > 0) json.field("min_tokens", triggers.min_tokens);
  if (!triggers.openings.empty()) json.field("openings", triggers.openings);
  if (!triggers.first_openings.empty()) json.field("first_openings", triggers.first_openings);
  if (!triggers.dropped.empty()) json.field("dropped", triggers.dropped);
  if (triggers.repeats) json.field("repeats", true);
  json.end_object();
}

void write_grammar(const Grammar& grammar, JsonWriter& json) {
  json.key("grammar").begin_object().field("type", grammar_type(grammar.kind));
  if (grammar.kind == Grammar::Kind::kChoice) {
    json.raw_field("value", grammar.text);
  } else if (grammar.kind != Grammar::Kind::kJson && grammar.kind != Grammar::Kind::kFree) {
    json.field("value", grammar.text);
  }
  if (grammar.triggers) write_triggers(*grammar.triggers, json);
  json.end_object();
}

std::string_view verb_of(const GenerateMessage& /*message*/) { return "GENERATE"; }
void write_message(const GenerateMessage& message, std::string_view bias_json, JsonWriter& json) {
  write_params(message.params, bias_json, json);
  if (message.chat) write_chat(*message.chat, json);
  if (message.reading) write_reading(*message.reading, json);
  if (!message.chat || !message.prompt.empty()) write_prompt(message.prompt, message.options, json);
  write_options(message.options, json);
  if (!message.stop.empty()) json.field("stop", message.stop);
  if (!message.bad_words.empty()) json.field("bad_words", message.bad_words);
  if (message.include_stop) json.field("include_stop", true);
  if (message.num_resumed > 0) json.field("resumed", message.num_resumed);
  if (message.num_samples > 1) json.field("n", message.num_samples);
  if (!message.into.empty()) json.field("into", message.into);
  if (message.grammar) write_grammar(*message.grammar, json);
  if (!message.controller.empty()) json.field("controller", message.controller);
  if (!message.controller_arg.empty()) json.field("controller_arg", message.controller_arg);
  write_common(message.stream_id, message.model, json);
}

std::string_view verb_of(const ScoreMessage& /*message*/) { return "SCORE"; }
void write_message(const ScoreMessage& message, std::string_view /*bias_json*/, JsonWriter& json) {
  write_prompt(message.prompt, message.options, json);
  if (!message.candidates.empty()) {
    json.key("candidates").begin_array();
    for (const Candidate& one : message.candidates) {
      std::visit([&](const auto& kind) { json.value(kind); }, one);
    }
    json.end_array();
  } else if (message.scored_text.empty()) {
    json.field("scored", message.scored);
  } else {
    json.field("scored", message.scored_text);
  }
  write_options(message.options, json);
  if (message.top_logprobs > 0) json.field("top_logprobs", message.top_logprobs);
  write_reported(message, json);
  write_common(message.stream_id, message.model, json);
}

std::string_view verb_of(const DecideMessage& /*message*/) { return "DECIDE"; }
void write_message(const DecideMessage& message, std::string_view /*bias_json*/, JsonWriter& json) {
  if (!message.state.empty()) json.raw_field("state", message.state);
  write_chat({.messages = message.messages, .template_kwargs = message.template_kwargs}, json);
  json.raw_field("questions", message.questions);
  if (message.scoring != "auto") json.field("scoring", message.scoring);
  if (message.diagnoses) json.field("diagnostics", true);
  if (!message.instructions.empty()) json.field("instructions", message.instructions);
  write_options(message.options, json);
  write_common(message.stream_id, message.model, json);
}

std::string_view verb_of(const TokenizeMessage& /*message*/) { return "TOKENIZE"; }
void write_message(const TokenizeMessage& message, std::string_view /*bias_json*/,
                   JsonWriter& json) {
  if (message.chat) {
    write_chat(*message.chat, json);
  } else {
    json.field("text", message.text);
  }
  if (!message.add_special_tokens) json.field("add_special_tokens", false);
  write_common(message.stream_id, message.model, json);
}

std::string_view verb_of(const DetokenizeMessage& /*message*/) { return "DETOKENIZE"; }
void write_message(const DetokenizeMessage& message, std::string_view /*bias_json*/,
                   JsonWriter& json) {
  json.field("tokens", message.tokens);
  if (!message.skip_special_tokens) json.field("skip_special_tokens", false);
  write_common(message.stream_id, message.model, json);
}

std::string_view verb_of(const BufferMessage& /*message*/) { return "BUFFER"; }
void write_message(const BufferMessage& message, std::string_view /*bias_json*/, JsonWriter& json) {
  json.field("buffer", message.buffer);
  if (const auto* text = std::get_if<std::string>(&message.content)) {
    json.field("text", *text);
  } else {
    json.field("tokens", std::get<std::vector<TokenId>>(message.content));
  }
  if (message.append) json.field("append", true);
  json.given_field("add_special_tokens", message.add_special_tokens);
  write_common(message.stream_id, message.model, json);
}

std::string_view verb_of(const FreeMessage& /*message*/) { return "FREE"; }
void write_message(const FreeMessage& message, std::string_view /*bias_json*/, JsonWriter& json) {
  json.field("buffer", message.buffer);
  if (message.stream_id) json.field("stream_id", *message.stream_id);
}

std::string_view verb_of(const ForkMessage& /*message*/) { return "FORK"; }
void write_message(const ForkMessage& message, std::string_view /*bias_json*/, JsonWriter& json) {
  json.field("streams", message.streams).key("params").begin_object();
  for (std::size_t i = 0; i < kSamplingTable.size(); ++i) {
    if (message.changes.given[i]) write_param(message.changes.values, kSamplingTable[i], {}, json);
  }
  json.end_object();
  write_common(message.stream_id, {}, json);
}

std::string_view verb_of(const BacktrackMessage& /*message*/) { return "BACKTRACK"; }
void write_message(const BacktrackMessage& message, std::string_view /*bias_json*/,
                   JsonWriter& json) {
  if (message.num_dropped > 0) json.field("drop", message.num_dropped);
  if (!message.appended.empty()) json.field("append", message.appended);
  write_common(message.stream_id, {}, json);
}

std::string_view verb_of(const ControllerMessage& /*message*/) { return "CONTROLLER"; }
void write_message(const ControllerMessage& message, std::string_view /*bias_json*/,
                   JsonWriter& json) {
  json.field("op", controller_op_name(message.op));
  if (message.op == ControllerMessage::Op::kUpload) {
    json.field("binary", encode_base64(message.binary));
  }
  if (message.op == ControllerMessage::Op::kTag) json.field("module_id", message.module_id);
  if (!message.tags.empty()) json.field("tags", message.tags);
  write_common(message.stream_id, message.model, json);
}

std::string_view verb_of(const ModelInfoMessage& /*message*/) { return "MODEL_INFO"; }
void write_message(const ModelInfoMessage& message, std::string_view /*bias_json*/,
                   JsonWriter& json) {
  write_common(message.stream_id, message.model, json);
}

std::string_view verb_of(const CancelMessage& /*message*/) { return "CANCEL"; }
void write_message(const CancelMessage& message, std::string_view /*bias_json*/, JsonWriter& json) {
  write_common(message.stream_id, {}, json);
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
  JsonWriter json(out);
  const auto write = [&](const auto& kind) {
    out.append(verb_of(kind)).append(" ");
    json.begin_object();
    write_message(kind, bias_json, json);
    json.end_object();
  };
  std::visit(write, message);
  return out;
}

}  // namespace lmtp::protocol
