// Text in and out, over real sockets: prompts, pieces, stop strings, scores, samples, timeouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_tokenizer.h"
#include "running_server.h"
#include "wire.h"

namespace lmtp::server {
namespace {

using lmtp::testing::endless_model;
using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::FakeTokenizer;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::Running;
using lmtp::testing::Wire;
using lmtp::testing::WireStream;

const FakeTokenizer& tokenizer() {
  static const FakeTokenizer kTokenizer(kFakeVocabSize);
  return kTokenizer;
}

std::vector<TokenId> streamed_ids(const std::string& text) { return *tokenizer().encode(text); }

std::vector<TokenId> with_bos(std::vector<TokenId> ids) {
  ids.insert(ids.begin(), tokenizer().bos_id());
  return ids;
}

std::string streamed_text(std::vector<TokenId> ids) {
  std::erase_if(ids, [](TokenId id) { return tokenizer().is_special(id); });
  return tokenizer().decode(ids);
}

std::vector<TokenId> generated(const std::vector<TokenId>& prompt, int count) {
  return FakeAgent::expected_tokens(prompt, count, kFakeVocabSize);
}

// A message with these fields.
std::string generate(StreamId id, const std::string& fields) {
  return "GENERATE {\"stream_id\": " + std::to_string(id) + ", " + fields + "}";
}

std::string json_of(const std::vector<TokenId>& ids) { return nlohmann::json(ids).dump(); }

TEST(TextStreams, APromptOfTextGivesPiecesOfText) {
  Running running;
  Wire wire(running.server.port());
  const WireStream stream = wire.run(1, generate(1, R"("prompt": "Hé", "max_tokens": 80)"));
  EXPECT_EQ(stream.tokens, generated(with_bos(streamed_ids("Hé")), 80));
  EXPECT_EQ(stream.text, streamed_text(stream.tokens));
  EXPECT_EQ(stream.finish, "length");
  const WireStream bare =
      wire.run(1, generate(1, R"("prompt": "Hé", "add_special_tokens": false, "text": false)"));
  EXPECT_EQ(bare.tokens, generated(streamed_ids("Hé"), 32));
  EXPECT_TRUE(bare.pieces.empty());
  const WireStream ids =
      wire.run(1, generate(1, R"("prompt": [1, 2], "text": true, "skip_special_tokens": false)"));
  EXPECT_EQ(ids.text, tokenizer().decode(generated({1, 2}, 32)));
}

TEST(TextStreams, WhoAsksForNothingNewGetsNothingNew) {
  Running running;
  Wire wire(running.server.port());
  wire.send(generate(1, R"("prompt": [1, 2], "max_tokens": 1)"));
  const nlohmann::json entry = wire.next_of(1);
  std::set<std::string> keys;
  for (const auto& [key, value] : entry.items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"token", "stream_id", "logprob", "finish_reason",
                                         "top_logprobs", "is_msg"}));
}

TEST(TextStreams, PartsAreOnePrompt) {
  Running running;
  Wire wire(running.server.port());
  const WireStream stream =
      wire.run(1, generate(1, R"("prompt": ["ab", [7, 8], "c"], "max_tokens": 3)"));
  EXPECT_EQ(stream.tokens, generated(with_bos({'a', 'b', 7, 8, 'c'}), 3));
  const WireStream behind = wire.run(1, generate(1, R"("prompt": [[7], "c"], "max_tokens": 3)"));
  EXPECT_EQ(behind.tokens, generated({7, 'c'}, 3)) << "no BOS behind other tokens";
}

// Stop strings end the stream in the step that completes them, wherever tokens end.
TEST(TextStreams, AStopStringEndsTheStreamAndItsText) {
  Running running;
  Wire wire(running.server.port());
  const std::vector<TokenId> tokens = generated(with_bos({'x'}), 60);
  const std::string whole = streamed_text(tokens);
  const std::string stop = whole.substr(whole.find(' ', 40), 4);
  const std::size_t at = whole.find(stop);
  const std::string fields = R"("prompt": "x", "max_tokens": 60, "stop": ["never there", )" +
                             nlohmann::json(stop).dump() + "]";
  const WireStream stream = wire.run(1, generate(1, fields));
  EXPECT_EQ(stream.finish, "stop");
  EXPECT_EQ(stream.stop_text, stop);
  EXPECT_EQ(stream.text, whole.substr(0, at));
  EXPECT_LT(stream.tokens.size(), tokens.size());
  EXPECT_EQ(wire.run(1, generate(1, fields + R"(, "include_stop": true)")).text,
            whole.substr(0, at) + stop);
  const WireStream silent = wire.run(1, generate(1, fields + R"(, "text": false)"));
  EXPECT_TRUE(silent.pieces.empty());
  EXPECT_EQ(silent.stop_text, stop);
  EXPECT_EQ(silent.tokens, stream.tokens);
  const WireStream late = wire.run(1, generate(1, fields + R"(, "min_tokens": 60)"));
  EXPECT_EQ(late.text, whole) << "what comes before min_tokens does not count";

  for (const std::size_t num_resumed : {std::size_t{1}, stream.tokens.size() / 2}) {
    std::vector<TokenId> prompt = with_bos({'x'});
    prompt.insert(prompt.end(), tokens.begin(),
                  tokens.begin() + static_cast<std::ptrdiff_t>(num_resumed));
    const WireStream rest = wire.run(
        1, generate(1, "\"prompt\": " + json_of(prompt) + R"(, "text": true, "resumed": )" +
                           std::to_string(num_resumed) + fields.substr(fields.find(','))));
    const std::vector<std::string> pieces(
        stream.pieces.begin() + static_cast<std::ptrdiff_t>(num_resumed), stream.pieces.end());
    EXPECT_EQ(rest.pieces, pieces);
    EXPECT_EQ(rest.stop_text, stop);
  }
}

TEST(TextStreams, ScoresOfText) {
  Running running;
  Wire wire(running.server.port());
  const WireStream stream = wire.run(1, R"(SCORE {"stream_id": 1, "prompt": "a", "scored": "bé"})");
  EXPECT_EQ(stream.tokens, streamed_ids("bé"));
  EXPECT_EQ(stream.text, "bé");
  EXPECT_EQ(stream.pieces[1], "") << "half a character";
  const WireStream alone = wire.run(1, R"(SCORE {"stream_id": 1, "prompt": [], "scored": "b"})");
  EXPECT_EQ(alone.tokens, with_bos({'b'}));
  const WireStream ids =
      wire.run(1, R"(SCORE {"stream_id": 1, "prompt": ["a", [3]], "scored": [98], "text": true})");
  EXPECT_EQ(ids.text, "b");
}

TEST(TextStreams, TokenizeAndDetokenize) {
  Running running;
  Wire wire(running.server.port());
  EXPECT_EQ(wire.ask(1, R"(TOKENIZE {"stream_id": 1, "text": "hé"})")["tokens"],
            with_bos(streamed_ids("hé")));
  const nlohmann::json plain =
      wire.ask(1, R"(TOKENIZE {"stream_id": 1, "text": "hé", "add_special_tokens": false})");
  EXPECT_EQ(plain["tokens"], streamed_ids("hé"));
  EXPECT_TRUE(plain["is_msg"]);
  EXPECT_EQ(wire.ask(1, R"(DETOKENIZE {"stream_id": 1, "tokens": [998, 104, 195, 169, 195]})"),
            (nlohmann::json{{"stream_id", 1}, {"text", "hé\xEF\xBF\xBD"}, {"is_msg", true}}));
  EXPECT_EQ(wire.ask(1, R"(DETOKENIZE {"stream_id": 1, "tokens": [998, 104],
                                       "skip_special_tokens": false})")["text"],
            "<s>h");
  const nlohmann::json wrong = wire.ask(1, R"(DETOKENIZE {"stream_id": 1, "tokens": [5, 1000]})");
  EXPECT_EQ(wrong["error"],
            "tokens[1]: token id 1000 is not in the vocabulary, allowed are 0 to 999");
  EXPECT_TRUE(wrong["is_msg"]);
}

// Long texts are read on a thread of their own, in the order of the messages.
TEST(TextStreams, LongTextsAreRead) {
  Running running;
  Wire wire(running.server.port());
  const std::string text(200'000, 'x');
  wire.send(R"(TOKENIZE {"stream_id": 1, "text": ")" + text + "\"}");
  wire.send(R"(BUFFER {"stream_id": 2, "buffer": "a", "text": ")" + text + "\"}");
  wire.send(
      R"(GENERATE {"stream_id": 3, "prompt": [{"buffer": "a", "upto": 2}], "max_tokens": 1})");
  wire.send(R"(GENERATE {"stream_id": 4, "timeout_ms": 1, "prompt": ")" + text + "\"}");
  std::map<int, nlohmann::json> entries;
  while (entries.size() < 4) {
    nlohmann::json entry = wire.next();
    ASSERT_FALSE(entry.is_null());
    const int id = entry["stream_id"];
    if (!entry.contains("status")) entries[id] = std::move(entry);
  }
  EXPECT_EQ(entries[1]["tokens"].size(), 200'001U);
  EXPECT_EQ(entries[2]["length"], 200'001);
  EXPECT_EQ(entries[3].value("error", ""), "");
  EXPECT_EQ(entries[3]["token"], generated({tokenizer().bos_id(), 'x'}, 1)[0]);
  const std::string error = entries[4]["error"];
  EXPECT_TRUE(error.starts_with("prompt: has 200001") || error.starts_with("timeout: ")) << error;
}

TEST(TextStreams, SamplesShareAStream) {
  Running running;
  Wire wire(running.server.port());
  wire.send(generate(1, R"("prompt": "x", "max_tokens": 20, "n": 3, "notices": true, "seed": 9)"));
  auto samples = wire.collect_all(1, 3);
  ASSERT_EQ(samples.size(), 3U);
  for (const auto& [index, sample] : samples) {
    EXPECT_EQ(sample.tokens, generated(with_bos({'x'}), 20)) << index;
    EXPECT_EQ(sample.text, streamed_text(sample.tokens)) << index;
  }
  ASSERT_EQ(samples[0].notices.size(), 1U);
  EXPECT_EQ(samples[0].notices[0]["seed"], 9);
  EXPECT_EQ(wire.run(1, generate(1, R"("prompt": "x", "max_tokens": 1)")).error, "");
}

TEST(TextStreams, CancelEndsAllSamples) {
  Running running(endless_model());
  Wire wire(running.server.port());
  wire.send(generate(1, R"("prompt": "x", "max_tokens": 1000000, "n": 4)"));
  EXPECT_TRUE(wire.next_of(1).contains("token"));
  nlohmann::json again = wire.ask(1, R"(TOKENIZE {"stream_id": 1, "text": "x"})");
  while (!again["is_msg"]) again = wire.next_of(1);
  EXPECT_TRUE(again.value("error", "").starts_with("stream_id: 1 is a live stream")) << again;
  wire.send(R"(CANCEL {"stream_id": 1})");
  for (const auto& [index, sample] : wire.collect_all(1, 4)) {
    EXPECT_EQ(sample.error, "cancelled") << index;
  }
  running.wait_idle();
}

TEST(TextStreams, AcceptedSaysWhatTheServerChose) {
  Running running;
  Wire wire(running.server.port());
  wire.send(generate(1, R"("prompt": [1, 2, 3], "max_tokens": 1, "notices": true)"));
  const nlohmann::json accepted = wire.next_of(1);
  EXPECT_EQ(accepted["status"], "accepted");
  EXPECT_EQ(accepted["model"], "fake");
  EXPECT_EQ(accepted["num_prompt"], 3);
  EXPECT_LT(accepted["seed"], std::uint64_t{1} << 53);
  EXPECT_TRUE(wire.next_of(1).contains("token"));
}

TEST(Timeouts, EndAStreamThatRunsAndNoOther) {
  Running running(endless_model());
  Wire wire(running.server.port());
  wire.send(generate(1, R"("prompt": [1], "max_tokens": 1000000, "timeout_ms": 100)"));
  wire.send(generate(2, R"("prompt": [1], "max_tokens": 120, "timeout_ms": 86400000)"));
  wire.send(generate(3, R"("prompt": [1], "max_tokens": 120, "first_token_timeout_ms": 60000)"));
  wire.send(generate(4, R"("prompt": [1], "max_tokens": 1000000, "n": 2, "timeout_ms": 90)"));
  std::map<int, std::string> errors;
  std::map<int, int> num_tokens;
  int num_ends = 0;
  while (num_ends < 5) {
    const nlohmann::json entry = wire.next();
    ASSERT_FALSE(entry.is_null());
    const int id = entry["stream_id"];
    if (entry.contains("error")) errors[id * 10 + entry.value("index", 0)] = entry["error"];
    num_ends +=
        entry.contains("error") || entry.value("finish_reason", nlohmann::json()) == "length" ? 1
                                                                                              : 0;
    num_tokens[id] += entry.contains("token") ? 1 : 0;
  }
  EXPECT_EQ(errors, (std::map<int, std::string>{
                        {10, "timeout: the stream was not done within 100 ms (timeout_ms)"},
                        {40, "timeout: the stream was not done within 90 ms (timeout_ms)"},
                        {41, "timeout: the stream was not done within 90 ms (timeout_ms)"}}));
  EXPECT_EQ(num_tokens[2], 120);
  EXPECT_EQ(num_tokens[3], 120);
  EXPECT_EQ(wire.run(1, generate(1, R"("prompt": [1], "max_tokens": 1)")).tokens.size(), 1U);
  running.wait_idle();
}

TEST(Timeouts, CountWhileTheModelIsLoaded) {
  std::promise<void> gate;
  FakeModelOptions model;
  model.load_gate = gate.get_future().share();
  Running running(model);
  Wire wire(running.server.port());
  wire.send(generate(2, R"("prompt": "x", "max_tokens": 2)"));
  EXPECT_EQ(wire.run(1, generate(1, R"("prompt": "x", "first_token_timeout_ms": 30)")).error,
            "timeout: no token came within 30 ms (first_token_timeout_ms)");
  wire.send(generate(1, R"("prompt": [1], "timeout_ms": 20, "first_token_timeout_ms": 40000)"));
  EXPECT_EQ(wire.collect(1).error, "timeout: the stream was not done within 20 ms (timeout_ms)");
  gate.set_value();
  EXPECT_EQ(wire.collect(2).tokens, generated(with_bos({'x'}), 2));
}

TEST(BadInput, NamesTheFieldAndTheConnectionLives) {
  Running running;
  Wire wire(running.server.port());
  std::string long_text(600, 'x');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("prompt": "ab", "resumed": 4)", "resumed: is 4"},
      {R"("prompt": [1, 2], "resumed": 3)", "resumed: "},
      {R"("prompt": [{"buffer": "a"}])", "buffer: 'a' is unknown"},
      {R"("prompt": ["", ""], "add_special_tokens": false)", "prompt: is empty"},
      {R"("prompt": ["a", [1000]])", "prompt[2]: token id 1000 is not in the vocabulary"},
      {"\"prompt\": \"" + long_text + "\"", "prompt: has 601 tokens, allowed are at most 511"},
      {R"("prompt": "a", "n": 65)", "n: "},
      {R"("prompt": "a", "stop": ["", "a"])", "stop"},
      {R"("prompt": "a", "timeout_ms": 0)", "timeout_ms: "},
      {R"("prompt": ["a", 5])", "prompt[1]: "},
  };
  for (const auto& [fields, error] : cases) {
    EXPECT_EQ(wire.run(1, generate(1, fields)).error.substr(0, error.size()), error) << fields;
  }
  EXPECT_EQ(wire.run(1, generate(1, R"("prompt": "a", "max_tokens": 1)")).error, "");
}

TEST(BadInput, AModelWithoutATokenizerTakesTokens) {
  FakeModelOptions model;
  model.load_tokenizer = [] {
    return registry::LoadedTokenizer(Error{ErrorCode::kNotFound, "its weights are random"});
  };
  Running running(model);
  Wire wire(running.server.port());
  EXPECT_EQ(wire.run(1, generate(1, R"("prompt": "a")")).error,
            "prompt: is text, and this model has no tokenizer here (its weights are random); send "
            "token ids");
  for (const char* fields : {R"("prompt": [1], "text": true)", R"("prompt": [1], "stop": "a")"}) {
    EXPECT_NE(wire.run(1, generate(1, fields)).error.find("needs a tokenizer"), std::string::npos);
  }
  for (const char* message : {R"(TOKENIZE {"stream_id": 1, "text": "a"})",
                              R"(DETOKENIZE {"stream_id": 1, "tokens": [1]})",
                              R"(BUFFER {"stream_id": 1, "buffer": "a", "text": "a"})"}) {
    const nlohmann::json answer = wire.ask(1, message);
    EXPECT_TRUE(answer["is_msg"]);
    EXPECT_NE(answer.value("error", "").find("no tokenizer here"), std::string::npos) << answer;
  }
  EXPECT_EQ(wire.run(1, generate(1, R"("prompt": [1], "n": 2, "max_tokens": 1)")).error, "");
}

}  // namespace
}  // namespace lmtp::server
