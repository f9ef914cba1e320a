#include "chat_input.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace lmtp::text {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

ChatJson text_part(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

// The text of a list of parts, a line for each.
std::string joined(const ChatJson& parts) {
  std::string text;
  for (const ChatJson& part : parts) {
    if (!text.empty()) text += '\n';
    text += part["text"].get<std::string>();
  }
  return text;
}

void check_parts(const std::string& where, const ChatJson& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ChatJson& part = parts[i];
    const bool is_text = part.is_object() && part.value("type", ChatJson()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (is_text) continue;
    throw BadMessages(where + "[" + std::to_string(i) +
                      "]: is no text; allowed are parts {\"type\": \"text\", \"text\": TEXT}");
  }
}

void fit_content(const std::string& where, ChatJson& content, const MessageForms& forms) {
  if (content.is_array()) {
    check_parts(where, content);
    if (!forms.listed_content) content = joined(content);
  } else if (content.is_string()) {
    if (!forms.text_content) content = ChatJson::array({text_part(content)});
  } else if (!content.is_null()) {
    throw BadMessages(where + ": is neither text nor a list of parts of text");
  }
}

void fit_arguments(ChatJson& call) {
  if (!call.is_object()) return;
  ChatJson& function = call.contains("function") ? call["function"] : call;
  if (!function.is_object() || !function.contains("arguments")) return;
  ChatJson& arguments = function["arguments"];
  if (!arguments.is_string()) return;
  ChatJson parsed = ChatJson::parse(arguments.get<std::string>(), nullptr, false);
  if (parsed.is_object()) arguments = std::move(parsed);
}

// Behind the first character of the longest special token that begins there; npos: none does.
std::size_t cut_of(std::string_view text, const std::vector<std::string>& special_tokens) {
  std::size_t longest = 0;
  for (const std::string& token : special_tokens) {
    if (token.size() > longest && text.starts_with(token)) longest = token.size();
  }
  if (longest == 0) return std::string_view::npos;
  std::size_t end = 1;
  while (end < longest && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return end;
}

bool mark_text(std::string& text, const std::vector<std::string>& special_tokens) {
  std::string marked;
  std::size_t done = 0;
  for (std::size_t pos = 0; pos < text.size(); ++pos) {
    const std::size_t cut = cut_of(std::string_view(text).substr(pos), special_tokens);
    if (cut == std::string_view::npos) continue;
    marked.append(text, done, pos + cut - done).append(kCutMark);
    done = pos + cut;
  }
  if (done == 0) return false;
  text = marked.append(text, done);
  return true;
}

}  // namespace

void fit_messages(ChatJson& messages, const MessageForms& forms) {
  if (!messages.is_array() || messages.empty()) {
    throw BadMessages("must be a list of at least one message");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    ChatJson& message = messages[i];
    const std::string where = "[" + std::to_string(i) + "]";
    if (!message.is_object() || !message.value("role", ChatJson()).is_string()) {
      throw BadMessages(where + ": must be an object with a role, such as \"user\"");
    }
    if (message.contains("content")) fit_content(where + ".content", message["content"], forms);
    if (!forms.object_arguments || !message.contains("tool_calls")) continue;
    for (ChatJson& call : message["tool_calls"]) fit_arguments(call);
  }
}

bool mark_special_tokens(ChatJson& json, const std::vector<std::string>& special_tokens) {
  if (json.is_string()) return mark_text(json.get_ref<std::string&>(), special_tokens);
  bool any = false;
  if (json.is_object()) {
    ChatJson marked = ChatJson::object();
    for (auto& [key, value] : json.items()) {
      std::string marked_key = key;
      any |= mark_text(marked_key, special_tokens);
      any |= mark_special_tokens(value, special_tokens);
      marked[marked_key] = std::move(value);
    }
    json = std::move(marked);
  } else if (json.is_array()) {
    for (ChatJson& item : json) any |= mark_special_tokens(item, special_tokens);
  }
  return any;
}

jinja::value value_of(const ChatJson& json, bool is_input) {
  switch (json.type()) {
    case ChatJson::value_t::boolean:
      return jinja::mk_val<jinja::value_bool>(json.get<bool>());
    case ChatJson::value_t::number_integer:
    case ChatJson::value_t::number_unsigned:
      return jinja::mk_val<jinja::value_int>(json.get<std::int64_t>());
    case ChatJson::value_t::number_float:
      return jinja::mk_val<jinja::value_float>(json.get<double>());
    case ChatJson::value_t::string: {
      const auto text = jinja::mk_val<jinja::value_string>(json.get<std::string>());
      if (is_input) text->mark_input();
      return text;
    }
    case ChatJson::value_t::array: {
      const auto array = jinja::mk_val<jinja::value_array>();
      for (const ChatJson& item : json) array->push_back(value_of(item, is_input));
      return array;
    }
    case ChatJson::value_t::object: {
      const auto object = jinja::mk_val<jinja::value_object>();
      for (const auto& [key, value] : json.items()) {
        const bool is_role = key == "role" && value.is_string() &&
                             std::ranges::find(kRoles, value.get<std::string>()) != kRoles.end();
        object->insert(key, value_of(value, is_input && !is_role));
      }
      return object;
    }
    default:
      return jinja::mk_val<jinja::value_none>();
  }
}

}  // namespace lmtp::text
