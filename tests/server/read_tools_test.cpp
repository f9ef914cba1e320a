// The tools of a chat: from its fields to what is offered.
#include "generation/read_tools.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/json.h"
#include "openai/request.h"

namespace lmtp::server {
namespace {

const std::string kTools = R"("tools": [
  {"type": "function", "function": {"name": "weather", "parameters": {"z": 1, "a": 2}}},
  {"type": "function", "function": {"name": "time"}}])";

const std::string kCompact =
    R"("x-guidance":{"whitespace_flexible":false,"item_separator":", ","key_separator":": "}})";

Result<OpenAiRequest> read(const std::string& fields) {
  return read_chat(R"({"messages": [{"role": "user", "content": "a"}], )" + fields + "}");
}

Result<OfferedTools> tools_of(const std::string& fields,
                              SchemaReading reading = SchemaReading::kAsMeant) {
  const std::string body = "{" + fields + "}";
  const auto root = parse_json_object(body, "body");
  const auto ordered = parse_ordered_json(body, "body");
  JsonFields json(*root);
  const auto given = ordered->find("tools");
  auto tools = read_tools(json, given != ordered->end() ? *given : OrderedJson::array(), reading);
  if (json.failed()) return json.error();
  return tools.value_or(OfferedTools());
}

TEST(ToolCalls, ANamedFunctionIsItsParameters) {
  const std::string fields =
      kTools + R"(, "tool_choice": {"type": "function", "function": {"name": "weather"}})";
  const auto request = read(fields);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_TRUE(request->answer.call_is_chosen);
  EXPECT_EQ(request->generation.grammar_field, "tool_choice");
  const auto tools = tools_of(fields);
  ASSERT_EQ(tools->functions.size(), 1U);
  EXPECT_EQ(tools->functions.front().parameters, R"({"z":1,"a":2,"type":"object",)" + kCompact)
      << "in the order of the keys";
}

TEST(ToolCalls, ASchemaThatNothingMeetsIsAnyObjectUnlessACallIsPromised) {
  const auto fields = [](const std::string& schema, const std::string& more = "") {
    return R"("tools": [{"function": {"name": "f", "parameters": )" + schema + "}}]" + more;
  };
  const std::string forced = R"(, "tool_choice": "required")";
  for (const std::string schema :
       {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
        R"({"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"], "$defs": {
            "a": {"type": "array", "minItems": 1, "items": {"anyOf": [{"$ref": "#/$defs/a"}]}}}})",
        R"({"properties": {"a": {"allOf": [{"$ref": "#"}]}}, "required": ["a"]})", R"("object")"}) {
    const auto tools = tools_of(fields(schema));
    ASSERT_TRUE(tools.ok()) << schema;
    EXPECT_EQ(tools->functions.front().is_loose, schema.front() == '{') << schema;
    EXPECT_EQ(tools_of(fields(schema, forced)).ok(), schema.front() != '{') << schema;
  }
  for (const std::string schema :
       {R"({"type": "object", "properties": {"a": {"$ref": "#"}}})",
        R"({"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#"}}},
            "required": ["a"]})",
        R"({"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
            "required": ["a"]})"}) {
    EXPECT_TRUE(tools_of(fields(schema, forced)).ok()) << schema;
  }
  // Any of so many may come first, be it in a branch.
  for (const int num : {116, 117}) {
    std::string members = R"("b":1)";
    for (int i = 1; i < num; ++i) members += ",\"p" + std::to_string(i) + "\":{}";
    const std::string branch = R"({"properties": {)" + members + "}}";
    std::string wide = R"({"properties": {"a": {"anyOf": [)" + branch;
    wide += "," + branch + "," + branch + "]}}}";
    EXPECT_EQ(tools_of(fields(wide))->functions[0].is_loose, num > 116);
    EXPECT_EQ(tools_of(fields(wide, forced)).ok(), num == 116);
  }
  const std::string text(kMaxGrammarBytes, 'a');
  EXPECT_TRUE(tools_of(fields(R"({"const": ")" + text + "\"}"))->functions[0].is_loose);
}

TEST(ToolCalls, ParametersAreReadAsMeantUnlessTheFunctionIsNotStrict) {
  const std::string schema = R"("properties":{"a":{}},"type":"object")";
  for (const bool is_strict : {true, false}) {
    const auto tools = tools_of(R"("tools": [{"function": {"name": "f", "strict": )" +
                                std::string(is_strict ? "true" : "false") + R"(, "parameters": {)" +
                                schema + "}}}]");
    ASSERT_TRUE(tools.ok()) << tools.error().message;
    EXPECT_EQ(tools->functions.front().is_strict, is_strict);
    EXPECT_EQ(tools->functions.front().parameters,
              "{" + schema + (is_strict ? R"(,"additionalProperties":false,)" : ",") + kCompact);
  }
}

TEST(ToolCalls, TheChoiceSaysWhichAreOffered) {
  using Choice = OfferedTools::Choice;
  const std::string allowed = R"({"type": "allowed_tools", "allowed_tools": {"mode": "required",
      "tools": [{"type": "function", "function": {"name": "time"}}]}})";
  struct Case {
    std::string fields;
    Choice choice;
    std::string names;
  };
  const std::vector<Case> cases = {
      {kTools, Choice::kAuto, "weather time "},
      {kTools + R"(, "tool_choice": "auto")", Choice::kAuto, "weather time "},
      {kTools + R"(, "tool_choice": "required")", Choice::kRequired, "weather time "},
      {kTools + R"(, "tool_choice": )" + allowed, Choice::kRequired, "time "},
      {kTools + R"(, "tool_choice": {"type": "function", "function": {"name": "time"}})",
       Choice::kNamed, "time "},
      {kTools + R"(, "tool_choice": {"function": {"name": "time"}})", Choice::kNamed, "time "},
      {kTools + R"(, "tool_choice": "none")", Choice::kAuto, ""},
      {R"("tool_choice": "auto")", Choice::kAuto, ""},
      {R"("tools": [], "tool_choice": "none")", Choice::kAuto, ""},
  };
  for (const Case& row : cases) {
    const auto tools = tools_of(row.fields);
    ASSERT_TRUE(tools.ok()) << row.fields << ": " << tools.error().message;
    std::string names;
    for (const OfferedFunction& function : tools->functions) names += function.name + " ";
    EXPECT_EQ(names, row.names) << row.fields;
    EXPECT_EQ(tools->choice, row.choice) << row.fields;
  }
  EXPECT_TRUE(tools_of(kTools)->calls_several);
  EXPECT_FALSE(tools_of(kTools + R"(, "parallel_tool_calls": false)")->calls_several);
}

TEST(ToolCalls, OtherChoicesAreRefused) {
  const std::string bad_name = R"("tools": [{"function": {"name": "a b"}}], )";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {kTools + R"(, "tool_choice": "any")", "tool_choice: is unknown"},
      {kTools + R"(, "tool_choice": {"type": "function", "function": {"name": "x"}})",
       "tool_choice: names a function"},
      {kTools + R"(, "tool_choice": {"type": "allowed_tools", "tools": 7})",
       "tool_choice: is no choice of allowed tools"},
      {kTools + R"(, "tool_choice": {"type": "allowed_tools", "tools": []})",
       "tool_choice: allows no function"},
      {R"("tool_choice": "required")", "tool_choice: needs tools"},
      {R"("tools": {}, "tool_choice": "required")", "tools: is an object"},
      {R"("tools": [{"type": "web_search"}], "tool_choice": "required")",
       "tool_choice: needs tools"},
      {bad_name + R"("tool_choice": "required")", "tools: [0] is no function"},
      {kTools + R"(, "tool_choice": "required", "guided_regex": "a")",
       "tool_choice: stands beside guided_regex"},
  };
  for (const auto& [fields, expected] : cases) {
    const auto request = read(fields);
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_EQ(request.error().message.substr(0, expected.size()), expected);
  }
}

TEST(ToolCalls, AForcedCallHasNoContentThatAFormatIsOf) {
  const auto request =
      read(kTools + R"(, "tool_choice": "required", "response_format": {"type": "json_object"})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->generation.grammar_field, "tool_choice");
}

}  // namespace
}  // namespace lmtp::server
