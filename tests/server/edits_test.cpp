// FORK and BACKTRACK over real sockets: entries, text and stop strings, and what is refused.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fake_tokenizer.h"
#include "running_server.h"
#include "wire.h"

namespace lmtp::server {
namespace {

using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::FakeTokenizer;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::Running;
using lmtp::testing::StepGate;
using lmtp::testing::Wire;

// What a client has of a stream.
struct HeldSample {
  std::vector<TokenId> tokens;
  std::vector<std::string> pieces;
  std::string finish;
  std::string stop_text;
  std::string error;
  int fork_at = -1;
  int fork_prompt = -1;
  int num_backtracked = 0;
  int num_appended = 0;

  std::string text() const {
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    return text;
  }
};

class Streams {
 public:
  explicit Streams(Wire& wire) : wire_(wire) {}

  HeldSample& operator[](StreamId id) { return held_[id]; }

  void wait_tokens(StreamId id, std::size_t count) {
    while (held_[id].tokens.size() < count && held_[id].finish.empty()) take(wire_.next());
  }
  void wait_end(StreamId id) {
    while (held_[id].finish.empty() && held_[id].error.empty()) take(wire_.next());
  }

 private:
  void take(const nlohmann::json& entry) {
    ASSERT_FALSE(entry.is_null());
    HeldSample& held = held_[entry["stream_id"]];
    held.error = entry.value("error", "");
    if (!entry.contains("token")) return;
    if (entry.contains("fork_of")) {
      const auto& shared = held_[entry["fork_of"]];
      held.fork_at = entry["fork_at"];
      held.fork_prompt = entry["fork_prompt"];
      held.tokens.assign(shared.tokens.begin(), shared.tokens.begin() + held.fork_at);
      if (!shared.pieces.empty()) {
        held.pieces.assign(shared.pieces.begin(), shared.pieces.begin() + held.fork_at);
      }
    }
    const int num_gone = entry.value("backtrack", 0);
    held.num_backtracked += num_gone;
    held.tokens.resize(held.tokens.size() - static_cast<std::size_t>(num_gone));
    if (!held.pieces.empty()) held.pieces.resize(held.tokens.size());
    held.num_appended += entry.value("appended", false) ? 1 : 0;
    held.tokens.push_back(entry["token"]);
    if (entry.contains("text")) held.pieces.push_back(entry["text"]);
    held.stop_text = entry.value("stop_text", "");
    if (!entry["finish_reason"].is_null()) held.finish = entry["finish_reason"];
  }

  Wire& wire_;
  std::map<StreamId, HeldSample> held_;
};

TEST(Edits, ForksBeginWithTheTokensOfTheirStream) {
  const FakeModelOptions model;
  Running running(model);
  StepGate gate(model.agent.steps);
  Wire wire(running.server.port());
  Streams streams(wire);
  wire.send(R"(GENERATE {"stream_id": 1, "prompt": [1, 2], "max_tokens": 120})");
  gate.let(25);
  streams.wait_tokens(1, 20);
  wire.send(R"(FORK {"stream_id": 1, "streams": [2, 3], "params": {"max_tokens": 90}})");
  wire.settle();
  gate.open();
  for (const StreamId id : {1, 2, 3}) streams.wait_end(id);
  const auto tokens = FakeAgent::expected_tokens({1, 2}, 120, kFakeVocabSize);
  EXPECT_EQ(streams[1].tokens, tokens);
  for (const StreamId id : {2, 3}) {
    EXPECT_GE(streams[id].fork_at, 20);
    EXPECT_EQ(streams[id].fork_at, streams[2].fork_at);
    EXPECT_EQ(streams[id].fork_prompt, 2);
    EXPECT_EQ(streams[id].tokens, std::vector<TokenId>(tokens.begin(), tokens.begin() + 90));
    EXPECT_EQ(streams[id].finish, "length");
  }
}

// The pieces that a client has after all of it are the text of the tokens that it has.
TEST(Edits, TextAndStopStringsFollow) {
  const FakeModelOptions model;
  Running running(model);
  StepGate gate(model.agent.steps);
  Wire wire(running.server.port());
  const FakeTokenizer tokenizer(kFakeVocabSize);
  Streams streams(wire);
  wire.send(R"(GENERATE {"stream_id": 1, "prompt": "Hé", "max_tokens": 150, "stop": "zqzq!"})");
  gate.let(35);
  streams.wait_tokens(1, 30);
  wire.send(R"(FORK {"stream_id": 1, "streams": [2]})");
  wire.send(R"(BACKTRACK {"stream_id": 1, "drop": 13, "append": [97, 98, 99, 122, 113]})");
  wire.settle();
  gate.let(30);
  streams.wait_tokens(1, 45);
  wire.send(R"(FORK {"stream_id": 1, "streams": [3]})");
  // The stop string's end comes from the appended tokens, which end nothing, then it is dropped.
  wire.send(R"(BACKTRACK {"stream_id": 1, "append": [122, 113, 122, 113, 33]})");
  wire.send(R"(BACKTRACK {"stream_id": 2, "drop": 4})");
  wire.send(R"(FORK {"stream_id": 2, "streams": [5]})");  // before any entry tells of that
  wire.settle();
  gate.open();
  for (const StreamId id : {1, 2, 3, 5}) {
    streams.wait_end(id);
    std::vector<TokenId> shown = streams[id].tokens;
    EXPECT_EQ(shown.size(), 150U) << id;
    std::erase_if(shown, [&](TokenId token) { return tokenizer.is_special(token); });
    EXPECT_EQ(streams[id].text(), tokenizer.decode(shown)) << id;
    EXPECT_EQ(streams[id].error, "") << id;
  }
  EXPECT_EQ(streams[1].num_backtracked, 13);
  EXPECT_EQ(streams[1].num_appended, 10);
  EXPECT_EQ(streams[2].num_backtracked, 4);
}

TEST(Edits, WhatIsWrongIsSaidAndTheStreamGoesOn) {
  FakeModelOptions model;
  model.engine.debug.max_chunk_tokens = 1;  // a SCORE lives for as many steps as it has tokens
  Running running(model);
  StepGate gate(model.agent.steps);
  Wire wire(running.server.port());
  Streams streams(wire);
  wire.send(R"(GENERATE {"stream_id": 1, "prompt": [1, 2], "max_tokens": 300})");
  wire.send(R"(GENERATE {"stream_id": 4, "prompt": [1, 2], "max_tokens": 300, "n": 2})");
  // By token ids, and by text.
  const nlohmann::json scored = std::vector<TokenId>(300, 7);
  wire.send(R"(SCORE {"stream_id": 5, "prompt": [1], "scored": )" + scored.dump() + "}");
  wire.send(R"(SCORE {"stream_id": 6, "prompt": [1], "scored": ")" + std::string(300, 'a') + "\"}");
  wire.settle();
  gate.let(10);
  streams.wait_tokens(1, 3);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(FORK {"stream_id": 7, "streams": [8]})", "stream_id: 7 is not live"},
      {R"(FORK {"stream_id": 1, "streams": [8, 1]})", "streams: stream_id: 1"},
      {R"(FORK {"stream_id": 1, "streams": []})", "streams: has 0 entries"},
      {R"(FORK {"stream_id": 1})", "streams: is missing"},
      {R"(FORK {"stream_id": 1, "streams": [8, 8]})", "streams: has 8 twice"},
      {R"(FORK {"stream_id": 1, "streams": [8], "params": {"top_p": 2}})", "params.top_p: is 2"},
      {R"(FORK {"stream_id": 1, "streams": [8], "params": {"n": 2}})", "params.n: cannot be"},
      {R"(FORK {"stream_id": 1, "streams": [8], "params": {"logit_bias": {"999999": 1}}})",
       "logit_bias: token id 999999"},
      {R"(FORK {"stream_id": 4, "streams": [8]})", "stream_id: 4 has several samples"},
      {R"(FORK {"stream_id": 5, "streams": [8]})", "stream_id: 5 scores; allowed are live"},
      {R"(BACKTRACK {"stream_id": 5, "drop": 1})", "stream_id: 5 scores; allowed are live"},
      {R"(FORK {"stream_id": 6, "streams": [8]})", "stream_id: 6 scores; allowed are live"},
      {R"(BACKTRACK {"stream_id": 7, "drop": 1})", "stream_id: 7 is not live"},
      {R"(BACKTRACK {"stream_id": 1, "drop": 10000})", "drop: is 10000; allowed are at most"},
      {R"(BACKTRACK {"stream_id": 1, "drop": -1})", "drop: is -1"},
      {R"(BACKTRACK {"stream_id": 1, "append": [999999]})", "append[0]: token id 999999"},
      {R"(BACKTRACK {"stream_id": 1, "append": "x"})", "append: is a string"},
  };
  for (const auto& [message, error] : cases) {
    wire.send(message);
    wire.settle();
    gate.let(3);  // the engine may be who answers
    nlohmann::json entry = wire.next();
    while (!entry["is_msg"]) entry = wire.next();
    EXPECT_EQ(entry["error"].get<std::string>().substr(0, error.size()), error) << message;
    EXPECT_EQ(entry["code"], "invalid_request") << message;
  }
  wire.send(R"(FORK {"stream_id": 1, "streams": [8], "params": {"max_tokens": 1}})");
  wire.settle();
  gate.let(10);
  EXPECT_EQ(wire.next_of(8)["error"].get<std::string>().substr(0, 17), "max_tokens: is 1;");
  for (int i = 0; i < 3; ++i) {
    const nlohmann::json entry = wire.next_of(1);
    ASSERT_FALSE(entry.contains("error")) << entry;
    EXPECT_TRUE(entry["finish_reason"].is_null());
  }
  for (const StreamId id : {1, 4, 5, 6}) {
    wire.send("CANCEL {\"stream_id\": " + std::to_string(id) + "}");
  }
  gate.open();
  running.wait_idle();
}

}  // namespace
}  // namespace lmtp::server
