#include "messages.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "client_tools.h"
#include "generation/ordered_members.h"
#include "generation/vendor_tools.h"
#include "lmtp/base/text.h"

namespace lmtp::server {
namespace {

// Claude Code has a block that begins so in front of each system text, which differs from request
// to request: no prompt would be found in the cache.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

Error bad_block(const std::string& where, const std::string& what) {
  return {ErrorCode::kInvalid, where + what};
}

// "image" or such.
std::string quoted_type(const std::string& type) { return "'" + shortened(type, 64) + "'"; }

OrderedJson text_part(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

// One text as itself: the form that most templates are written for.
OrderedJson message_content(OrderedJson parts) {
  if (parts.empty()) return "";
  if (parts.size() == 1) return std::move(parts.front()["text"]);
  return parts;
}

class MessageReader {
 public:
  Result<OrderedJson> read(const OrderedJson* system, const OrderedJson& messages) && {
    if (system != nullptr) {
      if (auto taken = add_system(*system); !taken) return taken.error();
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      where_ = "messages[" + std::to_string(i) + "]";
      if (auto taken = add(messages[i]); !taken) return taken.error();
    }
    return std::move(out_);
  }

 private:
  Result<void> add_system(const OrderedJson& system) {
    where_ = "system";
    auto parts = text_parts(system, "system");
    if (!parts) return parts.error();
    std::erase_if(parts->get_ref<OrderedJson::array_t&>(), [](OrderedJson& part) {
      auto& text = part["text"].get_ref<std::string&>();
      if (!text.starts_with(kBillingHeader)) return false;
      text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
      return text.empty();
    });
    if (!parts->empty()) {
      out_.push_back({{"role", "system"}, {"content", message_content(std::move(*parts))}});
    }
    return {};
  }

  Result<void> add(const OrderedJson& message) {
    const std::string* const role = find_ordered_text(message, "role");
    const OrderedJson* const content =
        message.is_object() ? find_ordered(message, "content") : nullptr;
    if (role == nullptr || (*role != "user" && *role != "assistant" && *role != "system")) {
      return bad_block(where_,
                       ": role is unknown; allowed are \"user\", \"assistant\" and \"system\"");
    }
    if (content != nullptr && content->is_string()) {
      add_text(*role, OrderedJson::array({text_part(content->get<std::string>())}));
      return {};
    }
    if (content == nullptr || !content->is_array()) {
      return bad_block(where_, ".content: is missing, or neither a string nor an array of blocks");
    }
    return *role == "assistant" ? add_assistant(*content) : add_user(*role, *content);
  }

  // What a user says in turns that follow one another is one turn, as at Anthropic's: many
  // templates want roles to alternate.
  void add_text(const std::string& role, OrderedJson parts) {
    if (role == "user" && !out_.empty() && out_.back()["role"] == role) {
      OrderedJson& content = out_.back()["content"];
      OrderedJson all = content.is_string()
                            ? OrderedJson::array({text_part(content.get<std::string>())})
                            : std::move(content);
      for (OrderedJson& part : parts) all.push_back(std::move(part));
      content = message_content(std::move(all));
      return;
    }
    out_.push_back({{"role", role}, {"content", message_content(std::move(parts))}});
  }

  // Results come first, as OpenAI's messages of their own, then what the user says.
  Result<void> add_user(const std::string& role, const OrderedJson& blocks) {
    OrderedJson parts = OrderedJson::array();
    const auto flush = [&] {
      if (!parts.empty()) add_text(role, std::exchange(parts, OrderedJson::array()));
    };
    bool is_empty = true;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::string where = where_ + ".content[" + std::to_string(i) + "]";
      const std::string* const type = find_ordered_text(blocks[i], "type");
      is_empty = false;
      if (type != nullptr && *type == "tool_result" && role == "user") {
        flush();
        if (auto taken = add_result(where, blocks[i]); !taken) return taken;
        continue;
      }
      auto part = text_of(where, blocks[i]);
      if (!part) return part.error();
      parts.push_back(std::move(*part));
    }
    if (is_empty) out_.push_back({{"role", role}, {"content", ""}});
    flush();
    return {};
  }

  Result<void> add_result(const std::string& where, const OrderedJson& block) {
    const std::string* const id = find_ordered_text(block, "tool_use_id");
    if (id == nullptr || !calls_.contains(*id)) {
      return bad_block(where,
                       ": tool_use_id is of no tool_use block before it; allowed is a result "
                       "of a call that an earlier message has");
    }
    const OrderedJson* const content = find_ordered(block, "content");
    OrderedJson parts = OrderedJson::array();
    if (content != nullptr) {
      auto read = text_parts(*content, where + ".content");
      if (!read) return read.error();
      parts = std::move(*read);
    }
    // Templates know of no other way to say so.
    const OrderedJson* const is_error = find_ordered(block, "is_error");
    if (is_error != nullptr && !is_error->is_boolean()) {
      return bad_block(where, ".is_error: is no boolean, which is allowed");
    }
    if (is_error != nullptr && *is_error == true) {
      if (parts.empty()) parts.push_back(text_part(""));
      auto& first = parts.front()["text"].get_ref<std::string&>();
      if (!first.starts_with("Error")) first.insert(0, "Error: ");
    }
    out_.push_back(
        {{"role", "tool"}, {"tool_call_id", *id}, {"content", message_content(std::move(parts))}});
    return {};
  }

  Result<void> add_assistant(const OrderedJson& blocks) {
    OrderedJson parts = OrderedJson::array();
    OrderedJson calls = OrderedJson::array();
    std::string reasoning;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const OrderedJson& block = blocks[i];
      const std::string where = where_ + ".content[" + std::to_string(i) + "]";
      const std::string* const type = find_ordered_text(block, "type");
      if (type != nullptr && *type == "thinking") {
        const std::string* const thought = find_ordered_text(block, "thinking");
        if (thought == nullptr) return bad_block(where, ": has no thinking, which is a string");
        reasoning += *thought;
      } else if (type != nullptr && *type == "tool_use") {
        auto call = call_of(where, block);
        if (!call) return call.error();
        calls.push_back(std::move(*call));
      } else if (type == nullptr || *type != "redacted_thinking") {  // is not of this server
        auto part = text_of(where, block);
        if (!part) return part.error();
        parts.push_back(std::move(*part));
      }
    }
    OrderedJson message = {{"role", "assistant"}, {"content", nullptr}};
    if (!parts.empty() || calls.empty()) message["content"] = message_content(std::move(parts));
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    out_.push_back(std::move(message));
    return {};
  }

  Result<OrderedJson> call_of(const std::string& where, const OrderedJson& block) {
    const std::string* const id = find_ordered_text(block, "id");
    const std::string* const name = find_ordered_text(block, "name");
    const OrderedJson* const input = find_ordered(block, "input");
    if (id == nullptr || name == nullptr || (input != nullptr && !input->is_object())) {
      return bad_block(where,
                       ": is no call; allowed is {\"type\": \"tool_use\", \"id\": ..., "
                       "\"name\": ..., \"input\": {...}}");
    }
    calls_.insert(*id);
    const std::string arguments = input == nullptr ? "{}" : input->dump();
    return OrderedJson{{"id", *id},
                       {"type", "function"},
                       {"function", {{"name", *name}, {"arguments", arguments}}}};
  }

  // `given`: a string, or blocks of text.
  static Result<OrderedJson> text_parts(const OrderedJson& given, const std::string& where) {
    OrderedJson parts = OrderedJson::array();
    if (const auto* text = given.get_ptr<const std::string*>()) {
      parts.push_back(text_part(*text));
      return parts;
    }
    if (!given.is_array()) return bad_block(where, ": is neither a string nor an array of blocks");
    for (std::size_t i = 0; i < given.size(); ++i) {
      auto part = text_of(where + "[" + std::to_string(i) + "]", given[i]);
      if (!part) return part;
      parts.push_back(std::move(*part));
    }
    return parts;
  }

  static Result<OrderedJson> text_of(const std::string& where, const OrderedJson& block) {
    const std::string* const type = find_ordered_text(block, "type");
    if (type == nullptr) return bad_block(where, ": is no block; a type is needed");
    const std::string* const text = find_ordered_text(block, "text");
    if (*type == "text" && text != nullptr) return text_part(*text);
    return bad_block(where, ": " + quoted_type(*type) +
                                " is not supported here; allowed are blocks of text, an "
                                "assistant's tool_use and thinking, and a user's tool_result");
  }

  std::string where_;
  std::set<std::string, std::less<>> calls_;  // the ids of those so far
  OrderedJson out_ = OrderedJson::array();
};

}  // namespace

Result<OrderedJson> chat_messages(const OrderedJson* system, const OrderedJson& messages) {
  return MessageReader().read(system, messages);
}

OrderedJson chat_tool(const OrderedJson& given) {
  OrderedJson tool = known_client_tool(given);
  if (!tool.is_object() || tool.contains("function") || is_vendor_tool(tool)) return tool;
  OrderedJson function = OrderedJson::object();
  for (const auto& [theirs, ours] :
       {std::pair("name", "name"), std::pair("description", "description"),
        std::pair("input_schema", "parameters"), std::pair("strict", "strict")}) {
    if (const OrderedJson* const value = find_ordered(tool, theirs)) function[ours] = *value;
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace lmtp::server
