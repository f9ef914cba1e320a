#include "chat_input.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

namespace lmtp::text {
namespace {

using jinja::Dict;
using jinja::Sequence;
using jinja::Value;

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

Dict* dict_in(const Value* value) {
  const auto* dict = value == nullptr ? nullptr : std::get_if<std::shared_ptr<Dict>>(value);
  return dict == nullptr ? nullptr : dict->get();
}
const Sequence* list_in(const Value* value) {
  return value == nullptr ? nullptr : jinja::as<Sequence>(*value);
}
const jinja::Text* text_in(const Value* value) {
  return value == nullptr ? nullptr : jinja::get_text(*value);
}

// The text of a list of parts, a line for each.
Value joined(const Sequence& parts) {
  jinja::Text text;
  for (const Value& part : parts.items) {
    if (!text.empty()) text += U'\n' | jinja::kInput;
    text += *text_in(dict_in(&part)->find("text"));
  }
  return jinja::make_text(std::move(text));
}

void check_parts(const std::string& where, const Sequence& parts) {
  for (std::size_t i = 0; i < parts.items.size(); ++i) {
    const Dict* part = dict_in(&parts.items[i]);
    const jinja::Text* type = part == nullptr ? nullptr : text_in(part->find("type"));
    const bool is_text = type != nullptr &&
                         (*type == U"text" || *type == U"input_text" || *type == U"output_text") &&
                         text_in(part->find("text"));
    if (is_text) continue;
    throw BadMessages(where + "[" + std::to_string(i) +
                      "]: is no text; allowed are parts {\"type\": \"text\", \"text\": TEXT}");
  }
}

void fit_content(const std::string& where, Dict& message, const MessageForms& forms) {
  const Value* content = message.find("content");
  if (content == nullptr || jinja::is<jinja::None>(*content)) {
    // Of an answer that has calls alone, or of a tool that gave nothing.
    const jinja::Text* const role = text_in(message.find("role"));
    const bool is_result = role != nullptr && *role == U"tool";
    if (is_result || (!forms.no_content && message.find("tool_calls") != nullptr)) {
      message.set("content", jinja::make_text(std::string_view()));
    }
    return;
  }
  if (const Sequence* parts = list_in(content)) {
    check_parts(where, *parts);
    if (!forms.listed_content) message.set("content", joined(*parts));
  } else if (!jinja::is<jinja::Str>(*content)) {
    throw BadMessages(where + ": is neither text nor a list of parts of text");
  } else if (!forms.text_content) {
    const auto part = std::make_shared<Dict>();
    part->set("type", jinja::make_text(std::string_view("text")));
    part->set("text", *content);
    message.set("content", jinja::make_list({part}));
  }
}

void fit_arguments(const Value& call) {
  Dict* function = dict_in(&call);
  if (function == nullptr) return;
  if (const Value* inner = function->find("function")) function = dict_in(inner);
  const jinja::Text* text = function == nullptr ? nullptr : text_in(function->find("arguments"));
  if (text == nullptr) return;
  Value parsed;
  try {
    parsed = jinja::parse_json(jinja::utf8_of(*text), jinja::kInput);
  } catch (const jinja::TemplateError&) {
    return;  // no JSON: it stays text
  }
  if (jinja::is<Dict>(parsed)) function->set("arguments", parsed);
}

constexpr const char* kMarker = "a-marker-of-content";

// What the template writes of these messages; nullopt: it refuses them.
std::optional<std::string> tried(const jinja::Body& body,
                                 const std::shared_ptr<jinja::Scope>& variables,
                                 const std::string& messages) {
  constexpr std::string_view kTools =
      R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters":
          {"type": "object", "properties": {"x": {"type": "string", "description": "d"}},
           "required": ["x"]}}}])";
  const auto scope = std::make_shared<jinja::Scope>(jinja::Scope{.outer = variables});
  scope->values["messages"] = jinja::parse_json(messages);
  scope->values["tools"] = jinja::parse_json(kTools);
  scope->values["documents"] = jinja::None{};
  scope->values["add_generation_prompt"] = true;
  try {
    return jinja::utf8_of(jinja::Interpreter().render(body, scope));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string user_message(const std::string& content) {
  return R"([{"role": "user", "content": )" + content + "}]";
}

// Some templates want a reasoning field in each answer.
std::string call_messages(const std::string& content, const std::string& arguments,
                          const char* more) {
  return R"([{"role": "user", "content": "q"},
    {"role": "assistant", "content": )" +
         content + R"(, "tool_calls": [{"id": "call00001", "type": "function", "function":
      {"name": "f", "arguments": )" +
         arguments + R"(}}])" + more + R"(},
    {"role": "tool", "content": "r", "name": "f", "tool_call_id": "call00001"},
    {"role": "assistant", "content": "a")" +
         more + R"(}, {"role": "user", "content": "q"}])";
}

bool shows(const std::optional<std::string>& rendered, std::string_view text) {
  return rendered && rendered->find(text) != std::string::npos;
}

}  // namespace

MessageForms forms_of(const jinja::Body& body, const std::shared_ptr<jinja::Scope>& variables) {
  const std::string quoted = std::string("\"") + kMarker + "\"";
  MessageForms forms;
  const auto as_text = tried(body, variables, user_message(quoted));
  const auto as_list =
      tried(body, variables, user_message(R"([{"type": "text", "text": )" + quoted + "}]"));
  // A list that is written as it is, is not read.
  forms.listed_content =
      shows(as_list, kMarker) && !shows(as_list, "'text': '") && !shows(as_list, "\"text\": \"");
  forms.text_content = shows(as_text, kMarker) || !forms.listed_content;
  const std::string object = R"({"x": )" + quoted + "}";
  const auto reads_object = [](const std::optional<std::string>& rendered) {
    return shows(rendered, kMarker) && !shows(rendered, std::string("'x': '") + kMarker);
  };
  for (const std::string& arguments : {object, quoted}) {
    for (const char* more : {"", R"(, "reasoning_content": "")"}) {
      const auto with = tried(body, variables, call_messages("\"\"", arguments, more));
      const auto without = tried(body, variables, call_messages("null", arguments, more));
      if (!with && !without) continue;
      forms.no_content = without && !shows(without, "None");
      forms.object_arguments = arguments == object && (reads_object(with) || reads_object(without));
      return forms;
    }
  }
  return forms;
}

void fit_messages(const jinja::Value& messages, const MessageForms& forms) {
  const Sequence* list = list_in(&messages);
  if (list == nullptr || list->items.empty()) {
    throw BadMessages("must be a list of at least one message");
  }
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    Dict* message = dict_in(&list->items[i]);
    const std::string where = "[" + std::to_string(i) + "]";
    const jinja::Text* role = message == nullptr ? nullptr : text_in(message->find("role"));
    if (role == nullptr) {
      throw BadMessages(where + ": must be an object with a role, such as \"user\"");
    }
    const auto known = std::ranges::find(kRoles, jinja::utf8_of(*role));
    if (known != kRoles.end()) message->set("role", jinja::make_text(*known));
    fit_content(where + ".content", *message, forms);
    const Sequence* calls = list_in(message->find("tool_calls"));
    if (!forms.object_arguments || calls == nullptr) continue;
    for (const Value& call : calls->items) fit_arguments(call);
  }
}

}  // namespace lmtp::text
