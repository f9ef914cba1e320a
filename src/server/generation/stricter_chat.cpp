#include "stricter_chat.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lmtp/base/json.h"
#include "ordered_members.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kIdBytes = 9;

// FNV-1a's hash of the id, in letters and digits.
std::string short_id(const std::string& id) {
  const bool is_short = id.size() == kIdBytes && std::ranges::all_of(id, [](unsigned char c) {
                          return std::isalnum(c) != 0;
                        });
  if (is_short) return id;
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string text;
  for (std::size_t i = 0; i < kIdBytes; ++i, hash /= kDigits.size()) {
    text += kDigits[hash % kDigits.size()];
  }
  return text;
}

bool shorten_id(OrderedJson& object, const char* key) {
  const std::string* const id = find_ordered_text(object, key);
  if (id == nullptr) return false;
  std::string text = short_id(*id);
  const bool is_new = text != *id;
  object[key] = std::move(text);
  return is_new;
}

// Text, or the texts of parts; null where there is something else.
OrderedJson text_of_content(const OrderedJson& message) {
  const OrderedJson* const content = find_ordered(message, "content");
  if (content == nullptr) return nullptr;
  if (!content->is_array()) return *content;
  std::string text;
  for (const OrderedJson& part : *content) {
    const std::string* const one = find_ordered_text(part, "text");
    if (one == nullptr) return nullptr;
    text += (text.empty() ? "" : "\n") + *one;
  }
  return text;
}

bool has_role(const OrderedJson& message, std::string_view role) {
  const std::string* const own = find_ordered_text(message, "role");
  return own != nullptr && *own == role;
}

// Whether the message has become a part of the result before it.
bool join(OrderedJson& result, const OrderedJson& message) {
  if (!has_role(result, "tool") || !has_role(message, "user")) return false;
  const OrderedJson said = text_of_content(message);
  if (!said.is_string()) return false;
  if (find_ordered_text(result, "content") == nullptr) {
    OrderedJson text = text_of_content(result);
    if (!text.is_string()) return false;
    result["content"] = std::move(text);
  }
  result["content"].get_ref<std::string&>() += "\n\n" + said.get_ref<const std::string&>();
  return true;
}

}  // namespace

std::string stricter_messages(const std::string& messages) {
  auto parsed = parse_ordered_json(messages, "messages");
  if (!parsed || !parsed->is_array()) return {};
  OrderedJson out = OrderedJson::array();
  bool is_other = false;
  for (OrderedJson& message : *parsed) {
    if (!out.empty() && join(out.back(), message)) {
      is_other = true;
      continue;
    }
    if (message.is_object() && message.contains("tool_calls") && message["tool_calls"].is_array()) {
      for (OrderedJson& call : message["tool_calls"]) {
        is_other = (call.is_object() && shorten_id(call, "id")) || is_other;
      }
    }
    if (message.is_object()) is_other = shorten_id(message, "tool_call_id") || is_other;
    out.push_back(std::move(message));
  }
  return is_other ? out.dump() : std::string();
}

}  // namespace lmtp::server
