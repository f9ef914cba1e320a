#include "conversation.h"

#include <string_view>

#include "lmtp/base/json.h"

namespace lmtp::tools {
namespace {

void append_message(std::string_view role, const std::string& content, std::string& out) {
  out += out.size() > 1 ? R"(, {"role": )" : R"({"role": )";
  append_json_string(role, out);
  out += R"(, "content": )";
  append_json_string(content, out);
  out += '}';
}

}  // namespace

bool Conversation::undo() {
  if (exchanges_.empty()) return false;
  exchanges_.pop_back();
  return true;
}

std::string Conversation::messages() const {
  std::string messages = "[";
  if (!system_.empty()) append_message("system", system_, messages);
  for (const auto& [said, answer] : exchanges_) {
    append_message("user", said, messages);
    append_message("assistant", answer, messages);
  }
  return messages;
}

Chat Conversation::ask(const std::string& user) const {
  std::string all = messages();
  append_message("user", user, all);
  return {.messages = all + "]"};
}

std::string Conversation::said() const { return exchanges_.empty() ? "" : messages() + "]"; }

}  // namespace lmtp::tools
