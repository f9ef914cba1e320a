// OpenAI's custom tools, whose input is a text and no JSON: functions whose only argument is that
// text, `input`, for templates and models.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "generation/json_fields.h"
#include "generation/offered_tools.h"
#include "lmtp/base/json.h"

namespace lmtp::server {

// {"type": "custom", "name", ...}, in which the format may stand.
bool is_custom_tool(const OrderedJson& tool);
// As a function of a chat. What its format says stands in the description of `input`, for the
// model; a regular expression is the argument's pattern, too.
OrderedJson function_of_custom(const OrderedJson& tool);

// The names of the custom ones among `tools`, as they were sent. Sets the grammars of those that
// are offered; `fields` get an error where a format is wrong.
std::set<std::string, std::less<>> read_custom_tools(JsonFields& fields, const OrderedJson& tools,
                                                     OfferedTools* offered);

// {"input": TEXT} for a call in the history.
std::string custom_arguments(const std::string& input);

// The text in {"input": TEXT}, of which pieces come one after the other. What has another form is
// given as it is. Owner: the answer.
class CustomInput {
 public:
  std::string push(std::string_view json);

 private:
  enum class State { kBefore, kText, kAfter, kOther };

  void push_text(char c, std::string& out);
  void push_unit(std::string& out);

  State state_ = State::kBefore;
  std::string before_;  // of the text, without white space; then the escape that is open
  char32_t high_ = 0;   // the first half of a pair
};

}  // namespace lmtp::server
