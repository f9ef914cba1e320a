#include "answer.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "custom_tools.h"
#include "generation/fresh.h"
#include "generation/item_answer.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "openai/error.h"
#include "openai/token_lists.h"

namespace lmtp::server {
namespace {

using ItemKind = ReplyItem::Kind;

enum class ResponseStatus { kInProgress, kCompleted, kIncomplete, kFailed };

std::string_view response_status(ResponseStatus status) {
  switch (status) {
    case ResponseStatus::kInProgress:
      return "in_progress";
    case ResponseStatus::kIncomplete:
      return "incomplete";
    case ResponseStatus::kFailed:
      return "failed";
    case ResponseStatus::kCompleted:
      break;
  }
  return "completed";
}

OrderedJson echoed_without_store(OrderedJson echoed) {
  echoed["store"] = false;
  return echoed;
}

void write_logprobs(std::string_view logprobs, JsonWriter& json) {
  json.key("logprobs").begin_array().out() += logprobs;
  json.end_array();
}

// The part of an item that is text.
void write_part(const ReplyItem& item, std::string_view text, JsonWriter& json) {
  const bool is_answer = item.kind == ItemKind::kText;
  json.begin_object().field("type", is_answer ? "output_text" : "reasoning_text");
  json.field("text", text);
  if (is_answer) {
    json.key("annotations").begin_array().end_array();
    write_logprobs(text.empty() ? std::string_view() : item.logprobs, json);
  }
  json.end_object();
}

class ResponseAnswer : public ItemAnswer {
 public:
  ResponseAnswer(ServerContext& context, ItemOptions options, ResponseRequest request,
                 const std::shared_ptr<HttpResponder>& responder)
      : ItemAnswer(context, std::move(options), responder),
        echoed_(std::move(request.echoed)),
        input_(std::move(request.input)),
        custom_tools_(std::move(request.custom_tools)),
        held_input_(context.write_queues),
        is_stored_(request.is_stored),
        owner_(responses_owner(*responder)) {
    token_options_.is_chat = true;
    token_options_.logprobs = request.num_top_logprobs.has_value();
    token_options_.num_top = request.num_top_logprobs.value_or(0);
    if (is_stored_) this->context().responses.begin(id(), owner_);
  }
  ResponseAnswer(const ResponseAnswer&) = delete;
  ResponseAnswer& operator=(const ResponseAnswer&) = delete;
  ~ResponseAnswer() override {
    if (is_stored_) context().responses.end(id());
  }

  Result<void> on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                          SamplingParams& params) override {
    if (!held_input_.replace(0, input_.size())) {
      return Error{
          ErrorCode::kOverloaded,
          "overloaded: the items of responses under way take too much memory; retry later"};
    }
    if (token_options_.logprobs) {
      token_lists_.emplace(token_options_, text::TokenDecoder::Options{*model.tokenizer});
    }
    return ItemAnswer::on_prompts(model, prompts, params);
  }

 private:
  std::string logprobs_of(const TokenEvent& token) override {
    if (!token_lists_) return {};
    token_lists_->add(token);
    return token_lists_->take_content();
  }

  void write_start() override {
    for (const std::string_view type : {"response.created", "response.in_progress"}) {
      JsonWriter json = begin_event(type);
      json.raw_field("response", body(ResponseStatus::kInProgress));
      end_event(json);
    }
  }

  void write_item_start(const ReplyItem& item, std::size_t index) override {
    custom_input_ = CustomInput();
    JsonWriter json = begin_event("response.output_item.added");
    json.field("output_index", index).key("item");
    write_item(item, index, ResponseStatus::kInProgress, json);
    end_event(json);
    if (item.kind == ItemKind::kCall) return;
    JsonWriter part = begin_event("response.content_part.added", index);
    part.field("content_index", 0).key("part");
    write_part(item, "", part);
    end_event(part);
  }

  void write_piece(const ReplyItem& item, std::size_t index, std::string_view piece) override {
    std::string input;
    if (is_custom(item)) {
      input = custom_input_.push(piece);
      if (input.empty()) return;
      piece = input;
    }
    JsonWriter json = begin_event(std::string(event_of(item)) + ".delta", index);
    if (item.kind != ItemKind::kCall) json.field("content_index", 0);
    json.field("delta", piece);
    if (item.kind == ItemKind::kText) write_logprobs(new_logprobs(), json);
    end_event(json);
  }

  void write_item_end(const ReplyItem& item, std::size_t index) override {
    JsonWriter json = begin_event(std::string(event_of(item)) + ".done", index);
    if (is_custom(item)) {
      json.field("input", CustomInput().push(item.text));
    } else if (item.kind == ItemKind::kCall) {
      json.field("name", item.function).field("arguments", item.text);
    } else {
      json.field("content_index", 0).field("text", item.text);
    }
    if (item.kind == ItemKind::kText) write_logprobs(item.logprobs, json);
    end_event(json);
    if (item.kind != ItemKind::kCall) {
      JsonWriter part = begin_event("response.content_part.done", index);
      part.field("content_index", 0).key("part");
      write_part(item, item.text, part);
      end_event(part);
    }
    JsonWriter done = begin_event("response.output_item.done");
    done.field("output_index", index).key("item");
    write_item(item, index, status_of(index), done);
    end_event(done);
  }

  void write_end() override {
    JsonWriter json = begin_event("response." + std::string(response_status(status())));
    json.raw_field("response", kept_body());
    end_event(json);
  }

  void write_error(const Error& error, bool /*no_model*/) override {
    JsonWriter json = begin_event("response.failed");
    json.raw_field("response", body(ResponseStatus::kFailed, &error));
    end_event(json);
  }

  std::string_view silence() const override { return ":\n\n"; }
  std::string whole() override { return kept_body(); }
  HttpResponse refusal(const Error& error, bool no_model) const override {
    return openai_error(error, no_model);
  }

  JsonWriter begin_event(std::string_view type) {
    events().append("event: ").append(type).append("\ndata: ");
    JsonWriter json(events());
    json.begin_object().field("type", type).field("sequence_number", num_events_++);
    return json;
  }
  // An event of one item.
  JsonWriter begin_event(std::string_view type, std::size_t index) {
    JsonWriter json = begin_event(type);
    json.field("item_id", item_id(index)).field("output_index", index);
    return json;
  }
  static void end_event(JsonWriter& json) { json.end_object().out() += "\n\n"; }

  bool is_custom(const ReplyItem& item) const {
    return item.kind == ItemKind::kCall && custom_tools_.contains(item.function);
  }

  std::string_view event_of(const ReplyItem& item) const {
    if (is_custom(item)) return "response.custom_tool_call_input";
    if (item.kind == ItemKind::kCall) return "response.function_call_arguments";
    return item.kind == ItemKind::kText ? "response.output_text" : "response.reasoning_text";
  }

  std::string item_id(std::size_t index) const {
    const ItemKind kind = items()[index].kind;
    const char* const prefix = is_custom(items()[index]) ? "ctc_"
                               : kind == ItemKind::kCall ? "fc_"
                               : kind == ItemKind::kText ? "msg_"
                                                         : "rs_";
    return prefix + id().substr(id().find('_') + 1) + "_" + std::to_string(index);
  }

  ResponseStatus status() const {
    const ReplyEnd end = this->end();
    const bool is_cut = end == ReplyEnd::kLength || end == ReplyEnd::kContext;
    return is_cut ? ResponseStatus::kIncomplete : ResponseStatus::kCompleted;
  }

  // Only the last item can be cut, and no call that is whole.
  ResponseStatus status_of(std::size_t index) const {
    const bool is_whole = items()[index].kind == ItemKind::kCall && items()[index].is_whole;
    return index + 1 < items().size() || is_whole ? ResponseStatus::kCompleted : status();
  }

  void write_item(const ReplyItem& item, std::size_t index, ResponseStatus status,
                  JsonWriter& json) const {
    const bool has_begun = status == ResponseStatus::kInProgress;
    const std::string_view text = has_begun ? std::string_view() : std::string_view(item.text);
    json.begin_object().field("id", item_id(index));
    if (is_custom(item)) {
      json.field("type", "custom_tool_call").field("status", response_status(status));
      json.field("call_id", item.id).field("name", item.function);
      json.field("input", CustomInput().push(text)).end_object();
      return;
    }
    if (item.kind == ItemKind::kCall) {
      json.field("type", "function_call").field("status", response_status(status));
      json.field("call_id", item.id).field("name", item.function).field("arguments", text);
      json.end_object();
      return;
    }
    if (item.kind == ItemKind::kText) {
      json.field("type", "message").field("role", "assistant");
    } else {
      json.field("type", "reasoning").key("summary").begin_array().end_array();
    }
    json.field("status", response_status(status)).key("content").begin_array();
    if (!has_begun) write_part(item, text, json);
    json.end_array().end_object();
  }

  void write_output(ResponseStatus status, JsonWriter& json) const {
    json.begin_array();
    for (std::size_t i = 0; i < items().size() && status != ResponseStatus::kInProgress; ++i) {
      write_item(items()[i], i,
                 status == ResponseStatus::kFailed ? ResponseStatus::kIncomplete : status_of(i),
                 json);
    }
    json.end_array();
  }

  void write_usage(JsonWriter& json) const {
    json.begin_object().field("input_tokens", num_prompt_tokens());
    json.key("input_tokens_details").begin_object();
    json.field("cached_tokens", num_cached().value_or(0)).field("cache_write_tokens", 0);
    json.end_object();
    json.field("output_tokens", num_tokens()).key("output_tokens_details").begin_object();
    json.field("reasoning_tokens", num_reasoning_tokens()).end_object();
    json.field("total_tokens", num_prompt_tokens() + num_tokens()).end_object();
  }

  // The response as a whole.
  std::string body(ResponseStatus status, const Error* error = nullptr) const {
    return body(status, error, echoed_);
  }
  std::string body(ResponseStatus status, const Error* error, const OrderedJson& echoed) const {
    std::string out;
    JsonWriter json(out);
    json.begin_object().field("id", id()).field("object", "response");
    json.field("created_at", created_).field("status", response_status(status));
    json.field("background", false).key("error");
    if (error == nullptr) {
      json.value(nullptr);
    } else {
      json.begin_object().field("code", "server_error").field("message", error->message);
      json.end_object();
    }
    json.key("incomplete_details");
    if (status == ResponseStatus::kIncomplete) {
      json.begin_object().field("reason", "max_output_tokens").end_object();
    } else {
      json.value(nullptr);
    }
    json.field("model", model()).key("output");
    write_output(status, json);
    json.key("usage");
    if (status == ResponseStatus::kInProgress) {
      json.value(nullptr);
    } else {
      write_usage(json);
    }
    for (const auto& [name, value] : echoed.items()) json.raw_field(name, value.dump());
    json.end_object();
    return out;
  }

  // The same at its end, which is kept; it says so, unless it is too large for that.
  std::string kept_body() {
    StoredResponse response{.id = id(), .owner = owner_, .body = body(status())};
    if (!is_stored_) return response.body;
    JsonWriter output(response.output);
    write_output(status(), output);
    if (!context().responses.takes(response.num_bytes() + input_.size())) {
      return body(status(), nullptr, echoed_without_store(echoed_));
    }
    std::string text = response.body;
    response.input = input_;
    context().responses.put(std::move(response));
    return text;
  }

  const OrderedJson echoed_;
  const std::string input_;  // JSON
  const std::set<std::string, std::less<>> custom_tools_;
  MemoryLimit::Part held_input_;
  const bool is_stored_;
  const ConnectionId owner_;
  AnswerOptions token_options_;
  std::optional<TokenLists> token_lists_;  // nothing: the answer has no log probabilities
  CustomInput custom_input_;               // of the call that is being written
  const std::int64_t created_ = unix_seconds();
  int num_events_ = 0;
};

}  // namespace

ConnectionId responses_owner(const HttpResponder& responder) {
  return share_of(responder.caller().get(), {});
}

void answer_response(ServerContext& context, ResponseRequest request,
                     const std::shared_ptr<HttpResponder>& responder) {
  ItemOptions options;
  options.model = request.generation.model;
  options.streams = request.streams;
  options.max_tokens = request.max_tokens;
  options.id_prefix = "resp_";
  options.prompt_field = "input";
  GenerationRequest generation = std::move(request.generation);
  const auto answer =
      std::make_shared<ResponseAnswer>(context, std::move(options), std::move(request), responder);
  answer_items(context, std::move(generation), responder, answer);
}

}  // namespace lmtp::server
