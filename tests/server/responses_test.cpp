// Bodies of /v1/responses as chats, and what is kept of answers.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "responses/items.h"
#include "responses/request.h"
#include "responses/store.h"

namespace lmtp::server {
namespace {

using std::chrono::minutes;

std::string chat_of_items(const std::string& items) {
  const auto chat = messages_of_items("Be brief.", OrderedJson::parse(items));
  return chat ? chat->dump() : chat.error().message;
}

TEST(Responses, ItemsAreMessagesOfAChatAndThoseOfOneTurnAreOne) {
  EXPECT_EQ(chat_of_items(R"([
        {"role": "developer", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "S"}],
         "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant",
         "content": [{"type": "output_text", "text": "I ask.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"z\": 1}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2",
         "output": [{"type": "input_text", "text": "late"}]},
        {"role": "user", "content": "Go on."}])"),
            R"([{"role":"system","content":"Be brief."},{"role":"developer","content":"a"},)"
            R"({"role":"assistant","content":"I ask.","reasoning_content":"Hm.","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"f","arguments":"{\"z\": 1}"}},)"
            R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"c1","content":"sunny"},)"
            R"({"role":"tool","tool_call_id":"c2","content":"late"},)"
            R"({"role":"user","content":"Go on."}])");
}

TEST(Responses, TextIsAnItemAndEachHasAnId) {
  EXPECT_EQ(input_items("Hi", "i_")->dump(),
            R"([{"type":"message","role":"user",)"
            R"("content":[{"type":"input_text","text":"Hi"}],"id":"i_0","status":"completed"}])");
  const auto own = input_items(OrderedJson::parse(R"([{"id": "x", "role": "user"}])"), "i_");
  EXPECT_EQ(own->front()["id"], "x");
}

// Each is told by the field, or the place in it, that is wrong.
TEST(Responses, WhatIsWrongIsRefusedByName) {
  const auto with = [](const std::string& fields) { return R"({"input": "Hi", )" + fields + "}"; };
  const auto item = [](const std::string& text) { return R"({"input": [)" + text + "]}"; };
  const std::pair<std::string, std::string> rows[] = {
      {"[]", "body"},
      {"{}", "input: is missing"},
      {R"({"input": 7})", "input: is neither"},
      {R"({"input": []})", "input: is empty"},
      {item("7"), "input[0]: is no item"},
      {item(R"({"type": "item_reference", "id": "x"})"),
       "input[0]: 'item_reference' is not supported here; allowed are"},
      {item(R"({"role": "poet", "content": "O"})"), "input[0]: role is unknown"},
      {item(R"({"role": "user", "content": [{"type": "input_image"}]})"),
       "input[0].content[0]: 'input_image' is not supported here"},
      {item(R"({"type": "function_call", "name": "f"})"), "input[0]: is no call"},
      {item(R"({"type": "function_call_output", "call_id": "c9", "output": "x"})"),
       "input[0]: No tool call found for function call output with call_id c9"},
      {with(R"("background": true)"), "background: is not supported"},
      {with(R"("conversation": "c")"), "conversation: is not supported"},
      {with(R"("truncation": "some")"), "truncation: is unknown"},
      {with(R"("previous_response_id": "resp_1")"), "Previous response with id 'resp_1' not found"},
      {with(R"("tool_choice": "required")"), "tool_choice: needs tools"},
      {with(R"("tools": [{"type": "custom", "name": "c"}])"), "tools[0]: is no tool"},
      {with(R"("tools": [{"type": "function", "name": "f"}], "tool_choice":
               {"type": "function", "name": "g"})"),
       "tool_choice: names a function"},
      {with(R"("text": {"format": {"type": "xml"}})"), "text.format: is unknown"},
      {with(R"("text": {"format": {"type": "json_schema"}})"), "text.format: is unknown"},
      {with(R"("top_logprobs": 3)"), "top_logprobs: is not supported"},
      {with(R"("max_output_tokens": 0)"), "max_output_tokens"},
      {with(R"("metadata": 5)"), "metadata: is no object of at most 16"},
      {with(R"("metadata": {"a": 5})"), "metadata: is no object of at most 16"},
      {with(R"("metadata": {"a": ")" + std::string(513, 'x') + "\"}"), "metadata: is no object"},
  };
  for (const auto& [body, message] : rows) {
    const auto read = read_response_request(body, {}, [](const auto&) { return nullptr; });
    ASSERT_FALSE(read.ok()) << body;
    EXPECT_EQ(read.error().message.substr(0, message.size()), message) << body;
  }
}

TEST(Responses, TenThousandItemsAndThoseOfTheResponseBeforeAreRead) {
  OrderedJson items = OrderedJson::array();
  for (int i = 0; i < 10'000; ++i) items.push_back({{"role", "user"}, {"content", "x"}});
  const OrderedJson body = {{"previous_response_id", "resp_1"}, {"input", items}};
  const auto before = std::make_shared<const StoredResponse>(StoredResponse{
      .id = "resp_1",
      .input = R"([{"type": "message", "role": "user", "content": "Hi"}])",
      .output = R"([{"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}])"});
  const auto read = read_response_request(body.dump(), {}, [&](const auto&) { return before; });
  ASSERT_TRUE(read.ok()) << read.error().message;
  const auto input = OrderedJson::parse(read->input);
  EXPECT_EQ(input.size(), 10'002U);
  EXPECT_EQ(input[1]["type"], "function_call");
}

StoredResponse stored(const std::string& id, ConnectionId owner, std::size_t num_bytes = 0) {
  return {.id = id, .owner = owner, .body = std::string(num_bytes, 'x')};
}

TEST(Responses, AreKeptForTheirKeyUntilTheirTimeIsOver) {
  ResponseStore store({.lifetime = minutes(10)});
  const auto now = ResponseStore::Clock::now();
  store.put(stored("a", 1), now);
  store.put(stored("b", 1), now + minutes(5));
  EXPECT_NE(store.find("a", 1, now + minutes(9)), nullptr);
  EXPECT_EQ(store.find("a", 2, now), nullptr) << "another key's";
  EXPECT_FALSE(store.erase("a", 2, now));
  EXPECT_EQ(store.find("a", 1, now + minutes(10)), nullptr);
  EXPECT_NE(store.find("b", 1, now + minutes(10)), nullptr);
  EXPECT_TRUE(store.erase("b", 1, now + minutes(10)));
  EXPECT_FALSE(store.erase("b", 1, now + minutes(10)));
}

TEST(Responses, TheOldestAreForgottenOfAKeyThatHasMuchItsOwn) {
  ResponseStore few({.num_max = 2});
  for (const char* id : {"a", "b", "c"}) few.put(stored(id, 1));
  EXPECT_EQ(few.find("a", 1), nullptr);
  EXPECT_NE(few.find("b", 1), nullptr);
  ResponseStore shared({.num_max = 4});
  shared.put(stored("other", 2));
  for (const char* id : {"a", "b", "c", "d", "e"}) shared.put(stored(id, 1));
  EXPECT_NE(shared.find("other", 2), nullptr) << "though it is the oldest";
  ResponseStore small({.bytes_max = 400'000});
  small.put(stored("too large", 1, 30'000));
  EXPECT_EQ(small.find("too large", 1), nullptr);
  small.put(stored("other", 2, 20'000));
  for (char id = 'a'; id < 'w'; ++id) small.put(stored(std::string(1, id), 1, 20'000));
  EXPECT_NE(small.find("other", 2), nullptr) << "though it is the oldest";
  EXPECT_EQ(small.find("a", 1), nullptr);
  EXPECT_NE(small.find("v", 1), nullptr);
}

}  // namespace
}  // namespace lmtp::server
