// A forced tool call: from a chat's fields to the grammar, and from the text to the call.
#include "openai/tool_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "generation/reply_formats.h"
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

// "name(arguments)", and content as it is.
std::string shown(const ReplyEvents& events) {
  std::string out;
  for (const ReplyEvent& event : events) {
    if (const auto* content = std::get_if<Content>(&event)) out += content->text;
    if (const auto* call = std::get_if<CallBegins>(&event)) out += call->function + "(";
    if (const auto* arguments = std::get_if<CallArguments>(&event)) out += arguments->json;
    if (std::holds_alternative<CallEnds>(event)) out += ")";
  }
  return out;
}

std::string read_reply(const ReplyFormat& format, const std::vector<std::string>& pieces,
                       FinishReason reason = FinishReason::kStop) {
  const auto reader = format();
  std::string out;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    TokenEvent token;
    if (i + 1 == pieces.size()) token.finish_reason = reason;
    ReplyEvents events;
    reader->read(pieces[i], token, false, events);
    out += shown(events);
  }
  return out;
}

TEST(ToolCalls, ANamedFunctionIsItsParameters) {
  const auto request =
      read(kTools + R"(, "tool_choice": {"type": "function", "function": {"name": "weather"}})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->generation.grammar,
            (Grammar{Grammar::Kind::kJsonSchema, R"({"z":1,"a":2,"type":"object",)" + kCompact}))
      << "in the order of the keys";
  EXPECT_EQ(read_reply(request->generation.text.format, {"{}"}), "weather({})");
  EXPECT_TRUE(request->answer.call_is_chosen);
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
  const ReplyFormat format = make_format({{{"{\"f\": ", "first"}, {"{\"g\": ", "second"}}, "}"});
  const std::string text = R"({"g": {"x": "}"}})";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size(); at += size) pieces.push_back(text.substr(at, size));
    EXPECT_EQ(read_reply(format, pieces), R"(second({"x": "}"}))") << size;
  }
  EXPECT_EQ(read_reply(format, {R"({"f": {"a")"}, FinishReason::kLength), R"(first({"a"))");
  EXPECT_EQ(read_reply(format, {R"({")"}, FinishReason::kLength), R"({")");
}

TEST(ToolCalls, AForkReadsOnFromWhereItsParentIs) {
  const auto parent = make_format({{{"{\"f\": ", "first"}}, "}"})();
  ReplyEvents events;
  parent->read(R"({"f": [1)", {}, false, events);
  const auto fork = parent->clone();
  for (const auto* reader : {&parent, &fork}) {
    ReplyEvents rest;
    (*reader)->read(", 2]}", {.finish_reason = FinishReason::kStop}, false, rest);
    EXPECT_EQ(shown(rest), "1, 2])");
  }
  EXPECT_EQ(shown(events), "first([");
}

}  // namespace
}  // namespace lmtp::server
