// Bodies of /v1/responses as chats, and what is kept of answers.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "responses/custom_tools.h"
#include "responses/items.h"
#include "responses/request.h"
#include "responses/store.h"
#include "responses/truncation.h"

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
      {with(R"("tools": [{"type": "mcp"}, {"type": "custom"}])"), "tools[1]: has no name"},
      {with(R"("tools": [{"type": "function", "name": "f", "strict": 1}])"),
       "tools[0]: has a strict that is no boolean"},
      {with(R"("tools": [{"type": "custom", "name": "c", "format": {"type": "grammar"}}])"),
       "tools[0].format: is unknown"},
      {with(R"("tools": [{"type": "custom", "name": "c", "format": {"type": "grammar",
               "syntax": "lark", "definition": "start: %json {}"}}])"),
       "tools[0].format.definition: has %json; allowed are"},
      {with(R"("tools": [{"type": "custom", "name": "c", "format": {"type": "grammar",
               "syntax": "regex", "definition": "a\\"}}])"),
       "tools[0].format: has a regular expression that ends with"},
      {with(R"("tools": [{"type": "custom", "name": "c"}, {"type": "custom", "name": "f"},
               {"type": "function", "name": "f"}], "tool_choice": "none")"),
       "tools[1]: has the name of a function, 'f'; allowed is a name that no function has"},
      {with(R"("tools": {"a": 1})"), "tools: is an object; allowed is an array"},
      {with(R"("include": "all")"), "include: is no array of strings"},
      {with(R"("stream_options": [])"), "stream_options: is an array"},
      {with(R"("reasoning": {"effort": 3})"), "reasoning.effort: is"},
      {with(R"("top_logprobs": 21)"), "top_logprobs"},
      {item(R"({"role": "user", "content": "x", "id": 7})"), "input[0].id: is no string"},
      {item(R"({"role": "user"})"), "input[0].content: is missing"},
      {item(R"({"type": "custom_tool_call", "call_id": "c", "name": "f"})"),
       "input[0]: is no call; call_id, name and input are needed"},
      {with(R"("tools": [{"type": "function", "name": "f"}], "tool_choice":
               {"type": "function", "name": "g"})"),
       "tool_choice: names a function"},
      {with(R"("text": {"format": {"type": "xml"}})"), "text.format: is unknown"},
      {with(R"("text": {"format": {"type": "json_schema"}})"), "text.format: is unknown"},
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

TEST(Responses, AnIdNamesOneItem) {
  auto items = OrderedJson::parse(R"([{"id": "a"}, {"id": "a"}, {"id": "b"}, {}])");
  make_ids_unique("i_", items);
  EXPECT_EQ(items.dump(), R"([{"id":"a"},{"id":"i_again_1"},{"id":"b"},{"id":"i_again_3"}])");
}

TEST(Responses, CallsOfCustomToolsAreThoseOfAFunctionWithOneText) {
  EXPECT_EQ(chat_of_items(R"([
        {"type": "custom_tool_call", "call_id": "c", "name": "run", "input": "a \"b\"\n"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}])"),
            R"([{"role":"system","content":"Be brief."},{"role":"assistant","content":null,)"
            R"("tool_calls":[{"id":"c","type":"function","function":{"name":"run",)"
            R"("arguments":"{\"input\": \"a \\\"b\\\"\\n\"}"}}]},)"
            R"({"role":"tool","tool_call_id":"c","content":"done"}])");
  const auto tool = chat_function(OrderedJson::parse(
      R"({"type": "custom", "name": "run", "format": {"type": "grammar", "syntax": "regex",
          "definition": "[a-z]+"}})"));
  EXPECT_EQ(tool["function"]["parameters"]["properties"]["input"]["pattern"], "^(?:[a-z]+)$");
}

TEST(Responses, TheInputOfACustomToolIsReadWhereverItIsCut) {
  const std::string text = "a\"b\\ \n\t/\u00e4\U0001f600";
  const std::string json = R"({"input": "a\"b\\ \n\t\/)"
                           "\u00e4"
                           R"(\ud83d\ude00"})";
  for (std::size_t cut = 0; cut <= json.size(); ++cut) {
    CustomInput input;
    const std::string first = input.push(json.substr(0, cut));
    EXPECT_EQ(first + input.push(json.substr(cut)), text) << cut;
  }
  EXPECT_EQ(CustomInput().push(R"({"other": 1})"), R"({"other": 1})");
}

// What is left out first, as "0 1|2".
std::string dropped_first(const std::string& items) {
  std::string text;
  for (const auto& unit : droppable_items(OrderedJson::parse(items))) {
    text += text.empty() ? "" : "|";
    for (std::size_t i = 0; i < unit.size(); ++i) {
      text += (i == 0 ? "" : " ") + std::to_string(unit[i]);
    }
  }
  return text;
}

TEST(Responses, TheOldestAreLeftOutWithWhatBelongsToThem) {
  const std::string user = R"({"role": "user", "content": "x"})";
  const std::string said = R"({"role": "assistant", "content": "x"})";
  const std::string system = R"({"role": "developer", "content": "x"})";
  const std::string call = R"({"type": "function_call", "call_id": "a"})";
  const std::string output = R"({"type": "function_call_output", "call_id": "a"})";
  const std::string other = R"({"type": "custom_tool_call", "call_id": "b"})";
  const std::string others = R"({"type": "custom_tool_call_output", "call_id": "b"})";
  const auto list = [](std::initializer_list<std::string> items) {
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "[" : ", ") + item;
    return text + "]";
  };
  EXPECT_EQ(dropped_first(list({system, user, said, system, user, user})), "1 2|4");
  EXPECT_EQ(dropped_first(list({user, call, output, other, others, said})), "1 2|3 4");
  EXPECT_EQ(dropped_first(list({user, call, other, others, output, said, call})), "1 2 3 4");
  EXPECT_EQ(dropped_first(list({user, call, user, output, said})), "") << "they are one";
  EXPECT_EQ(dropped_first(list({said, said})), "") << "there is no user";
}

TEST(Responses, WhatIsErasedWhileItIsWrittenIsNotKept) {
  ResponseStore store;
  store.begin("a", 1);
  EXPECT_FALSE(store.erase("a", 2)) << "another key's";
  EXPECT_TRUE(store.erase("a", 1));
  EXPECT_FALSE(store.erase("a", 1));
  store.put({.id = "a", .owner = 1});
  EXPECT_EQ(store.find("a", 1), nullptr);
  store.put({.id = "a", .owner = 1});
  EXPECT_NE(store.find("a", 1), nullptr) << "it has ended";
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
