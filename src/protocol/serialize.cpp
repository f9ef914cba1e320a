// What the server sends.
#include "json_pieces.h"
#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::protocol {
namespace {

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
  if (entry.token == kNoToken) {
    out.append("null");
  } else {
    append_int(entry.token, out);
  }
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
  if (entry.is_forced) out.append(", \"forced\": true");
  if (more != nullptr && more->fork) {
    out.append(", \"fork_of\": ");
    append_int(more->fork->fork_of, out);
    out.append(", \"fork_at\": ");
    append_int(more->fork->num_shared, out);
    out.append(", \"fork_prompt\": ");
    append_int(more->fork->num_prompt, out);
  }
  if (more != nullptr && more->forked) {
    out.append(", \"fork_of_index\": ");
    append_int(more->forked->fork_of, out);
    out.append(", \"fork_at\": ");
    append_int(more->forked->num_shared, out);
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

void serialize_controllers(std::span<const ControllerEntry> entries, std::string& out) {
  out.append("MSG ");
  append_array(entries, out, [&](const ControllerEntry& entry) {
    out.append("{\"stream_id\": ");
    append_int(entry.stream_id, out);
    append_index(entry.index, out);
    out.append(", \"controller\": {\"logs\": ");
    append_json_string(entry.logs, out);
    out.append(", \"storage\": ").append(entry.storage.empty() ? "[]" : entry.storage);
    append_count("micros", entry.micros, out);
    if (entry.prompt) append_tokens("prompt", *entry.prompt, out);
    out.append("}}");
  });
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

void serialize_controller_answer(const ControllerAnswer& entry, std::string& out) {
  out.append("MSG [{\"stream_id\": ");
  append_int(entry.stream_id, out);
  out.append(", \"controller\": ").append(entry.controller_json).append("}]");
}

}  // namespace lmtp::protocol
