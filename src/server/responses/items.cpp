#include "items.h"

#include <set>
#include <string_view>
#include <utility>

#include "custom_tools.h"
#include "generation/ordered_members.h"
#include "lmtp/base/text.h"

namespace lmtp::server {
namespace {

Error bad_item(const std::string& where, const std::string& what) {
  return {ErrorCode::kInvalid, where + what};
}

// Text as it is, or the parts of text in the form of chats; one part is its text.
Result<OrderedJson> item_content(const std::string& where, const OrderedJson* content) {
  if (content == nullptr) {
    return bad_item(where, ": is missing; a string or an array of parts is needed");
  }
  if (content->is_string()) return *content;
  if (!content->is_array()) return bad_item(where, ": is neither a string nor an array of parts");
  OrderedJson parts = OrderedJson::array();
  for (const OrderedJson& part : *content) {
    const std::string at = where + "[" + std::to_string(parts.size()) + "]";
    const std::string* const type = find_ordered_text(part, "type");
    if (type == nullptr) return bad_item(at, ": is no part; a type is needed");
    const std::string* const text =
        find_ordered_text(part, *type == "refusal" ? "refusal" : "text");
    const bool is_text = type->ends_with("_text") || *type == "text" || *type == "refusal";
    if (!is_text || text == nullptr) {
      return bad_item(at, ": '" + shortened(*type, 64) +
                              "' is not supported here; allowed are input_text and output_text");
    }
    parts.push_back({{"type", "text"}, {"text", *text}});
  }
  if (parts.empty()) return OrderedJson("");
  return parts.size() == 1 ? parts.front()["text"] : parts;
}

// What of an item is reasoning: its content, else its summary.
std::string item_reasoning(const OrderedJson& item) {
  std::string text;
  for (const std::string_view name : {"content", "summary"}) {
    const OrderedJson* const parts = find_ordered(item, name);
    if (parts == nullptr || !parts->is_array() || !text.empty()) continue;
    for (const OrderedJson& part : *parts) {
      if (const std::string* const piece = find_ordered_text(part, "text")) text += *piece;
    }
  }
  return text;
}

// Gathers what one turn of the assistant consists of: reasoning, text and calls.
class ItemReader {
 public:
  Result<OrderedJson> read(const std::string& instructions, const OrderedJson& items) && {
    if (!instructions.empty()) out_.push_back({{"role", "system"}, {"content", instructions}});
    for (std::size_t i = 0; i < items.size(); ++i) {
      where_ = "input[" + std::to_string(i) + "]";
      if (auto taken = add(items[i]); !taken) return taken.error();
    }
    flush();
    return std::move(out_);
  }

 private:
  Result<void> add(const OrderedJson& item) {
    const std::string* const type = find_ordered_text(item, "type");
    if (type == nullptr || *type == "message") return add_message(item);
    if (*type == "function_call") return add_call(item, "arguments");
    if (*type == "custom_tool_call") return add_call(item, "input");
    if (*type == "function_call_output" || *type == "custom_tool_call_output") {
      return add_output(item);
    }
    if (*type == "reasoning") {
      if (turn_.contains("content") || turn_.contains("tool_calls")) flush();
      if (const std::string text = item_reasoning(item); !text.empty()) {
        turn_["reasoning_content"] = text;
      }
      return {};
    }
    return bad_item(where_, ": '" + shortened(*type, 64) +
                                "' is not supported here; allowed are message, function_call, "
                                "function_call_output, custom_tool_call, "
                                "custom_tool_call_output and reasoning");
  }

  Result<void> add_message(const OrderedJson& item) {
    const std::string* const role = find_ordered_text(item, "role");
    if (role == nullptr ||
        (*role != "user" && *role != "assistant" && *role != "system" && *role != "developer")) {
      return bad_item(where_,
                      ": role is unknown; allowed are \"user\", \"assistant\", \"system\" "
                      "and \"developer\"");
    }
    static const OrderedJson kNothing = "";  // some clients write null beside calls
    const OrderedJson* given = find_ordered(item, "content");
    if (given == nullptr && *role == "assistant") given = &kNothing;
    auto content = item_content(where_ + ".content", given);
    if (!content) return content.error();
    if (*role != "assistant") {
      flush();
      out_.push_back({{"role", *role}, {"content", std::move(*content)}});
      return {};
    }
    if (turn_.contains("content") || turn_.contains("tool_calls")) flush();
    turn_["content"] = std::move(*content);
    return {};
  }

  // `field`: "arguments", or a custom tool's "input".
  Result<void> add_call(const OrderedJson& item, const std::string& field) {
    const std::string* const id = find_ordered_text(item, "call_id");
    const std::string* const name = find_ordered_text(item, "name");
    const std::string* const given = find_ordered_text(item, field);
    if (id == nullptr || name == nullptr || given == nullptr) {
      return bad_item(where_,
                      ": is no call; call_id, name and " + field + " are needed, as strings");
    }
    calls_.insert(*id);
    const std::string arguments = field == "input" ? custom_arguments(*given) : *given;
    turn_["tool_calls"].push_back({{"id", *id},
                                   {"type", "function"},
                                   {"function", {{"name", *name}, {"arguments", arguments}}}});
    return {};
  }

  Result<void> add_output(const OrderedJson& item) {
    const std::string* const id = find_ordered_text(item, "call_id");
    if (id == nullptr || !calls_.contains(*id)) {
      return bad_item(where_, ": No tool call found for function call output with call_id " +
                                  (id == nullptr ? "null" : shortened(*id, 64)) +
                                  "; a function_call is needed before it");
    }
    auto content = item_content(where_ + ".output", find_ordered(item, "output"));
    if (!content) return content.error();
    flush();
    out_.push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(*content)}});
    return {};
  }

  void flush() {
    if (turn_.empty()) return;
    OrderedJson message = {{"role", "assistant"}, {"content", nullptr}};
    if (!turn_.contains("content") && !turn_.contains("tool_calls")) turn_["content"] = "";
    message.update(turn_);
    out_.push_back(std::move(message));
    turn_ = OrderedJson::object();
  }

  std::string where_;
  std::set<std::string, std::less<>> calls_;  // the ids of those so far
  OrderedJson turn_ = OrderedJson::object();  // of the assistant: what is not in out_ yet
  OrderedJson out_ = OrderedJson::array();
};

}  // namespace

Result<OrderedJson> input_items(const OrderedJson& input, const std::string& prefix) {
  OrderedJson items = input;
  if (input.is_string()) {
    items = OrderedJson::array();
    items.push_back({{"type", "message"}, {"role", "user"}, {"content", input}});
  }
  if (!items.is_array()) return bad_item("input", ": is neither a string nor an array of items");
  std::size_t number = 0;
  for (OrderedJson& item : items) {
    const std::string place = std::to_string(number++);
    if (!item.is_object()) {
      return bad_item("input[" + place + "]", ": is no item; an object is needed");
    }
    if (!item.contains("type")) item["type"] = "message";
    const OrderedJson* const id = find_ordered(item, "id");
    if (id == nullptr) {
      item["id"] = prefix + place;
    } else if (!id->is_string()) {
      return bad_item("input[" + place + "]", ".id: is no string; a string is needed, or none");
    }
    if (!item["type"].is_string()) {
      return bad_item("input[" + place + "]", ".type: is no string; a string is needed, or none");
    }
    const OrderedJson* const content = find_ordered(item, "content");
    if (item["type"] == "message" && content != nullptr && content->is_string()) {
      const bool is_answer = item.contains("role") && item["role"] == "assistant";
      OrderedJson parts = OrderedJson::array();
      parts.push_back({{"type", is_answer ? "output_text" : "input_text"}, {"text", *content}});
      if (is_answer) parts.front()["annotations"] = OrderedJson::array();
      item["content"] = std::move(parts);
    }
    if (item["type"] != "reasoning") item.emplace("status", "completed");
  }
  return items;
}

void make_ids_unique(const std::string& prefix, OrderedJson& items) {
  std::set<std::string, std::less<>> known;
  std::size_t number = 0;
  for (OrderedJson& item : items) {
    const std::string place = std::to_string(number++);
    const std::string* const id = find_ordered_text(item, "id");
    if (id != nullptr && known.insert(*id).second) continue;
    const std::string own = prefix + "again_" + place;
    known.insert(own);
    item["id"] = own;
  }
}

Result<OrderedJson> messages_of_items(const std::string& instructions, const OrderedJson& items) {
  return ItemReader().read(instructions, items);
}

OrderedJson chat_function(const OrderedJson& tool) {
  if (is_custom_tool(tool) && !tool.contains("custom")) return function_of_custom(tool);
  const std::string* const type = find_ordered_text(tool, "type");
  if (type == nullptr || *type != "function" || tool.contains("function")) return tool;
  OrderedJson function = OrderedJson::object();
  for (const std::string_view name : {"name", "description", "parameters", "strict"}) {
    if (const OrderedJson* const value = find_ordered(tool, name)) function[name] = *value;
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace lmtp::server
