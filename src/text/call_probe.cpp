// The chats of the probe, and what can be seen in their texts at once.
#include "call_probe.h"

#include <algorithm>
#include <string_view>

namespace lmtp::text {
namespace {

constexpr std::string_view kQuestion = "LMTP-QUESTION";
constexpr std::string_view kPlainAnswer = "LMTP-ANSWER";
constexpr std::string_view kReasons = "LMTP-REASONS";
constexpr std::string_view kProbeSpaces = " \t\r\n";

OrderedJson tool(const WrittenCall& call) {
  OrderedJson properties = OrderedJson::object();
  for (const auto& [name, value] : call.arguments.items()) {
    const char* type = value.is_string() ? "string" : value.is_number() ? "integer" : "boolean";
    properties[name] = OrderedJson{{"type", type}, {"description", "d"}};
  }
  const OrderedJson parameters = {
      {"type", "object"}, {"properties", properties}, {"required", OrderedJson::array()}};
  return {{"type", "function"},
          {"function",
           OrderedJson{{"name", call.name}, {"description", "d"}, {"parameters", parameters}}}};
}

OrderedJson tool_calls(std::size_t count) {
  OrderedJson calls = OrderedJson::array();
  for (const WrittenCall& call : probe_call_list(count)) {
    const OrderedJson function = {{"name", call.name}, {"arguments", json_text(call.arguments)}};
    calls.push_back(OrderedJson{{"id", call.id}, {"type", "function"}, {"function", function}});
  }
  return calls;
}

// What the template writes after the user's message; empty: it refuses the chat.
std::string rendered(const ChatTemplate& chat_template, OrderedJson answer) {
  OrderedJson tools = OrderedJson::array();
  for (const WrittenCall& call : probe_call_list(2)) tools.push_back(tool(call));
  answer["role"] = "assistant";
  OrderedJson messages = OrderedJson::array();
  messages.push_back(OrderedJson{{"role", "user"}, {"content", kQuestion}});
  messages.push_back(std::move(answer));
  const auto text = chat_template.render(
      {.messages = messages.dump(), .tools = tools.dump(), .add_generation_prompt = false});
  if (!text) return {};
  const std::size_t at = text->text.rfind(kQuestion);
  return at == std::string::npos ? std::string() : text->text.substr(at + kQuestion.size());
}

// Without the ids that templates of JSON put after the arguments, and models do not write.
std::string without_ids(std::string text) {
  for (const WrittenCall& call : probe_call_list(2)) {
    const std::string id = R"(, "id": ")" + call.id + "\"";
    for (std::size_t at = text.find(id); at != std::string::npos; at = text.find(id, at)) {
      text.erase(at, id.size());
    }
  }
  return text;
}

// What the template writes of the answer, in the first of these forms that it shows `wanted` in.
std::string shown(const ChatTemplate& chat_template, const OrderedJson& answer,
                  const std::string& wanted) {
  for (const OrderedJson& form : {OrderedJson::object(), OrderedJson{{"content", nullptr}},
                                  OrderedJson{{"reasoning_content", ""}}}) {
    OrderedJson formed = answer;
    formed.update(form);
    std::string text = without_ids(rendered(chat_template, std::move(formed)));
    if (text.find(wanted) != std::string::npos) return text;
  }
  return {};
}

std::string shown_calls(const ChatTemplate& chat_template, std::size_t count) {
  return shown(chat_template, {{"content", ""}, {"tool_calls", tool_calls(count)}},
               probe_call_list(count).back().name);
}

bool writes(const std::string& text, const CallLayout& layout, std::size_t count) {
  std::vector<WrittenCall> calls = probe_call_list(count);
  for (const bool numbered : {false, true}) {
    if (numbered) {
      for (std::size_t i = 0; i < calls.size(); ++i) calls[i].id = std::to_string(i);
    }
    std::string written = write_calls(layout, calls);
    if (text.find(written) != std::string::npos) return true;
    // Between tags some templates write it as Python does.
    const std::size_t at = written.rfind("true");
    if (at == std::string::npos || layout.arguments != CallLayout::Arguments::kTagged) continue;
    if (text.find(written.replace(at, 1, "T")) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::vector<WrittenCall> probe_call_list(std::size_t count) {
  // Ids of nine letters and digits, which Mistral's templates want.
  std::vector<WrittenCall> calls;
  calls.push_back({"lmtp_first", "lmtp00001", OrderedJson::object()});
  calls.back().arguments["lmtp_a_text"] = "LMTP words";
  calls.back().arguments["lmtp_b_number"] = 417;
  calls.push_back({"lmtp_second", "lmtp00002", OrderedJson::object()});
  calls.back().arguments["lmtp_c_flag"] = true;
  if (count == 1) calls.pop_back();
  return calls;
}

CallProbe probe_calls(const ChatTemplate& chat_template) {
  CallProbe probe;
  const std::string plain =
      shown(chat_template, {{"content", kPlainAnswer}}, std::string(kPlainAnswer));
  const std::size_t at = plain.rfind(kPlainAnswer);
  if (at == std::string::npos) return probe;
  probe.before_answer = plain.substr(0, at);
  probe.after_answer = plain.substr(at + kPlainAnswer.size());
  probe.one_call = shown_calls(chat_template, 1);
  if (!probe.one_call.empty()) probe.two_calls = shown_calls(chat_template, 2);
  return probe;
}

bool agrees(const CallProbe& probe, const std::vector<CallLayout>& layouts) {
  return probe.one_call.empty() || std::ranges::any_of(layouts, [&](const CallLayout& layout) {
           return writes(probe.one_call, layout, 1) &&
                  (probe.two_calls.empty() || writes(probe.two_calls, layout, 2));
         });
}

std::optional<ReasoningLayout> probe_reasoning(const ChatTemplate& chat_template) {
  const std::string text = rendered(chat_template, OrderedJson{{"content", kPlainAnswer},
                                                               {"reasoning_content", kReasons},
                                                               {"reasoning", kReasons},
                                                               {"thinking", kReasons}});
  const std::size_t at = text.find(kReasons);
  if (at == 0 || text.find(kPlainAnswer, at) == std::string::npos) return std::nullopt;
  const std::size_t before = text.find_last_not_of(kProbeSpaces, at - 1);
  const std::size_t after = text.find_first_not_of(kProbeSpaces, at + kReasons.size());
  if (before == std::string::npos || text[before] != '>') return std::nullopt;
  const std::size_t begin = text.rfind('<', before);
  if (begin == std::string::npos) return std::nullopt;
  std::string tag = text.substr(begin, before + 1 - begin);
  std::string end = "</" + tag.substr(1);
  if (tag.size() < 3 || !std::string_view(text).substr(after).starts_with(end)) return std::nullopt;
  return ReasoningLayout{std::move(tag), std::move(end)};
}

}  // namespace lmtp::text
