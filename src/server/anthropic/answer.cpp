#include "answer.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "error.h"
#include "generation/item_answer.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"

namespace lmtp::server {
namespace {

using ItemKind = ReplyItem::Kind;

// Blocks of thinking have one, which clients send back and do not read. This one proves nothing.
constexpr std::string_view kSignature = "bG10cC1zZXJ2ZQ==";

std::string_view message_stop_reason(ReplyEnd end) {
  switch (end) {
    case ReplyEnd::kCalls:
      return "tool_use";
    case ReplyEnd::kStopText:
      return "stop_sequence";
    case ReplyEnd::kLength:
      return "max_tokens";
    case ReplyEnd::kContext:
      return "model_context_window_exceeded";
    case ReplyEnd::kStop:
      break;
  }
  return "end_turn";
}

// What a block begins as in a stream, or all of it.
void write_block(const ReplyItem& item, bool is_whole, JsonWriter& json) {
  const std::string_view text = is_whole ? std::string_view(item.text) : std::string_view();
  json.begin_object();
  switch (item.kind) {
    case ItemKind::kText:
      json.field("type", "text").field("text", text);
      break;
    case ItemKind::kReasoning:
      json.field("type", "thinking").field("thinking", text);
      json.field("signature", is_whole ? kSignature : std::string_view());
      break;
    case ItemKind::kCall:
      json.field("type", "tool_use").field("id", item.id).field("name", item.function);
      // What was cut is no object yet.
      json.raw_field("input", is_whole && item.is_whole && !text.empty() ? text : "{}");
      break;
  }
  json.end_object();
}

class MessagesAnswer : public ItemAnswer {
 public:
  using ItemAnswer::ItemAnswer;

 private:
  void write_start() override {
    JsonWriter json = begin_event("message_start");
    json.key("message");
    write_message(false, json);
    end_event(json);
  }

  void write_item_start(const ReplyItem& item, std::size_t index) override {
    JsonWriter json = begin_event("content_block_start");
    json.field("index", index).key("content_block");
    write_block(item, false, json);
    end_event(json);
  }

  void write_piece(const ReplyItem& item, std::size_t index, std::string_view piece) override {
    switch (item.kind) {
      case ItemKind::kText:
        return write_delta(index, "text_delta", "text", piece);
      case ItemKind::kReasoning:
        return write_delta(index, "thinking_delta", "thinking", piece);
      case ItemKind::kCall:
        return write_delta(index, "input_json_delta", "partial_json", piece);
    }
  }

  void write_item_end(const ReplyItem& item, std::size_t index) override {
    if (item.kind == ItemKind::kReasoning) {
      write_delta(index, "signature_delta", "signature", kSignature);
    }
    JsonWriter json = begin_event("content_block_stop");
    end_event(json.field("index", index));
  }

  void write_end() override {
    JsonWriter json = begin_event("message_delta");
    json.key("delta").begin_object();
    write_stop(true, json);
    json.end_object();
    write_usage(json);
    end_event(json);
    JsonWriter last = begin_event("message_stop");
    end_event(last);
  }

  void write_error(const Error& error, bool /*no_model*/) override {
    events().append("event: error\ndata: ").append(anthropic_error_json(error)).append("\n");
  }

  std::string_view silence() const override {
    return "event: ping\ndata: {\"type\": \"ping\"}\n\n";
  }

  std::string whole() override {
    std::string body;
    JsonWriter json(body);
    write_message(true, json);
    return body;
  }

  HttpResponse refusal(const Error& error, bool /*no_model*/) const override {
    return anthropic_error(error);
  }

  JsonWriter begin_event(std::string_view type) {
    events().append("event: ").append(type).append("\ndata: ");
    JsonWriter json(events());
    json.begin_object().field("type", type);
    return json;
  }
  static void end_event(JsonWriter& json) { json.end_object().out() += "\n\n"; }

  void write_delta(std::size_t index, std::string_view type, std::string_view name,
                   std::string_view piece) {
    JsonWriter json = begin_event("content_block_delta");
    json.field("index", index).key("delta").begin_object();
    json.field("type", type).field(name, piece).end_object();
    end_event(json);
  }

  void write_stop(bool is_whole, JsonWriter& json) const {
    if (!is_whole) {
      json.field("stop_reason", nullptr).field("stop_sequence", nullptr);
      return;
    }
    json.field("stop_reason", message_stop_reason(end()));
    const bool is_text = end() == ReplyEnd::kStopText;
    json.key("stop_sequence").value(is_text ? stop_text() : std::nullopt);
  }

  // What was found in the cache is no part of the input's tokens.
  void write_usage(JsonWriter& json) const {
    const int num_cached = this->num_cached().value_or(0);
    json.key("usage").begin_object().field("input_tokens", num_prompt_tokens() - num_cached);
    json.field("cache_creation_input_tokens", 0).field("cache_read_input_tokens", num_cached);
    json.field("output_tokens", num_tokens());
    if (num_reasoning_tokens() > 0) {
      json.key("output_tokens_details").begin_object();
      json.field("thinking_tokens", num_reasoning_tokens()).end_object();
    }
    json.end_object();
  }

  void write_message(bool is_whole, JsonWriter& json) const {
    json.begin_object().field("id", id()).field("type", "message").field("role", "assistant");
    json.field("model", model()).key("content").begin_array();
    for (const ReplyItem& item : items()) {
      if (is_whole) write_block(item, true, json);
    }
    json.end_array();
    write_stop(is_whole, json);
    write_usage(json);
    json.end_object();
  }
};

}  // namespace

void answer_messages(ServerContext& context, MessagesRequest request,
                     const std::shared_ptr<HttpResponder>& responder) {
  ItemOptions options;
  options.model = request.generation.model;
  options.streams = request.streams;
  options.keeps_items = !request.streams;
  options.max_tokens = request.max_tokens;
  options.id_prefix = "msg_";
  const auto answer = std::make_shared<MessagesAnswer>(context, std::move(options), responder);
  answer_items(context, std::move(request.generation), responder, answer);
}

}  // namespace lmtp::server
