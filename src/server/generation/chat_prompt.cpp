#include "chat_prompt.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lmtp/request/error_text.h"
#include "lmtp/text/chat_template.h"
#include "ordered_members.h"
#include "stricter_chat.h"

namespace lmtp::server {
namespace {

Error about_field(const std::string& field, Error error) {
  // The model is there; it has no template.
  if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kInvalid;
  return with_field_name(field, std::move(error));
}

// A template that does not know the role "developer" gets its texts as the system's, and as part of
// the system's message where that is right before it: many take one alone.
std::string without_developers(const std::string& messages) {
  auto parsed = parse_ordered_json(messages, "messages");
  if (!parsed || !parsed->is_array()) return messages;
  OrderedJson out = OrderedJson::array();
  for (OrderedJson& message : *parsed) {
    const bool is_developers = message.is_object() && message.contains("role") &&
                               message["role"] == "developer" && message.contains("content");
    if (is_developers) message["role"] = "system";
    OrderedJson* const last = out.empty() ? nullptr : &out.back();
    const std::string* const role = last == nullptr ? nullptr : find_ordered_text(*last, "role");
    const bool joins = is_developers && role != nullptr && *role == "system" &&
                       find_ordered_text(*last, "content") != nullptr &&
                       message["content"].is_string();
    if (joins) {
      (*last)["content"].get_ref<std::string&>() +=
          "\n\n" + message["content"].get_ref<const std::string&>();
    } else {
      out.push_back(std::move(message));
    }
  }
  return out.dump();
}

// The text of the last message, or of the last part of it that is one; null: it has none.
template <typename Messages>
auto text_of_last(Messages& messages) -> decltype(&messages.back()) {
  if (!messages.is_array() || messages.empty() || !messages.back().is_object()) return nullptr;
  const auto content = messages.back().find("content");
  if (content == messages.back().end()) return nullptr;
  if (content->is_string()) return &*content;
  if (!content->is_array()) return nullptr;
  for (auto part = content->rbegin(); part != content->rend(); ++part) {
    if (!part->is_object()) continue;
    const auto text = part->find("text");
    if (text != part->end() && text->is_string()) return &*text;
  }
  return nullptr;
}

// Its last byte shows whether the template trims the message.
std::string mark_beside(const std::string& messages) {
  std::string mark = "CONTINUE_FINAL_MESSAGE_TAG ";
  while (messages.find(mark.substr(0, mark.size() - 1)) != std::string::npos) mark.insert(0, "_");
  return mark;
}

// As transformers' continue_final_message from 4.57 on: the text ends where its mark stands, and
// before white space where the template trims the message.
Result<void> cut_at(const std::string& mark, text::RenderedChat& rendered) {
  std::size_t at = rendered.text.rfind(mark.substr(0, mark.size() - 1));
  if (at == std::string::npos) {
    return Error{ErrorCode::kInvalid,
                 "continue_final_message: the model's chat template leaves the last message out"};
  }
  const bool is_trimmed = rendered.text.compare(at, mark.size(), mark) != 0;
  constexpr std::string_view kTemplateSpaces = " \t\n\r\v\f";
  if (is_trimmed && at > 0) at = rendered.text.find_last_not_of(kTemplateSpaces, at - 1) + 1;
  rendered.text.resize(at);
  auto& plain = rendered.plain;
  while (!plain.empty() && plain.back().begin >= rendered.text.size()) plain.pop_back();
  if (!plain.empty()) plain.back().end = std::min(plain.back().end, rendered.text.size());
  return {};
}

// In the form that stricter templates take, where this one refuses the chat as it is.
Result<text::RenderedChat> render_chat(const text::ChatTemplate& chat_template, const Chat& chat) {
  bool is_refused = false;
  auto rendered = chat_template.render(chat, &is_refused);
  if (rendered || !is_refused) return rendered;
  Chat stricter = chat;
  stricter.messages = stricter_messages(chat.messages);
  if (stricter.messages.empty()) return rendered;
  auto again = chat_template.render(stricter);
  return again ? std::move(again) : std::move(rendered);
}

Result<Prompts> render_prompt(const ChatPrompt& input, const registry::ReadyModel& model) {
  if (!model.chat_template) return about_field(input.field, model.chat_template.error());
  const text::ChatTemplate& chat_template = **model.chat_template;
  const bool renames = input.chat.messages.find("\"developer\"") != std::string::npos &&
                       chat_template.tools_template().find("developer") == std::string::npos;
  Chat renamed;
  if (renames) {
    renamed = input.chat;
    renamed.messages = without_developers(input.chat.messages);
  }
  auto rendered = render_chat(chat_template, renames ? renamed : input.chat);
  if (!rendered) return about_field(input.field, rendered.error());
  if (!input.mark.empty()) {
    if (auto cut = cut_at(input.mark, *rendered); !cut) return cut.error();
  }
  auto ids = chat_template.encode(*rendered);
  if (!ids) return about_field(input.field, ids.error());
  if (input.plan != nullptr) {
    auto plan = plan_reply(model, rendered->text, input.wishes);
    if (!plan) return plan.error();
    *input.plan = *std::move(plan);
  }
  if (input.rendered != nullptr) *input.rendered = std::move(rendered->text);
  return Prompts{std::move(*ids)};
}

// Templates read reasoning by one of these names.
constexpr const char* kReasoningNames[] = {"reasoning_content", "reasoning", "thinking", "thought"};

// What the message has of it; null: nothing.
template <typename Message>
const Message* reasoning_in(const Message& message) {
  if (!message.is_object()) return nullptr;
  for (const char* name : kReasoningNames) {
    const auto found = message.find(name);
    if (found != message.end() && found->is_string()) return &*found;
  }
  return nullptr;
}

}  // namespace

void keep_reasoning(const Json& messages, std::string& text) {
  if (std::ranges::none_of(messages, [](const Json& message) { return reasoning_in(message); })) {
    return;
  }
  auto ordered = parse_ordered_json(text, "messages");
  if (!ordered) return;
  keep_reasoning(*ordered);
  text = ordered->dump();
}

void keep_reasoning(OrderedJson& messages) {
  for (OrderedJson& message : messages) {
    const OrderedJson* const found = reasoning_in(message);
    if (found == nullptr) continue;
    const OrderedJson reasoning = *found;
    // Harmony's template refuses a call that has both.
    const bool is_with_text = message.contains("tool_calls") && message.contains("content") &&
                              !is_empty_json(message["content"]);
    for (const std::string_view name : kReasoningNames) {
      if (name == "thinking" && is_with_text) continue;
      OrderedJson& member = message[name];
      if (member.is_null()) member = reasoning;
    }
  }
}

bool continue_last(ChatPrompt& prompt) {
  auto marked = parse_ordered_json(prompt.chat.messages, "messages");
  OrderedJson* text = marked ? text_of_last(*marked) : nullptr;
  if (text == nullptr || is_empty_json(*text)) return false;
  prompt.wishes.begun = text->get<std::string>();
  prompt.mark = mark_beside(prompt.chat.messages);
  text->get_ref<std::string&>() += prompt.mark;
  prompt.chat.messages = marked->dump();
  prompt.chat.add_generation_prompt = false;
  return true;
}

const OrderedJson* last_text(const OrderedJson& messages) { return text_of_last(messages); }

OrderedJson read_template_kwargs(JsonFields& fields, const OrderedJson& body) {
  constexpr std::string_view kField = "chat_template_kwargs";
  const Json* const given = fields.given(kField);
  if (given == nullptr) return OrderedJson::object();
  if (given->is_object()) return *body.find(kField);
  fields.fail(kField, seen(*given) + "; allowed is an object");
  return OrderedJson::object();
}

void take_wishes(JsonFields& fields, std::optional<OfferedTools> tools,
                 GenerationRequest& generation, ReplyWishes& wishes) {
  const bool is_forced = tools && tools->is_forced();
  if (is_forced && generation.grammar) {
    fields.fail("tool_choice", "stands beside " + generation.grammar_field + "; one is allowed");
  }
  if (tools && !generation.grammar) generation.grammar_field = is_forced ? "tool_choice" : "tools";
  wishes.tools = std::move(tools);
  wishes.grammar = std::exchange(generation.grammar, std::nullopt);
  wishes.min_tokens = generation.params.min_tokens;
  wishes.has_stop_strings = !generation.text.stop.empty();
}

void set_prompt(ChatPrompt prompt, GenerationRequest& generation) {
  generation.num_bytes = prompt.chat.num_bytes();
  generation.is_slow = true;
  generation.plan = prompt.plan;
  generation.make_prompts = [prompt = std::move(prompt)](const registry::ReadyModel& model) {
    return render_prompt(prompt, model);
  };
}

}  // namespace lmtp::server
