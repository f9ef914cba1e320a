#include "forced_calls.h"

#include <cstddef>
#include <string>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/constraint/schema_forms.h"
#include "reply_formats.h"

namespace lmtp::server {

ForcedReply force_calls(const OfferedTools& tools) {
  if (tools.choice == OfferedTools::Choice::kNamed) {
    const OfferedFunction& only = tools.functions.front();
    return {{Grammar::Kind::kJsonSchema, only.parameters}, make_format({{{"", only.name}}, ""})};
  }
  std::size_t num_bytes = 0;
  for (const OfferedFunction& function : tools.functions) num_bytes += function.parameters.size();
  const bool is_too_much = num_bytes > kMaxGrammarBytes;  // and will be refused
  ForcedCalls calls{{}, "}"};
  std::string start = "start: ";
  std::string rules;
  for (const OfferedFunction& function : tools.functions) {
    const std::string number = std::to_string(calls.calls.size());
    std::string opening = R"({"name": ")" + function.name + R"(", "arguments": )";
    start += (number == "0" ? "call_" : " | call_") + number;
    rules += "call_" + number + ": ";
    append_json_string(opening, rules);
    rules += " arguments_" + number + " \"}\"\narguments_" + number + ": %json " +
             (is_too_much ? function.parameters : constraint::to_known_form(function.parameters)) +
             "\n";
    calls.calls.push_back({std::move(opening), function.name});
  }
  return {{Grammar::Kind::kLark, start + "\n" + rules}, make_format(std::move(calls))};
}

}  // namespace lmtp::server
