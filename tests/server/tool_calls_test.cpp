// A forced tool call: from a chat's fields to the grammar, and from the text to the call.
#include "openai/tool_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

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

TEST(ToolCalls, ANamedFunctionIsItsParameters) {
  const auto request =
      read(kTools + R"(, "tool_choice": {"type": "function", "function": {"name": "weather"}})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->generation.grammar,
            (Grammar{Grammar::Kind::kJsonSchema, R"({"z":1,"a":2,"type":"object",)" + kCompact}))
      << "in the order of the keys";
  ASSERT_EQ(request->answer.tools.calls.size(), 1U);
  EXPECT_EQ(request->answer.tools.calls[0].function, "weather");
  EXPECT_TRUE(request->answer.tools.is_named);
}

TEST(ToolCalls, RequiredIsOneOfThem) {
  const auto request = read(kTools + R"(, "tool_choice": "required")");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->generation.grammar->kind, Grammar::Kind::kLark);
  EXPECT_EQ(request->generation.grammar->text,
            "start: call_0 | call_1\n"
            "call_0: \"{\\\"name\\\": \\\"weather\\\", \\\"arguments\\\": \" arguments_0 \"}\"\n"
            "arguments_0: %json {\"z\":1,\"a\":2,\"type\":\"object\"," +
                kCompact +
                "\n"
                "call_1: \"{\\\"name\\\": \\\"time\\\", \\\"arguments\\\": \" arguments_1 \"}\"\n"
                "arguments_1: %json {\"type\":\"object\",\"properties\":{},"
                "\"additionalProperties\":false," +
                kCompact + "\n");
}

TEST(ToolCalls, ParametersAreReadAsMeantUnlessTheFunctionIsNotStrict) {
  const std::string schema = R"("properties":{"a":{}},"type":"object")";
  for (const bool is_strict : {true, false}) {
    const auto request =
        read(R"("tools": [{"function": {"name": "f", "strict": )" +
             std::string(is_strict ? "true" : "false") + R"(, "parameters": {)" + schema +
             R"(}}}], "tool_choice": {"type": "function", "function": {"name": "f"}})");
    ASSERT_TRUE(request.ok()) << request.error().message;
    EXPECT_EQ(request->generation.grammar->text,
              "{" + schema + (is_strict ? R"(,"additionalProperties":false,)" : ",") + kCompact);
  }
}

TEST(ToolCalls, OtherChoicesAreRefused) {
  const std::string bad_name = R"("tools": [{"function": {"name": "a b"}}], )";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {kTools, "tool_choice: calls are not read"},
      {kTools + R"(, "tool_choice": "auto")", "tool_choice: calls are not read"},
      {kTools + R"(, "tool_choice": "any")", "tool_choice: is unknown"},
      {kTools + R"(, "tool_choice": {"type": "function", "function": {"name": "x"}})",
       "tool_choice: names a function"},
      {R"("tool_choice": "required")", "tool_choice: needs tools"},
      {R"("tools": {}, "tool_choice": "required")", "tools: is an object"},
      {bad_name + R"("tool_choice": "required")", "tools: [0] is no function"},
      {kTools + R"(, "tool_choice": "required", "guided_regex": "a")",
       "tool_choice: stands beside guided_regex"},
  };
  for (const auto& [fields, expected] : cases) {
    const auto request = read(fields);
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_EQ(request.error().message.substr(0, expected.size()), expected);
  }
  for (const char* fields : {R"("tool_choice": "auto")", R"("tool_choice": "none")"}) {
    const auto request = read(fields);
    ASSERT_TRUE(request.ok()) << request.error().message;
    EXPECT_FALSE(request->generation.grammar.has_value());
  }
}

// The arguments, however the text is cut into pieces.
TEST(ToolCalls, TheCallIsReadOutOfTheText) {
  const ToolCalls calls{{{"{\"f\": ", "first"}, {"{\"g\": ", "second"}}, "}", false};
  const std::string text = R"({"g": {"x": "}"}})";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    CallReader reader(calls);
    std::string arguments;
    for (std::size_t at = 0; at < text.size(); at += size) {
      arguments += reader.push(text.substr(at, size), at + size >= text.size(), false);
    }
    EXPECT_EQ(arguments, R"({"x": "}"})") << size;
    ASSERT_NE(reader.call(), nullptr);
    EXPECT_EQ(reader.call()->function, "second");
  }
  CallReader cut(calls);
  EXPECT_EQ(cut.push(R"({"f": {"a")", false, true), R"({"a")");
  CallReader unknown(calls);
  EXPECT_EQ(unknown.push(R"({")", false, true), R"({")");
  EXPECT_EQ(unknown.call(), nullptr);
}

}  // namespace
}  // namespace lmtp::server
