// SCORE with candidates, and DECIDE, over real sockets: one answer of many rows, and how it ends
// otherwise.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "counting.h"
#include "running_server.h"
#include "wire.h"

namespace lmtp::server {
namespace {

using lmtp::testing::counting;
using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::joined;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::Running;
using lmtp::testing::StepGate;
using lmtp::testing::Wire;
using Tokens = std::vector<TokenId>;

std::string score(StreamId id, const Tokens& prompt, const nlohmann::json& candidates,
                  const std::string& more = {}) {
  return "SCORE {\"stream_id\": " + std::to_string(id) +
         ", \"prompt\": " + nlohmann::json(prompt).dump() +
         ", \"candidates\": " + candidates.dump() + more + "}";
}

void expect_right(const nlohmann::json& entry, const Tokens& prompt,
                  const std::vector<Tokens>& candidates) {
  ASSERT_TRUE(entry.contains("candidates")) << entry;
  EXPECT_TRUE(entry["token"].is_null());
  EXPECT_EQ(entry["finish_reason"], "stop");
  EXPECT_FALSE(entry.contains("index") || entry.contains("token_logprobs"));
  ASSERT_EQ(entry["candidates"].size(), candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    double sum = 0.0;
    Tokens prefix = prompt;
    for (const TokenId token : candidates[i]) {
      sum += FakeAgent::logprob_after(prefix, token);
      prefix.push_back(token);
    }
    EXPECT_EQ(entry["candidates"][i]["logprob"].get<double>(), sum) << i;
    EXPECT_EQ(entry["candidates"][i]["num_tokens"], candidates[i].size());
  }
}

// Many rows, those of the root and others.
std::vector<Tokens> many() {
  std::vector<Tokens> candidates;
  for (TokenId i = 0; i < 300; ++i) candidates.push_back({i % 30, i / 30, i, i + 1});
  return candidates;
}

TEST(Candidates, OneEntryAnswersThem) {
  FakeModelOptions model;
  model.engine.score_cache_bytes = 8 << 20;
  Running running(model);
  Wire wire(running.server.port());
  const Tokens prompt = counting(3, 40);
  const std::vector<Tokens> few = {{7, 8, 9}, {7}, {8, 7}, {7, 8}, {5}};
  expect_right(wire.ask(1, score(1, prompt, few)), prompt, few);
  expect_right(wire.ask(1, score(1, prompt, many())), prompt, many());
  const auto before = running.stats();
  expect_right(wire.ask(1, score(1, prompt, many())), prompt, many());
  EXPECT_EQ(running.stats().num_tokens_computed, before.num_tokens_computed);
  EXPECT_EQ(running.stats().num_steps, before.num_steps);
  expect_right(wire.ask(1, score(1, prompt, {"ab", {'a'}, "b"})), prompt,
               {{'a', 'b'}, {'a'}, {'b'}});
}

TEST(Candidates, MoreRowsThanMayRunTakeTurns) {
  FakeModelOptions model;
  model.engine.max_concurrent_requests = 3;
  Running running(model);
  Wire wire(running.server.port());
  expect_right(wire.ask(1, score(1, {1, 2}, many())), {1, 2}, many());
}

TEST(Candidates, NoticesAreOfOneStream) {
  Running running;
  Wire wire(running.server.port());
  const nlohmann::json accepted = wire.ask(1, score(1, {1, 2}, many(), R"(, "notices": true)"));
  EXPECT_EQ(accepted["status"], "accepted") << accepted;
  EXPECT_EQ(accepted["num_prompt"], 2);
  expect_right(wire.next_of(1), {1, 2}, many());
}

TEST(Candidates, ACancelEndsAllRowsWithOneEntry) {
  FakeModelOptions model;
  Running running(model);
  StepGate gate(model.agent.steps);
  Wire wire(running.server.port());
  wire.send(score(1, {1, 2}, many()));
  ASSERT_TRUE(gate.wait_until_inside());
  wire.send(R"(CANCEL {"stream_id": 1})");
  wire.settle();
  gate.open();
  const nlohmann::json entry = wire.next_of(1);
  EXPECT_EQ(entry["error"], "cancelled");
  EXPECT_EQ(entry["code"], "cancelled");
  EXPECT_FALSE(entry.contains("index"));
  expect_right(wire.ask(1, score(1, {1, 2}, {{3}, {4}})), {1, 2}, {{3}, {4}});
}

TEST(Candidates, ALostConnectionEndsAllRows) {
  FakeModelOptions model;
  Running running(model);
  StepGate gate(model.agent.steps);
  {
    Wire wire(running.server.port());
    wire.send(score(1, {1, 2}, many()));
    ASSERT_TRUE(gate.wait_until_inside());
  }
  gate.open();
  running.wait_idle();
}

TEST(Candidates, ARowThatFailsEndsTheStreamWithOneEntry) {
  FakeModelOptions model;
  model.agent.row_fails = [](const auto& state) { return state.key.sample == 3; };
  Running running(model);
  Wire wire(running.server.port());
  const nlohmann::json entry = wire.ask(1, score(1, {1, 2}, many()));
  EXPECT_TRUE(entry.contains("error")) << entry;
  EXPECT_NE(entry["code"], "cancelled");
  EXPECT_FALSE(entry.contains("index"));
  expect_right(wire.ask(1, score(1, {1, 2}, {{3}, {4}})), {1, 2}, {{3}, {4}});
}

// The fake has no label of one token: whole options are read.
std::string decide(StreamId id, const nlohmann::json& questions, const std::string& more = {}) {
  return "DECIDE {\"stream_id\": " + std::to_string(id) +
         ", \"state\": \"a tale\", \"questions\": " + questions.dump() + more + "}";
}

nlohmann::json who() {
  return {{"type", "choice"}, {"criteria", {{"lion", nullptr}, {"mouse", "b"}, {"mole", nullptr}}}};
}

TEST(Decide, OneEntryAnswersAndAgainWithoutAStep) {
  FakeModelOptions model;
  model.engine.score_cache_bytes = 8 << 20;
  Running running(model);
  Wire wire(running.server.port());
  const nlohmann::json questions = {{"who", who()}, {"is", {{"type", "noul"}}}};
  const nlohmann::json entry = wire.ask(1, decide(1, questions));
  ASSERT_TRUE(entry.contains("answers")) << entry;
  EXPECT_TRUE(entry["token"].is_null());
  EXPECT_EQ(entry["finish_reason"], "stop");
  EXPECT_FALSE(entry.contains("index"));
  const nlohmann::json probabilities = entry["answers"]["who"]["probabilities"];
  EXPECT_NEAR(probabilities["lion"].get<double>() + probabilities["mouse"].get<double>() +
                  probabilities["mole"].get<double>(),
              1.0, 1e-12);
  EXPECT_EQ(entry["answers"]["is"]["type"], "noul");
  EXPECT_EQ(entry["diagnostics"]["who"], nlohmann::json::object());
  EXPECT_GT(entry["usage"]["input_tokens"], entry["usage"]["cached_tokens"]);
  const auto before = running.stats();
  const nlohmann::json again = wire.ask(1, decide(1, questions));
  EXPECT_EQ(again["answers"], entry["answers"]);
  EXPECT_EQ(again["usage"]["input_tokens"], entry["usage"]["input_tokens"]);
  EXPECT_EQ(running.stats().num_steps, before.num_steps);
  const nlohmann::json alone = wire.ask(1, decide(1, {{"who", who()}}));
  EXPECT_EQ(alone["answers"]["who"], entry["answers"]["who"]);
}

TEST(Decide, ItsNoticeCountsThePromptsOfAllQuestions) {
  Running running;
  Wire wire(running.server.port());
  const nlohmann::json accepted =
      wire.ask(1, decide(1, {{"a", who()}, {"b", who()}}, R"(, "notices": true)"));
  EXPECT_EQ(accepted["status"], "accepted") << accepted;
  EXPECT_EQ(accepted["num_prompt"], wire.next_of(1)["usage"]["input_tokens"]);
}

TEST(Decide, ACancelEndsItWithOneEntryAndItIsNeverForked) {
  FakeModelOptions model;
  Running running(model);
  StepGate gate(model.agent.steps);
  Wire wire(running.server.port());
  wire.send(decide(1, {{"who", who()}}));
  ASSERT_TRUE(gate.wait_until_inside());
  const nlohmann::json refused = wire.ask(1, R"(FORK {"stream_id": 1, "streams": [2]})");
  EXPECT_EQ(refused["error"], "stream_id: 1 scores; allowed are live streams of GENERATE");
  wire.send(R"(CANCEL {"stream_id": 1})");
  wire.settle();
  gate.open();
  EXPECT_EQ(wire.next_of(1)["error"], "cancelled");
  EXPECT_TRUE(wire.ask(1, decide(1, {{"who", who()}})).contains("answers"));
}

TEST(Decide, WhatIsWrongIsSaid) {
  Running running;
  Wire wire(running.server.port());
  const nlohmann::json wrong = {{"a", {{"type", "x"}}}, {"b", who()}, {"c", {{"type", "score"}}}};
  const std::vector<std::pair<std::string, std::string>> cases = {
      {decide(1, wrong),
       "questions: question 'a': type: allowed are noul, choice and score\n"
       "question 'c': criteria: needed is a list of levels, the lowest first"},
      {decide(1, nlohmann::json::object()), "questions: has none; needed is at least one"},
      {decide(1, {{"a", who()}}, R"(, "scoring": "best")"), "scoring: allowed are auto"},
      {decide(1, {{"a", who()}}, R"(, "scoring": "label")"), "questions: question 'a': its label"},
      {decide(1, {{"a", who()}}, R"(, "chat_template_kwargs": {"enable_thinking": true})"),
       "chat_template_kwargs.enable_thinking: allowed is false"},
      {decide(1, {{"a", {{"type", "noul"}, {"instructions", std::string(600, 'a')}}}}),
       "state: has "},
  };
  for (const auto& [message, error] : cases) {
    const nlohmann::json entry = wire.ask(1, message);
    EXPECT_EQ(entry.value("error", "").substr(0, error.size()), error) << entry;
    EXPECT_FALSE(entry["is_msg"]);
  }
  EXPECT_EQ(running.stats().num_steps, 0) << "nothing is computed";
}

TEST(Candidates, WhatIsWrongIsSaid) {
  Running running;
  Wire wire(running.server.port());
  const Tokens prompt = {1, 2};
  const std::string beyond = std::to_string(kFakeVocabSize);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {score(1, {}, {{1}}), "prompt: is empty, at least one token is needed before candidates"},
      {score(1, prompt, {{1}, {2, kFakeVocabSize}}),
       "candidates[1][1]: token id " + beyond + " is not in the vocabulary"},
      {score(1, prompt, {{1}, nlohmann::json::array()}),
       "candidates[1]: is empty; at least one token is needed"},
      {score(1, prompt, {"a", ""}), "candidates[1]: is empty; at least one token is needed"},
      {score(1, prompt, {"a", {'a'}}), "candidates[1]: has the same tokens as candidates[0]"},
      {score(1, prompt, {{1}, Tokens(600, 1)}),
       "candidates[1]: is, with the prompt, 602 tokens, allowed are at most 512"},
      {score(1, prompt, std::vector<Tokens>(4097, Tokens{1})),
       "candidates: has 4097 of them; allowed are 1 to 4096"},
  };
  for (const auto& [message, error] : cases) {
    const nlohmann::json entry = wire.ask(1, message);
    EXPECT_EQ(entry.value("error", "").substr(0, error.size()), error) << entry;
    EXPECT_FALSE(entry["is_msg"]);
  }
  EXPECT_EQ(running.stats().num_steps, 0) << "nothing is computed";
}

}  // namespace
}  // namespace lmtp::server
