// What the server sends.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "json_numbers.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::protocol {
namespace {

using std::string_view_literals::operator""sv;

std::string_view reason_field(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      break;
    case FinishReason::kStop:
      return R"(, "finish_reason": "stop")"sv;
    case FinishReason::kLength:
      return R"(, "finish_reason": "length")"sv;
  }
  return R"(, "finish_reason": null)"sv;
}

// What all tokens have, but for the end: as it is written for each of them, it is one append.
void write_head(const TokenEvent& entry, const std::optional<int>& index, std::string& out) {
  constexpr std::size_t kNumberBytesMax = 20;
  char text[128 + 3 * kNumberBytesMax + kFloatBytesMax];
  char* at = text;
  const auto put = [&at](std::string_view literal) {
    at = std::copy(literal.begin(), literal.end(), at);
  };
  const auto number = [&at](auto value) {
    at = std::to_chars(at, at + kNumberBytesMax, value).ptr;
  };
  put("\"token\": "sv);
  if (entry.token == kNoToken) {
    put("null"sv);
  } else {
    number(entry.token);
  }
  put(", \"stream_id\": "sv);
  number(entry.stream_id);
  if (index) {
    put(", \"index\": "sv);
    number(*index);
  }
  put(", \"logprob\": "sv);
  at = write_float(entry.logprob, at);
  out.append(text, at);
}

void write_logprobs(std::string_view name, std::span<const TokenLogprob> logprobs,
                    JsonWriter& json) {
  std::string& out = json.key(name).begin_object().out();
  bool first = true;
  for (const TokenLogprob& one : logprobs) {
    out.append(first ? "\"" : ", \"");
    first = false;
    append_int(one.token, out);
    out.append("\": ");
    append_float(one.logprob, out);
  }
  json.end_object();
}

void write_pieces(const ReplyPieces& pieces, JsonWriter& json) {
  if (!pieces.reasoning.empty()) json.field("reasoning", pieces.reasoning);
  if (pieces.calls.empty()) return;
  json.key("calls").begin_array();
  for (const CallPiece& call : pieces.calls) {
    json.begin_object().field("index", call.index);
    if (!call.name.empty()) json.field("id", call.id).field("name", call.name);
    if (!call.arguments.empty()) json.field("arguments", call.arguments);
    if (call.is_complete) json.field("complete", true);
    json.end_object();
  }
  json.end_array();
}

void write_candidates(const std::vector<CandidateLogprob>& candidates, JsonWriter& json) {
  json.key("candidates").begin_array();
  for (const CandidateLogprob& one : candidates) {
    append_float(one.logprob, json.begin_object().key("logprob").out());
    json.field("num_tokens", one.num_tokens).end_object();
  }
  json.end_array();
}

void write_decision(const DecisionAnswer& decision, JsonWriter& json) {
  json.raw_field("answers", decision.answers).raw_field("diagnostics", decision.diagnostics);
  json.key("usage").begin_object().field("input_tokens", decision.num_prompt);
  json.field("cached_tokens", decision.num_cached).end_object();
}

void write_token(const TokenEvent& entry, const TokenEntry* more, JsonWriter& json) {
  write_head(entry, more != nullptr ? more->index : std::nullopt, json.begin_object().out());
  if (entry.num_backtracked > 0) json.field("backtrack", entry.num_backtracked);
  if (entry.is_appended) json.field("appended", true);
  if (entry.is_forced) json.field("forced", true);
  if (more != nullptr && more->fork) {
    json.field("fork_of", more->fork->fork_of).field("fork_at", more->fork->num_shared);
    json.field("fork_prompt", more->fork->num_prompt);
  }
  if (more != nullptr && more->forked) {
    json.field("fork_of_index", more->forked->fork_of).field("fork_at", more->forked->num_shared);
  }
  json.out().append(reason_field(entry.finish_reason));
  if (more != nullptr) {
    json.given_field("text", more->text);
    if (more->pieces != nullptr) write_pieces(*more->pieces, json);
    json.given_field("stop_text", more->stop_text);
  }
  if (entry.top_logprobs) write_logprobs("top_logprobs", *entry.top_logprobs, json);
  if (entry.listed_logprobs != nullptr) {
    write_logprobs("token_logprobs", *entry.listed_logprobs, json);
  }
  if (entry.measured.entropy) append_float(*entry.measured.entropy, json.key("entropy").out());
  if (entry.measured.rank > 0) json.field("rank", entry.measured.rank);
  if (more != nullptr && more->candidates) write_candidates(*more->candidates, json);
  if (more != nullptr && more->decision) write_decision(*more->decision, json);
  json.end_object();
}

void write_entry(const TokenEvent& entry, JsonWriter& json) { write_token(entry, nullptr, json); }

void write_entry(const TokenEntry& entry, JsonWriter& json) {
  write_token(entry.event, &entry, json);
}

// Why a model could not be had is an error of it, not of the server, and may be over the next time.
const ErrorKind& kind_of(const ErrorEntry& entry) {
  const bool is_models = entry.no_model && (entry.code == ErrorCode::kUnavailable ||
                                            entry.code == ErrorCode::kInternal);
  return error_kind(is_models ? ErrorCode::kDeviceLost : entry.code);
}

void write_entry(const ErrorEntry& entry, JsonWriter& json) {
  const ErrorKind& kind = kind_of(entry);
  const int retry_after = retry_after_ms(kind, entry.retry_after_ms);
  json.begin_object().field("stream_id", entry.stream_id).given_field("index", entry.index);
  json.field("error", entry.error).field("code", kind.lmtp_code);
  json.field("retryable", retry_after > 0);
  if (retry_after > 0) json.field("retry_after_ms", retry_after);
  json.end_object();
}

void write_entry(const NoticeEntry& entry, JsonWriter& json) {
  json.begin_object().field("stream_id", entry.stream_id).given_field("index", entry.index);
  json.field("status", entry.status);
  if (entry.status == "accepted") {
    json.field("seed", entry.seed).field("model", entry.model);
    json.field("num_prompt", entry.num_prompt);
  } else if (entry.status == "queued") {
    json.field("position", entry.position).field("wait_ms_estimate", entry.wait_ms);
  } else if (entry.status == "recomputes") {
    json.field("num_tokens", entry.num_tokens);
  } else if (entry.status == "draining") {
    json.field("deadline_ms", entry.wait_ms);
  }
  json.end_object();
}

void write_entry(const LoadingNotice& entry, JsonWriter& json) {
  json.begin_object().field("stream_id", entry.stream_id).field("status", "loading");
  json.field("model", entry.model).field("progress", entry.progress_percent).end_object();
}

void write_entry(const ControllerEntry& entry, JsonWriter& json) {
  json.begin_object().field("stream_id", entry.stream_id).given_field("index", entry.index);
  json.key("controller").begin_object().field("logs", entry.logs);
  json.raw_field("storage", entry.storage.empty() ? "[]" : entry.storage);
  json.field("micros", entry.micros).given_field("prompt", entry.prompt);
  json.end_object().end_object();
}

template <typename... Kinds>
void write_entry(const std::variant<Kinds...>& entry, JsonWriter& json) {
  std::visit([&](const auto& kind) { write_entry(kind, json); }, entry);
}

// "MSG [...]", or another verb.
template <typename Entries>
void serialize(std::string_view verb, const Entries& entries, std::string& out) {
  JsonWriter json(out.append(verb).append(" "));
  json.begin_array();
  for (const auto& entry : entries) write_entry(entry, json);
  json.end_array();
}

// A MSG of one entry, whose other fields `write` adds.
template <typename Write>
void serialize_one(StreamId id, std::string& out, const Write& write) {
  JsonWriter json(out.append("MSG "));
  json.begin_array().begin_object().field("stream_id", id);
  write(json);
  json.end_object().end_array();
}

}  // namespace

void serialize_msg_error(const ErrorEntry& entry, std::string& out) {
  serialize("MSG", std::span(&entry, 1), out);
}

void serialize_tokens(std::span<const TokenOrError> entries, std::string& out) {
  serialize("TOKEN", entries, out);
}

void serialize_loading(std::span<const LoadingNotice> entries, std::string& out) {
  serialize("MSG", entries, out);
}

void serialize_notices(std::span<const NoticeEntry> entries, std::string& out) {
  serialize("MSG", entries, out);
}

void serialize_controllers(std::span<const ControllerEntry> entries, std::string& out) {
  serialize("MSG", entries, out);
}

void serialize_answer(const std::variant<TokensEntry, TextEntry, BufferEntry>& entry,
                      std::string& out) {
  const StreamId id = std::visit([](const auto& kind) { return kind.stream_id; }, entry);
  serialize_one(id, out, [&](JsonWriter& json) {
    if (const auto* tokens = std::get_if<TokensEntry>(&entry)) {
      json.field("tokens", tokens->tokens);
    } else if (const auto* text = std::get_if<TextEntry>(&entry)) {
      json.field("text", text->text);
    } else {
      const auto& buffer = std::get<BufferEntry>(entry);
      json.field("buffer", buffer.buffer).field("length", buffer.length);
    }
  });
}

void serialize_model_info(const ModelInfoEntry& entry, std::string& out) {
  serialize_one(entry.stream_id, out,
                [&](JsonWriter& json) { json.raw_field("model_info", entry.info_json); });
}

void serialize_controller_answer(const ControllerAnswer& entry, std::string& out) {
  serialize_one(entry.stream_id, out,
                [&](JsonWriter& json) { json.raw_field("controller", entry.controller_json); });
}

}  // namespace lmtp::protocol
