#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common_fields.h"
#include "generation/json_fields.h"
#include "lmtp/base/json.h"
#include "lmtp/request/chat.h"
#include "lmtp/text/chat_template.h"
#include "request.h"
#include "tool_calls.h"

namespace lmtp::server {
namespace {

struct ChatInput {
  Chat chat;
  // Where the last message is to be continued, its text, without space around it.
  std::optional<std::string> continued;
  std::shared_ptr<std::string> rendered;  // where its text goes; null: nowhere
};

// Behind the name of the field.
Error of_messages(const Error& error) {
  const bool is_place = error.message.starts_with('[');
  // A model without a template is there.
  const ErrorCode code = error.code == ErrorCode::kNotFound ? ErrorCode::kInvalid : error.code;
  return {code, (is_place ? "messages" : "messages: ") + error.message};
}

// As transformers' continue_final_message: nothing of the template comes behind that text.
Result<void> cut_behind(const std::string& text, text::RenderedChat& rendered) {
  const std::size_t at = rendered.text.rfind(text);
  if (at == std::string::npos) {
    return Error{ErrorCode::kInvalid,
                 "continue_final_message: the model's chat template changes the last message"};
  }
  rendered.text.resize(at + text.size());
  auto& plain = rendered.plain;
  while (!plain.empty() && plain.back().begin >= rendered.text.size()) plain.pop_back();
  if (!plain.empty()) plain.back().end = std::min(plain.back().end, rendered.text.size());
  return {};
}

Result<Prompts> render_prompt(const ChatInput& input, const registry::ReadyModel& model) {
  if (!model.chat_template) return of_messages(model.chat_template.error());
  const text::ChatTemplate& chat_template = **model.chat_template;
  auto rendered = chat_template.render(input.chat);
  if (!rendered) return of_messages(rendered.error());
  if (input.continued) {
    if (auto cut = cut_behind(*input.continued, *rendered); !cut) return cut.error();
  }
  auto ids = chat_template.encode(*rendered);
  if (!ids) return of_messages(ids.error());
  if (input.rendered != nullptr) *input.rendered = std::move(rendered->text);
  return Prompts{std::move(*ids)};
}

std::string text_of_last(const Json& messages) {
  if (messages.empty()) return {};
  const std::string* text = find_json_text(messages.back(), "content");
  return text == nullptr ? std::string() : *text;
}

std::string trimmed(const std::string& text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

void refuse_chat_fields(JsonFields& fields) {
  for (const std::string_view field :
       {"functions", "function_call", "audio", "web_search_options", "chat_template"}) {
    const Json* value = fields.find(field);
    if (value != nullptr && *value != "none") fields.fail(field, "is not supported; leave it out");
  }
  const Json* modalities = fields.find("modalities");
  if (modalities != nullptr && *modalities != Json::array({"text"})) {
    fields.fail("modalities", "allowed is [\"text\"]");
  }
}

// In the order of the body's keys, which templates show to the model.
std::string json_of(const OrderedJson& root, std::string_view key) {
  const auto found = root.find(std::string(key));
  return found == root.end() || found->is_null() || found->empty() ? std::string() : found->dump();
}

ChatInput read_chat_input(JsonFields& fields, const OrderedJson& ordered) {
  ChatInput input;
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.fail("messages", (messages == nullptr ? "is missing" : seen(*messages)) +
                                std::string("; allowed is an array of at least one message"));
    return input;
  }
  const Json* kwargs = fields.find("chat_template_kwargs");
  if (kwargs != nullptr && !kwargs->is_object()) {
    fields.fail("chat_template_kwargs", seen(*kwargs) + "; allowed is an object");
  }
  input.chat.messages = json_of(ordered, "messages");
  input.chat.tools = json_of(ordered, "tools");
  input.chat.template_kwargs = json_of(ordered, "chat_template_kwargs");
  const bool continues = fields.boolean("continue_final_message", false);
  input.chat.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  if (!continues) return input;
  if (input.chat.add_generation_prompt) {
    fields.fail("continue_final_message", "is allowed where add_generation_prompt is false");
  }
  input.continued = trimmed(text_of_last(*messages));
  if (input.continued->empty()) {
    fields.fail("continue_final_message", "needs a last message with text");
  }
  return input;
}

void set_prompt(ChatInput input, GenerationRequest& generation) {
  generation.num_bytes = input.chat.num_bytes();
  generation.is_slow = true;
  generation.make_prompts = [input = std::move(input)](const registry::ReadyModel& model) {
    return render_prompt(input, model);
  };
}

}  // namespace

Result<OpenAiRequest> read_chat(const std::string& body) {
  const auto root = parse_json_object(body, "body", NonFinite::kRefused);
  if (!root) return root.error();
  const auto ordered = parse_ordered_json(body, "body");
  if (!ordered) return ordered.error();
  JsonFields fields(*root);
  OpenAiRequest request;
  request.answer.is_chat = true;
  read_common(fields, body, request);
  refuse_chat_fields(fields);
  read_tool_calls(fields, *ordered, request);
  request.answer.logprobs = fields.boolean("logprobs", false);
  const auto num_top = fields.whole("top_logprobs", 0, kMaxTopLogprobs);
  if (num_top.value_or(0) > 0 && !request.answer.logprobs) {
    fields.fail("top_logprobs", "needs logprobs");
  }
  request.answer.num_top = static_cast<int>(num_top.value_or(0));
  GenerationRequest& generation = request.generation;
  generation.params.top_logprobs = request.answer.num_top;
  auto max_tokens = fields.whole("max_completion_tokens", 1, kAnyCount);
  if (!max_tokens) max_tokens = fields.whole("max_tokens", 1, kAnyCount);
  set_max_tokens(max_tokens, request);
  generation.to_context_end = !max_tokens;
  ChatInput input = read_chat_input(fields, *ordered);
  const bool echoes = fields.boolean("echo", false);
  if (fields.failed()) return fields.error();
  const Json& messages = *fields.find("messages");
  const std::string* role = find_json_text(messages.back(), "role");
  if (echoes && role != nullptr && *role == "assistant") {
    request.answer.opening = text_of_last(messages);
  }
  set_prompt(std::move(input), generation);
  return request;
}

Result<GenerationRequest> read_chat_tokens(const Json& root, const std::string& body,
                                           std::shared_ptr<std::string> rendered) {
  const auto ordered = parse_ordered_json(body, "body");
  if (!ordered) return ordered.error();
  JsonFields fields(root);
  GenerationRequest generation;
  ChatInput input = read_chat_input(fields, *ordered);
  input.rendered = std::move(rendered);
  if (fields.failed()) return fields.error();
  set_prompt(std::move(input), generation);
  return generation;
}

}  // namespace lmtp::server
