// Bodies of Anthropic's API as chats, and its errors.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "anthropic/error.h"
#include "anthropic/messages.h"
#include "anthropic/request.h"
#include "generation/stricter_chat.h"
#include "lmtp/request/account.h"
#include "net/connection.h"

namespace lmtp::server {
namespace {

std::string chat_of(const std::string& messages, const std::string& system = "") {
  const OrderedJson given = system.empty() ? OrderedJson() : OrderedJson::parse(system);
  const auto chat = chat_messages(system.empty() ? nullptr : &given, OrderedJson::parse(messages));
  return chat ? chat->dump() : chat.error().message;
}

TEST(Anthropic, MessagesAreThoseOfAChatInOpenAisForm) {
  EXPECT_EQ(chat_of(R"([{"role": "user", "content": "Hi"}])", R"("Be brief.")"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])");
  EXPECT_EQ(chat_of(R"([{"role": "user", "content": [
                          {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                          {"type": "text", "text": "b"}]}])",
                    R"([{"type": "text", "text": "x-anthropic-billing-header: cch=1"},
                        {"type": "text", "text": "Be brief."}])"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":[)"
            R"({"type":"text","text":"a"},{"type":"text","text":"b"}]}])");
  EXPECT_EQ(chat_of(R"([{"role": "user", "content": "a"}, {"role": "user", "content": [
                          {"type": "text", "text": "b"}]}])",
                    R"("x-anthropic-billing-header: cch=1\nBe brief.")"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":[)"
            R"({"type":"text","text":"a"},{"type":"text","text":"b"}]}])");
}

TEST(Anthropic, CallsTheirResultsAndThinkingAreMessagesOfAChat) {
  EXPECT_EQ(chat_of(R"([
        {"role": "assistant", "content": [
          {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
          {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "I ask."},
          {"type": "tool_use", "id": "t1", "name": "f", "input": {"z": 1.50, "a": [2]}},
          {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
        {"role": "user", "content": [
          {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
          {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
           "content": [{"type": "text", "text": "no such day"}]},
          {"type": "text", "text": "Go on."}]}])"),
            R"([{"role":"assistant","content":"I ask.","reasoning_content":"Hm.","tool_calls":[)"
            R"({"id":"t1","type":"function","function":)"
            R"({"name":"f","arguments":"{\"z\":1.5,\"a\":[2]}"}},)"
            R"({"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"t1","content":"sunny"},)"
            R"({"role":"tool","tool_call_id":"t2","content":"Error: no such day"},)"
            R"({"role":"user","content":"Go on."}])");
}

TEST(Anthropic, AToolIsAFunction) {
  const auto tool = [](const char* text) { return chat_tool(OrderedJson::parse(text)).dump(); };
  EXPECT_EQ(tool(R"({"name": "f", "description": "d", "input_schema": {"type": "object"},
                     "cache_control": {"type": "ephemeral"}, "type": "custom"})"),
            R"({"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"}}})");
  EXPECT_EQ(tool("3"), "3");
}

TEST(Anthropic, ToolsThatTheClientRunsHaveTheirSchema) {
  const auto parameters = [](const std::string& type) {
    const OrderedJson tool = chat_tool({{"type", type}, {"name", "t"}});
    return tool.contains("function") ? tool["function"]["parameters"]["properties"] : tool;
  };
  EXPECT_TRUE(parameters("bash_20250124").contains("restart"));
  EXPECT_TRUE(parameters("text_editor_20250728").contains("insert_text"));
  EXPECT_FALSE(parameters("text_editor_20250124").contains("insert_text"));
  EXPECT_EQ(parameters("text_editor_20250124")["command"]["enum"].back(), "undo_edit");
  EXPECT_TRUE(parameters("memory_20250818").contains("old_path"));
  EXPECT_EQ(parameters("web_search_20250305")["type"], "web_search_20250305") << "the vendor's";
}

// Each is told by the field, or the place in it, that is wrong.
TEST(Anthropic, WhatIsWrongIsRefusedByName) {
  const std::string user = R"({"role": "user", "content": "Hi"})";
  const auto with = [&](const std::string& fields, const std::string& messages) {
    return R"({"max_tokens": 3, )" + fields + R"("messages": [)" + messages + "]}";
  };
  const auto block = [&](const std::string& role, const std::string& text) {
    return with("", R"({"role": ")" + role + R"(", "content": [)" + text + "]}");
  };
  const std::pair<std::string, std::string> rows[] = {
      {"[]", "body"},
      {R"({"messages": []})", "max_tokens: is missing"},
      {R"({"max_tokens": 3})", "messages: is missing"},
      {with("", ""), "messages: is an array"},
      {with("", R"({"role": "poet", "content": "O"})"), "messages[0]: role is unknown"},
      {with("", user + R"(, {"role": "user"})"), "messages[1].content: is missing"},
      {block("user", R"({"type": "image", "source": {}})"),
       "messages[0].content[0]: 'image' is not supported here"},
      {block("user", R"({"type": "tool_result", "tool_use_id": "t9", "content": "x"})"),
       "messages[0].content[0]: tool_use_id is of no tool_use block before it"},
      {block("assistant", R"({"type": "tool_use", "name": "f"})"),
       "messages[0].content[0]: is no call"},
      {block("assistant", R"({"type": "thinking"})"), "messages[0].content[0]: has no thinking"},
      {block("user", "7"), "messages[0].content[0]: is no block"},
      {with(R"("system": 7, )", user), "system: is neither"},
      {with(R"("tools": {}, )", user), "tools: is an object"},
      {with(R"("tools": [{"name": ""}], )", user), "tools[0]: has no name"},
      {with(R"("tools": [{"type": "web_search_20250305", "name": "w"}, 3], )", user),
       "tools[1]: is no tool; allowed is {\"name\": ..., \"description\": ..., \"input_schema\""},
      {with(R"("tools": [{"name": "f", "input_schema": 3}], )", user),
       "tools[0]: has a schema that is no object"},
      {with(R"("tool_choice": {"type": "any"}, )", user), "tool_choice: needs tools"},
      {with(R"("tool_choice": {"type": "some"}, )", user), "tool_choice: is unknown"},
      {with(R"("tool_choice": {"type": "tool", "name": "g"}, "tools": [{"name": "f"}], )", user),
       "tool_choice: names a function"},
      {with(R"("thinking": {"type": "enabled", "budget_tokens": -1}, )", user), "thinking: has"},
      {with(R"("thinking": "on", )", user), "thinking: is no object"},
      {with(R"("thinking": {"type": "on"}, )", user), "thinking: has a type that is unknown"},
      {with(R"("tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}, )", user),
       "tool_choice: has disable_parallel_tool_use"},
      {with(R"("metadata": [], )", user), "metadata: is an array"},
      {with(R"("output_config": {"effort": 3}, )", user), "output_config: has an effort"},
      {with(R"("output_format": {"type": "json_schema", "schema": {}}, )",
            user + R"(, {"role": "assistant", "content": "{"})"),
       "output_format: holds the whole answer to a format"},
      {with(R"("output_config": {"format": {"type": "xml"}}, )", user), "output_config: has"},
      {with(R"("output_format": {"type": "json_schema"}, )", user), "output_format: has"},
      {with(R"("stop_sequences": [""], )", user), "stop_sequences"},
      {with(R"("temperature": -1, )", user), "temperature"},
  };
  for (const auto& [body, message] : rows) {
    const auto read = read_messages(body, {}, false);
    ASSERT_FALSE(read.ok()) << body;
    EXPECT_EQ(read.error().message.substr(0, message.size()), message) << body;
  }
  EXPECT_TRUE(read_messages(R"({"messages": [)" + user + "]}", {}, true).ok()) << "is counted";
}

TEST(Anthropic, ErrorsHaveItsForm) {
  const auto answer = anthropic_error({ErrorCode::kOverloaded, "overloaded: retry \"later\""});
  EXPECT_EQ(answer.status, 529);
  EXPECT_EQ(answer.fields.front().name, "Retry-After");
  EXPECT_EQ(answer.body, R"({"type": "error", "error": {"type": "overloaded_error", )"
                         R"("message": "overloaded: retry \"later\""}})"
                         "\n");
  const std::pair<ErrorCode, std::string> rows[] = {
      {ErrorCode::kInvalid, "400 invalid_request_error"},
      {ErrorCode::kTooLong, "400 invalid_request_error"},
      {ErrorCode::kNotFound, "404 not_found_error"},
      {ErrorCode::kConstraint, "422 invalid_request_error"},
      {ErrorCode::kUnavailable, "503 api_error"},
      {ErrorCode::kTimeout, "504 timeout_error"},
      {ErrorCode::kInternal, "500 api_error"},
  };
  for (const auto& [code, expected] : rows) {
    const HttpResponse error = anthropic_error({code, "why"});
    const Json body = Json::parse(error.body);
    EXPECT_EQ(std::to_string(error.status) + " " + body["error"]["type"].get<std::string>(),
              expected);
  }
  AccountLimits limits;
  limits.max_streams = 1;
  limits.tokens_per_minute = 10;
  Account account("k", 1, limits);
  ASSERT_TRUE(account.begin(100).ok());
  const Error many = account.begin(1).error();
  account.ended(1);
  const Error fast = account.begin(1).error();
  for (const Error& own : {many, fast}) {
    EXPECT_EQ(anthropic_error(own).status, 429) << own.message;
    EXPECT_EQ(anthropic_refusal_status(429, own.message), 429);
    EXPECT_NE(anthropic_error(own).body.find("rate_limit_error"), std::string::npos);
  }
  EXPECT_EQ(anthropic_refusal_status(429, "overloaded: long bodies wait to be read"), 529);
  EXPECT_EQ(anthropic_refusal_status(503, why_given_up(Held::kUnfinishedMessage)), 529);
  EXPECT_EQ(anthropic_refusal_status(429, "Too many requests of this address"), 429);
  EXPECT_NE(anthropic_refusal_json(401, "no").find("authentication_error"), std::string::npos);
  EXPECT_NE(anthropic_refusal_json(413, "no").find("request_too_large"), std::string::npos);
}

TEST(StricterChat, IdsAreShortAndTheSameAndWhatFollowsAResultIsPartOfIt) {
  const std::string given = R"([{"role": "user", "content": "Hi"},
      {"role": "assistant", "tool_calls": [{"id": "toolu_1"}, {"id": "abcDEF123"}]},
      {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny"},
      {"role": "tool", "tool_call_id": "abcDEF123", "content": [{"type": "text", "text": "late"}]},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "user", "content": "c"}])";
  const auto chat = OrderedJson::parse(stricter_messages(given));
  ASSERT_EQ(chat.size(), 4U);
  const auto& calls = chat[1]["tool_calls"];
  EXPECT_EQ(calls[0]["id"].get<std::string>().size(), 9U);
  EXPECT_EQ(calls[0]["id"], chat[2]["tool_call_id"]);
  EXPECT_EQ(calls[1]["id"], "abcDEF123") << "fits already";
  EXPECT_EQ(chat[3]["content"], "late\n\na\nb\n\nc");
  EXPECT_EQ(stricter_messages(given), stricter_messages(given));
}

TEST(StricterChat, OthersStayAsTheyAre) {
  EXPECT_EQ(stricter_messages(R"([{"role": "user", "content": "a"}, 3, {"tool_calls": 1}])"), "");
  EXPECT_EQ(stricter_messages("{}"), "");
}

}  // namespace
}  // namespace lmtp::server
