// Messages as text, written by hand: a token's entry is a few numbers, and there are thousands of
// them a second.
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/request/sampling_table.h"

namespace lmtp::protocol {
namespace {

// JSON has no infinities; this is what stands for "never" (and its negative for "no number").
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
  // Clients whose language tells 0 from 0.0 get the fraction that the reference sends.
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

void append_entry(const TokenEvent& entry, std::string& out) {
  out.append("{\"token\": ");
  append_int(entry.token, out);
  out.append(", \"stream_id\": ");
  append_int(entry.stream_id, out);
  out.append(", \"logprob\": ");
  append_float(entry.logprob, out);
  out.append(", \"finish_reason\": ");
  append_reason(entry.finish_reason, out);
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

void append_entry(const ErrorEntry& entry, std::string& out) {
  out.append("{\"stream_id\": ");
  append_stream_id(entry.stream_id, out);
  out.append(", \"error\": ");
  append_json_string(entry.error, out);
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

void append_tokens(std::string_view key, const std::vector<TokenId>& tokens, std::string& out) {
  append_key(key, out);
  out.push_back('[');
  bool first = true;
  for (const TokenId token : tokens) {
    if (!first) out.append(", ");
    first = false;
    append_int(token, out);
  }
  out.push_back(']');
}

// Those at their defaults are left out.
void append_params(const SamplingParams& params, std::string_view bias_json, std::string& out) {
  const SamplingParams absent;
  for (const SamplingParam& row : kSamplingTable) {
    const auto append = [&]<typename T>(T SamplingParams::*member) {
      if constexpr (std::is_same_v<T, std::shared_ptr<const LogitBias>>) {
        if (bias_json.empty() && !(params.*member)) return;
        append_key(row.name, out);
        out.append(bias_json.empty() ? serialize_bias(*(params.*member)) : bias_json);
      } else if constexpr (std::is_same_v<T, std::uint64_t>) {
        if (!params.has_seed) return;
        append_key(row.name, out);
        append_int(params.*member, out);
      } else if (params.*member != absent.*member) {
        append_key(row.name, out);
        if constexpr (std::is_same_v<T, float>) {
          append_float(params.*member, out);
        } else {
          append_int(params.*member, out);
        }
      }
    };
    std::visit(append, row.member);
  }
}

void append_common(StreamId stream_id, std::string_view model, std::string& out) {
  if (!model.empty()) {
    append_key("model", out);
    append_json_string(model, out);
  }
  append_key("stream_id", out);
  append_int(stream_id, out);
}

void append_message(const GenerateMessage& message, std::string_view bias_json, std::string& out) {
  out.append("GENERATE {");
  append_params(message.params, bias_json, out);
  append_tokens("prompt", message.prompt, out);
  append_common(message.stream_id, message.model, out);
}

void append_message(const ScoreMessage& message, std::string_view, std::string& out) {
  out.append("SCORE {");
  append_tokens("prompt", message.prompt, out);
  append_tokens("scored", message.scored, out);
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

void serialize_tokens(std::span<const std::variant<TokenEvent, ErrorEntry>> entries,
                      std::string& out) {
  out.append("TOKEN [");
  bool first = true;
  for (const auto& entry : entries) {
    if (!first) out.append(", ");
    first = false;
    std::visit([&out](const auto& kind) { append_entry(kind, out); }, entry);
  }
  out.push_back(']');
}

void serialize_msg_error(const ErrorEntry& entry, std::string& out) {
  out.append("MSG [");
  append_entry(entry, out);
  out.push_back(']');
}

void serialize_loading(std::span<const LoadingNotice> entries, std::string& out) {
  out.append("MSG [");
  bool first = true;
  for (const LoadingNotice& entry : entries) {
    if (!first) out.append(", ");
    first = false;
    append_entry(entry, out);
  }
  out.push_back(']');
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
    out.append("\": ").append(number_text(bias.values[i]));
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
