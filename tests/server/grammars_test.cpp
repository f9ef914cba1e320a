// Grammars over real sockets: LMTP's field and those of HTTP's APIs, against a model that knows
// nothing of them.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "http_client.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "running_server.h"
#include "wire.h"

namespace lmtp::server {
namespace {

using lmtp::testing::FakeModelOptions;
using lmtp::testing::http_post;
using lmtp::testing::HttpClient;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::kJsonType;
using lmtp::testing::Running;
using lmtp::testing::StepGate;
using lmtp::testing::Wire;
using lmtp::testing::WireStream;
using nlohmann::json;

// With an end-of-text token.
FakeModelOptions ending_model() {
  FakeModelOptions model;
  model.agent.eos_id = kFakeVocabSize - 1;
  return model;
}

std::string generate(StreamId id, const json& grammar, const json& more = json::object()) {
  json fields = {{"stream_id", id}, {"prompt", "Hi"}, {"max_tokens", 200}, {"grammar", grammar}};
  fields.update(more);
  return "GENERATE " + fields.dump();
}

json regex(const std::string& value) { return {{"type", "regex"}, {"value", value}}; }

bool is_match(const std::string& text, const std::string& pattern) {
  return std::regex_match(text, std::regex(pattern));
}

class Grammars : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto supported = constraint::grammar_support(); !supported) {
      GTEST_SKIP() << supported.error().message;
    }
  }
};

TEST_F(Grammars, TextsMatchAndEnd) {
  for (const bool has_end : {true, false}) {
    const Running running(has_end ? ending_model() : FakeModelOptions{});
    Wire wire(running.server.port());
    const std::string pattern = "[a-f]{2,9}-[0-9]{3}(xyz)?!";
    const WireStream stream = wire.run(1, generate(1, regex(pattern)));
    EXPECT_EQ(stream.error, "");
    EXPECT_TRUE(is_match(stream.text, pattern)) << stream.text;
    EXPECT_EQ(stream.finish, "stop");
    const WireStream chosen =
        wire.run(1, generate(1, {{"type", "choice"}, {"value", {"red", "green"}}}));
    EXPECT_TRUE(chosen.text == "red" || chosen.text == "green") << chosen.text;
    const WireStream object =
        wire.run(1, generate(1, {{"type", "json"},
                                 {"value",
                                  {{"type", "object"},
                                   {"properties", {{"a", {{"enum", {1, 2}}}}}},
                                   {"required", {"a"}},
                                   {"additionalProperties", false}}}}));
    EXPECT_TRUE(json::parse(object.text)["a"].is_number()) << object.text;
  }
}

// One text alone may follow: its tokens come as entries like others.
TEST_F(Grammars, ForcedTokensAreEntries) {
  const Running running(ending_model());
  Wire wire(running.server.port());
  wire.send(generate(1, regex("abcdefghijklmnopqrstuvwxyz")));
  std::string text;
  int num_forced = 0;
  while (true) {
    const json entry = wire.next_of(1);
    ASSERT_TRUE(entry.contains("token")) << entry;
    text += entry["text"];
    EXPECT_FALSE(entry.contains("appended"));
    num_forced += entry.value("forced", false) ? 1 : 0;
    if (!entry["finish_reason"].is_null()) break;
  }
  EXPECT_EQ(text, "abcdefghijklmnopqrstuvwxyz");
  EXPECT_GT(num_forced, 10);
}

TEST_F(Grammars, SamplesStopsAndResumedTokens) {
  const Running running(ending_model());
  Wire wire(running.server.port());
  const std::string pattern = "[a-c]{6}( [d-f]{6}){3}";
  wire.send(generate(1, regex(pattern), {{"n", 3}, {"seed", 5}}));
  const auto samples = wire.collect_all(1, 3);
  for (const auto& [index, sample] : samples) EXPECT_TRUE(is_match(sample.text, pattern)) << index;
  const WireStream stopped = wire.run(1, generate(1, regex(pattern), {{"stop", " "}}));
  EXPECT_TRUE(is_match(stopped.text, "[a-c]{6}")) << stopped.text;
  EXPECT_EQ(stopped.stop_text, " ");

  const json by_ids = {{"prompt", {1, 2}}, {"text", true}};
  const WireStream whole = wire.run(1, generate(1, regex(pattern), by_ids));
  ASSERT_GT(whole.tokens.size(), 8U);
  json resumed = by_ids;
  resumed["resumed"] = 7;
  std::vector<TokenId> prompt = {1, 2};
  prompt.insert(prompt.end(), whole.tokens.begin(), whole.tokens.begin() + 7);
  resumed["prompt"] = prompt;
  const WireStream rest = wire.run(1, generate(1, regex(pattern), resumed));
  EXPECT_EQ(rest.tokens, std::vector<TokenId>(whole.tokens.begin() + 7, whole.tokens.end()));

  resumed["prompt"] = {1, 2, 'z', 'z'};
  resumed["resumed"] = 2;
  const json error = wire.ask(1, generate(1, regex(pattern), resumed));
  EXPECT_EQ(error["code"], "invalid_request") << error;
}

TEST_F(Grammars, MinTokensHoldTheEndBack) {
  const Running running(ending_model());
  Wire wire(running.server.port());
  const WireStream long_enough = wire.run(1, generate(1, regex("a+"), {{"min_tokens", 20}}));
  EXPECT_GE(long_enough.tokens.size(), 20U);
  EXPECT_EQ(long_enough.error, "");
}

// What a client has of each stream, in pieces of text.
using Pieces = std::map<StreamId, std::vector<std::string>>;

// The entry's finish_reason, or its error's code; empty where the stream goes on.
std::string take(const json& entry, Pieces& pieces) {
  if (entry.contains("error")) return entry["code"];
  std::vector<std::string>& held = pieces[entry["stream_id"]];
  if (entry.contains("fork_of")) {
    const auto& parent = pieces[entry["fork_of"]];
    held.assign(parent.begin(), parent.begin() + entry["fork_at"].get<int>());
  }
  held.resize(held.size() - entry.value("backtrack", 0U));
  held.push_back(entry["text"]);
  return entry["finish_reason"].is_null() ? "" : entry["finish_reason"].get<std::string>();
}

TEST_F(Grammars, EditsKeepTheGrammar) {
  FakeModelOptions model = ending_model();
  model.engine.mask_wait_ms = 60'000;  // a token a step, then
  const Running running(model);
  StepGate gate(model.agent.steps);
  Wire wire(running.server.port());
  const std::string pattern = "([a-f]{4} ){30}!";
  Pieces pieces;
  wire.send(generate(1, regex(pattern), {{"max_tokens", 300}}));
  gate.let(12);
  for (int i = 0; i < 8; ++i) take(wire.next_of(1), pieces);
  wire.send(R"(FORK {"stream_id": 1, "streams": [2]})");
  wire.send(R"(BACKTRACK {"stream_id": 1, "drop": 3})");
  wire.settle();
  gate.open();
  for (int num_ended = 0; num_ended < 2;) {
    const json entry = wire.next();
    ASSERT_FALSE(entry.is_null());
    const std::string end = take(entry, pieces);
    if (end.empty()) continue;
    ASSERT_EQ(end, "stop") << entry;
    ++num_ended;
  }
  for (const StreamId id : {1, 2}) {
    std::string text;
    for (const std::string& piece : pieces[id]) text += piece;
    EXPECT_TRUE(is_match(text, pattern)) << id << ": " << text;
  }
}

TEST_F(Grammars, AppendedTokensThatItForbidsEndTheirStreamAlone) {
  FakeModelOptions model = ending_model();
  model.engine.mask_wait_ms = 60'000;  // a token a step, then
  const Running running(model);
  StepGate gate(model.agent.steps);
  Wire wire(running.server.port());
  Pieces pieces;
  wire.send(generate(1, regex("[a-f]{150}"), {{"max_tokens", 300}}));
  gate.let(5);
  take(wire.next_of(1), pieces);
  wire.send(R"(BACKTRACK {"stream_id": 1, "append": [90, 90]})");
  wire.settle();
  gate.open();
  std::string end;
  while (end.empty()) end = take(wire.next_of(1), pieces);
  EXPECT_EQ(end, "constraint");
  EXPECT_EQ(wire.run(1, generate(1, regex("a{3}"))).text, "aaa");
}

TEST_F(Grammars, WhatIsWrongIsSaidAndTheConnectionLives) {
  const Running running(ending_model());
  Wire wire(running.server.port());
  const std::vector<std::pair<json, std::string>> cases = {
      {5, "grammar: is 5; allowed is"},
      {{{"type", "rgx"}, {"value", "a"}}, "grammar.type: is unknown"},
      {{{"type", "regex"}}, "grammar.value: is missing"},
      {{{"type", "regex"}, {"value", "a"}, {"x", 1}}, "grammar: is an object of other fields"},
      {regex("(a"), "grammar: "},
      {{{"type", "lark"}, {"value", "start: nothing"}}, "grammar: "},
      {{{"type", "choice"}, {"value", json::array({1})}}, "grammar: "},
      {{{"type", "json_schema"}, {"value", {{"type", "thing"}}}}, "grammar: "},
  };
  for (const auto& [grammar, expected] : cases) {
    const json error = wire.ask(1, generate(1, grammar));
    EXPECT_EQ(error.value("error", "").substr(0, expected.size()), expected) << grammar << error;
    EXPECT_EQ(error.value("code", ""), "invalid_request") << grammar;
  }
  EXPECT_EQ(wire.run(1, generate(1, regex("yes"))).text, "yes");
}

// A stream may end while its grammar is read; its id is another one's then.
TEST_F(Grammars, StreamsEndMeanwhile) {
  const Running running(ending_model());
  Wire wire(running.server.port());
  for (int i = 0; i < 20; ++i) {
    const std::string slow = "[a-z]{" + std::to_string(100 + i) + "}";
    wire.send(generate(1, regex("x" + slow)));
    wire.send(R"(CANCEL {"stream_id": 1})");
    wire.send(generate(2, regex("y" + slow), {{"timeout_ms", 1}}));
    wire.send(generate(3, regex("z")));
    std::map<StreamId, std::string> ends;
    Pieces pieces;
    while (ends.size() < 3) {
      const json entry = wire.next();
      ASSERT_FALSE(entry.is_null());
      const std::string end = take(entry, pieces);
      if (!end.empty()) ends.emplace(entry["stream_id"], end);
    }
    EXPECT_TRUE(ends[1] == "cancelled" || ends[1] == "stop") << ends[1];
    EXPECT_TRUE(ends[2] == "timeout" || ends[2] == "stop") << ends[2];
    EXPECT_EQ(ends[3], "stop");
    EXPECT_EQ(pieces[3], std::vector<std::string>{"z"});
  }
  running.wait_idle();
}

TEST_F(Grammars, AModelWithoutTokenizerSaysSo) {
  FakeModelOptions model;
  model.load_tokenizer = []() -> registry::LoadedTokenizer {
    return Error{ErrorCode::kNotFound, "no tokenizer.json"};
  };
  const Running running(std::move(model));
  Wire wire(running.server.port());
  const json by_ids = {{"prompt", {1, 2}}};
  const json error = wire.ask(1, generate(1, regex("a"), by_ids));
  EXPECT_EQ(error["error"].get<std::string>().substr(0, 26), "grammar: needs a tokenizer") << error;
}

struct Http {
  explicit Http(const Running& running) : port(running.server.port()) {}

  json ask(const std::string& path, const json& body, int status = 200) const {
    const HttpClient::Answer answer = http_post(port, path, body.dump(), kJsonType);
    EXPECT_EQ(answer.status, status) << answer.body;
    return json::parse(answer.body, nullptr, false);
  }
  std::string text(const json& more) const {
    json body = {{"prompt", "Hi"}, {"max_tokens", 200}};
    body.update(more);
    return ask("/v1/completions", body)["choices"][0]["text"];
  }

  std::uint16_t port;
};

TEST_F(Grammars, TgisField) {
  const Running running(ending_model());
  const Http http(running);
  const auto ask = [&](const json& grammar, int status) {
    return http.ask(
        "/generate",
        {{"inputs", "Hi"},
         {"parameters", {{"grammar", grammar}, {"max_new_tokens", 200}, {"details", true}}}},
        status);
  };
  const json answer = ask(regex("[0-9]{4}"), 200);
  EXPECT_TRUE(is_match(answer["generated_text"], "[0-9]{4}")) << answer;
  EXPECT_EQ(answer["details"]["finish_reason"], "eos_token");
  const json schema = {{"type", "object"},
                       {"properties", {{"a", {{"const", 1}}}}},
                       {"required", {"a"}},
                       {"additionalProperties", false}};
  for (const json& grammar :
       {json{{"type", "json"}, {"value", schema}}, json{{"type", "json"}, {"value", schema.dump()}},
        json{{"type", "json_object"}, {"value", schema}},
        json{{"type", "json_schema"}, {"value", {{"name", "x"}, {"schema", schema}}}}}) {
    EXPECT_EQ(json::parse(ask(grammar, 200)["generated_text"].get<std::string>()), json({{"a", 1}}))
        << grammar;
  }
  EXPECT_TRUE(ask(regex("(a"), 422)["error"].get<std::string>().starts_with(
      "Input validation error: grammar is not valid: "));
  EXPECT_TRUE(ask({{"type", "regexp"}}, 422)["error"].get<std::string>().starts_with(
      "Failed to deserialize the JSON body into the target type: parameters.grammar.type: "));
}

TEST_F(Grammars, FieldsOfOpenAiVllmAndLlamaCpp) {
  const Running running(ending_model());
  const Http http(running);
  const json schema = {{"type", "object"},
                       {"properties", {{"b", {{"const", 1}}}}},
                       {"required", {"b"}},
                       {"additionalProperties", false}};
  const json object = {{"b", 1}};
  for (const json& more :
       {json{{"response_format",
              {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}}}},
        json{{"response_format", {{"type", "json_object"}, {"schema", schema}}}},
        json{{"structured_outputs", {{"json", schema}}}}, json{{"guided_json", schema.dump()}},
        json{{"json_schema", schema}}}) {
    EXPECT_EQ(json::parse(http.text(more)), object) << more;
  }
  for (const json& more :
       {json{{"structured_outputs", {{"regex", "[x]{3}"}}}}, json{{"guided_regex", "[x]{3}"}},
        json{{"guided_choice", {"xxx"}}}, json{{"grammar", "root ::= \"x\" \"x\" \"x\""}},
        json{{"guided_grammar", "start: \"xxx\""}},
        json{{"structured_outputs", {{"choice", {"xxx"}}, {"json_object", false}}}}}) {
    EXPECT_EQ(http.text(more), "xxx") << more;
  }
  const std::vector<std::pair<json, std::string>> wrong = {
      {{{"guided_regex", "(a"}}, "guided_regex"},
      {{{"guided_regex", 5}}, "guided_regex"},
      {{{"structured_outputs", {{"regex", "a"}, {"choice", {"a"}}}}}, "structured_outputs"},
      {{{"structured_outputs", {{"x", 1}}}}, "structured_outputs"},
      {{{"guided_regex", "a"}, {"guided_choice", {"a"}}}, "guided_choice"},
      {{{"response_format", {{"type", "json_schema"}}}}, "response_format.json_schema"},
      {{{"response_format", {{"type", "xml"}}}}, "response_format.type"},
  };
  for (const auto& [more, param] : wrong) {
    json body = {{"prompt", "Hi"}};
    body.update(more);
    EXPECT_EQ(http.ask("/v1/completions", body, 400)["error"]["param"], param) << more;
  }
}

}  // namespace
}  // namespace lmtp::server
