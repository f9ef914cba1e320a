// The way of a message without its socket: who is answered what, and as which kind of message.
#include "lmtp/dispatcher.h"
#include "lmtp/constraint/grammar_compiler.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "fake_model.h"
#include "lmtp/model_info.h"
#include "recording_sink.h"

namespace lmtp::server {
namespace {

struct Fixture : ::testing::Test {
  Fixture()
      : models(lmtp::testing::make_fake_models()),
        dispatcher(*models, "1.2.3", connections, controllers),
        peer(77, limits) {
    peer.sink = sink;
  }

  Answers handle(const std::string& text) {
    Answers answers;
    dispatcher.handle(text, peer, answers);
    return answers;
  }

  std::shared_ptr<lmtp::testing::RecordingSink> sink =
      std::make_shared<lmtp::testing::RecordingSink>();
  std::unique_ptr<registry::Registry> models;
  ConnectionRegistry connections;
  ControllerRules controllers;
  Dispatcher dispatcher;
  OperationLimits limits{ServerOptions()};
  Peer peer;
};

using DispatcherTest = Fixture;

TEST_F(DispatcherTest, AGenerateReachesTheEngine) {
  EXPECT_EQ(handle(R"(GENERATE {"stream_id": 5, "prompt": [1, 2], "max_tokens": 3})"), Answers{});
  EXPECT_TRUE(peer.streams.contains(5));
  EXPECT_EQ(sink->wait_done(5).tokens,
            lmtp::testing::FakeAgent::expected_tokens({1, 2}, 3, lmtp::testing::kFakeVocabSize));
}

TEST_F(DispatcherTest, AnswersByName) {
  for (const char* name : {"", R"(, "model": null)", R"(, "model": "")", R"(, "model": "fake")",
                           R"(, "model": "/models/fake")"}) {
    const Answers answers = handle(std::string(R"(MODEL_INFO {"stream_id": 1)") + name + "}");
    ASSERT_EQ(answers.size(), 1U) << name;
    EXPECT_EQ(answers[0].rfind(R"(MSG [{"stream_id": 1, "model_info": {"model": ")", 0), 0U);
  }
}

TEST_F(DispatcherTest, AnUnknownModelIsToldToTheStreamAndToTheConnection) {
  const Answers answers = handle(R"(GENERATE {"stream_id": 5, "prompt": [1], "model": "other"})");
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].rfind(R"(TOKEN [{"stream_id": 5, "error": "model: )", 0), 0U) << answers[0];
  EXPECT_EQ(answers[1].rfind(R"(MSG [{"stream_id": 5, "error": "model: )", 0), 0U) << answers[1];
  EXPECT_EQ(peer.streams.size(), 0U);

  const Answers info = handle(R"(MODEL_INFO {"stream_id": 6, "model": "other"})");
  ASSERT_EQ(info.size(), 1U);
  EXPECT_EQ(info[0].rfind(R"(MSG [{"stream_id": 6, "error": "model: )", 0), 0U) << info[0];
}

TEST_F(DispatcherTest, FaultsThatOnlyTheModelShowsEndTheStream) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("prompt": [1, 1000])", "prompt"},
      {R"("prompt": [1], "logit_bias": {"1000": 1})", "logit_bias"},
      {"\"prompt\": [0" +
           [] {
             std::string zeros;
             for (int i = 1; i < lmtp::testing::kFakeContext; ++i) zeros += ",0";
             return zeros;
           }() +
           "]",
       "prompt"},
  };
  for (const auto& [fields, field] : cases) {
    const Answers answers = handle("GENERATE {\"stream_id\": 5, " + fields + "}");
    ASSERT_EQ(answers.size(), 1U) << fields;
    EXPECT_EQ(answers[0].rfind(R"(TOKEN [{"stream_id": 5, "error": ")" + field, 0), 0U)
        << answers[0];
  }
  EXPECT_EQ(peer.streams.size(), 0U);
}

TEST_F(DispatcherTest, ErrorsGoToTheStreamWhereThereIsOne) {
  const auto kind = [this](const std::string& text) {
    const Answers answers = handle(text);
    EXPECT_EQ(answers.size(), 1U) << text;
    return answers.empty() ? "" : answers[0].substr(0, answers[0].find(','));
  };
  EXPECT_EQ(kind(R"(GENERATE {"stream_id": 5})"), R"(TOKEN [{"stream_id": 5)");
  EXPECT_EQ(kind(R"(SCORE {"stream_id": 5})"), R"(TOKEN [{"stream_id": 5)");
  EXPECT_EQ(kind(R"(GENERATE {"prompt": [1]})"), R"(MSG [{"stream_id": null)");
  EXPECT_EQ(kind("GENERATE"), R"(MSG [{"stream_id": null)");
  EXPECT_EQ(kind(""), R"(MSG [{"stream_id": null)");
  EXPECT_EQ(kind(R"(MODEL_INFO {"stream_id": 5, "model": 1})"), R"(MSG [{"stream_id": 5)");
  EXPECT_EQ(kind(R"(NONSENSE {"stream_id": 5})"), R"(TOKEN [{"stream_id": 5)");
  EXPECT_EQ(kind("NONSENSE"), R"(MSG [{"stream_id": null)");

  Answers binary;
  Dispatcher::handle_binary(binary);
  ASSERT_EQ(binary.size(), 1U);
  EXPECT_EQ(binary[0].rfind(R"(MSG [{"stream_id": null, "error": "frame: )", 0), 0U);
}

// A model that is still loading keeps its streams live for as long as a test needs.
struct LoadingTest : ::testing::Test {
  LoadingTest() : peer(78, limits) {
    lmtp::testing::FakeModelOptions options;
    options.load_gate = gate.get_future().share();
    models = lmtp::testing::make_fake_models(options);
    dispatcher = std::make_unique<Dispatcher>(*models, "1.2.3", connections, controllers);
    peer.sink = sink;
  }
  ~LoadingTest() override { open_gate(); }

  void open_gate() {
    if (!std::exchange(opened, true)) gate.set_value();
  }
  Answers handle(const std::string& text) {
    Answers answers;
    dispatcher->handle(text, peer, answers);
    return answers;
  }

  std::promise<void> gate;
  bool opened = false;
  std::shared_ptr<lmtp::testing::RecordingSink> sink =
      std::make_shared<lmtp::testing::RecordingSink>();
  std::unique_ptr<registry::Registry> models;
  ConnectionRegistry connections;
  ControllerRules controllers;
  std::unique_ptr<Dispatcher> dispatcher;
  OperationLimits limits{ServerOptions()};
  Peer peer;
};

TEST_F(LoadingTest, ALiveStreamIdIsRefusedAndTheLiveStreamGoesOn) {
  EXPECT_EQ(handle(R"(GENERATE {"stream_id": 5, "prompt": [1], "max_tokens": 2})"), Answers{});
  const Answers answers = handle(R"(SCORE {"stream_id": 5, "prompt": [1], "scored": [2]})");
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].rfind(R"(TOKEN [{"stream_id": 5, "error": "stream_id: 5 is a live)", 0), 0U);
  // A verb of the future about a live stream must not seem to end it.
  EXPECT_EQ(handle(R"(PAUSE {"stream_id": 5})")[0].rfind(R"(MSG [{"stream_id": 5)", 0), 0U);
  open_gate();
  EXPECT_EQ(sink->wait_done(5).tokens.size(), 2U);
}

TEST_F(LoadingTest, CancelEndsTheStreamAndForgivesUnknownIds) {
  handle(R"(GENERATE {"stream_id": 5, "prompt": [1]})");
  EXPECT_EQ(handle(R"(CANCEL {"stream_id": 6})"), Answers{});
  EXPECT_EQ(handle(R"(CANCEL {"stream_id": 5})"), Answers{});
  EXPECT_EQ(handle(R"(CANCEL {"stream_id": 5})"), Answers{});
  EXPECT_EQ(sink->wait_done(5).error, "cancelled");
}

TEST(ModelInfo, RepeatsNoPathWhereTheModelHasANameOfItsOwn) {
  registry::ModelStatus status;
  status.description.name = "shown";
  status.adapters = {{"tales", "/adapters/tales"}};
  const auto told = [&](const std::string& asked) {
    const std::string info = model_info_json(status, asked, {});
    const std::size_t begin = info.find("\"model\": \"") + 10;
    return info.substr(begin, info.find('"', begin) - begin);
  };
  EXPECT_EQ(told(""), "shown");
  EXPECT_EQ(told("/secret/model"), "/secret/model");
  status.description.hides_path = true;
  EXPECT_EQ(told("/secret/model"), "shown");
  EXPECT_EQ(told("tales"), "tales");
}

TEST_F(LoadingTest, ModelInfoIsAnsweredAtOnceWithTheState) {
  const std::string loading = handle(R"(MODEL_INFO {"stream_id": 1})").at(0);
  EXPECT_NE(loading.find(R"("state": "loading")"), std::string::npos) << loading;
  EXPECT_NE(loading.find(R"("num_parameters": null)"), std::string::npos) << loading;
  open_gate();
  handle(R"(GENERATE {"stream_id": 2, "prompt": [1], "max_tokens": 1})");
  sink->wait_done(2);
  const std::string ready = handle(R"(MODEL_INFO {"stream_id": 1, "model": "/models/fake"})").at(0);
  for (const char* part : {R"("model": "/models/fake")",
                           R"("model_type": "fake_type")",
                           R"("architecture": "FakeForCausalLM")",
                           R"x("constructor": "make_fake_models(\"fake\")")x",
                           R"("tokenizer": "/models/fake")",
                           R"("vocab_size": 1000)",
                           R"("context_length": 512)",
                           R"("eos_token_ids": [])",
                           R"("answer_end_token_ids": [)",
                           R"("dtype": "none")",
                           R"("device": "cpu")",
                           R"("num_parameters": 0)",
                           R"("state": "ready")",
                           R"("extensions": ["CANCEL")",
                           R"("server": "lmtp-serve/1.2.3")",
                           R"("num_tokens_computed": 1)",
                           R"("num_cached_tokens": 0)",
                           R"("num_partial_hits": 0)",
                           R"("num_steps": 1)",
                           R"("num_generated_tokens": 1)",
                           R"("num_blocks_pinned": 0)"}) {
    EXPECT_NE(ready.find(part), std::string::npos) << part << " in " << ready;
  }
}

TEST_F(LoadingTest, WhatIsOverTheLimitIsRefused) {
  for (int i = 0; i < 1024; ++i) {
    handle("GENERATE {\"stream_id\": " + std::to_string(i) + ", \"prompt\": [1]}");
  }
  // By the engine's thread or, where that has not yet taken the others in, at once.
  const Answers answers = handle(R"(GENERATE {"stream_id": 5000, "prompt": [1]})");
  const std::string error = answers.empty() ? sink->wait_done(5000).error : answers[0];
  EXPECT_NE(error.find("overloaded"), std::string::npos) << error;
}

// A server of any model: "one" and "two" are there; everything else is unknown.
struct AutoTest : ::testing::Test {
  AutoTest() : peer(79, limits) {
    auto factory = std::make_unique<lmtp::testing::FakeFactory>(
        [](const std::string& name) -> Result<registry::ServedModel> {
          if (name == "one" || name == "two") return lmtp::testing::fake_served_model(name);
          return Error{ErrorCode::kInternal, "'" + name + "' is unknown"};
        });
    models = std::make_unique<registry::Registry>(std::move(factory), registry::AutoOptions{});
    dispatcher = std::make_unique<Dispatcher>(*models, "1.2.3", connections, controllers);
    peer.sink = sink;
    peer.send_later = [this](std::string message) { late.set_value(std::move(message)); };
  }

  Answers handle(const std::string& text) {
    Answers answers;
    dispatcher->handle(text, peer, answers);
    return answers;
  }
  // What comes to a question that nothing answers at once.
  std::string handle_late(const std::string& text) {
    late = {};
    EXPECT_EQ(handle(text), Answers{});
    return late.get_future().get();
  }

  std::promise<std::string> late;
  std::shared_ptr<lmtp::testing::RecordingSink> sink =
      std::make_shared<lmtp::testing::RecordingSink>();
  std::unique_ptr<registry::Registry> models;
  ConnectionRegistry connections;
  ControllerRules controllers;
  std::unique_ptr<Dispatcher> dispatcher;
  OperationLimits limits{ServerOptions()};
  Peer peer;
};

TEST_F(AutoTest, ModelInfoOfWhatIsNotLoadedComesLaterAndLoadsNothing) {
  const std::string info = handle_late(R"(MODEL_INFO {"stream_id": 1, "model": "one"})");
  const std::string grammar = constraint::grammar_support() ? R"(, "GRAMMAR")" : "";
  const std::string expected =
      R"(MSG [{"stream_id": 1, "model_info": {"model": "one", "model_type": "fake_type", )"
      R"x("architecture": "FakeForCausalLM", "constructor": "make_fake_models(\"one\")", )x"
      R"("tokenizer": "/models/one", "vocab_size": 1000, "context_length": 512, )"
      R"("max_input_tokens": 511, "max_total_tokens": 512, )"
      R"("eos_token_ids": [], "answer_end_token_ids": null, "tool_call_format": null, )"
      R"("dtype": "none", )"
      R"("kv_cache_dtype": null, "device": "cpu", )"
      R"("num_parameters": null, )"
      R"("state": "unloaded", "progress": 0, "server": "lmtp-serve/1.2.3", )"
      R"("lmtp": "1.1", "extensions": ["CANCEL", "LOADING", "TEXT", "BUFFERS", "NOTICES", )"
      R"("ERRORS", "SAMPLES", "MASK", "CHAT", "PARSED", "CANDIDATES", "DECIDE", "SALT", "FORK")" +
      grammar +
      R"(], "adapters": [], "numerics": null, )"
      R"("stats": {"num_steps": 0, )";
  EXPECT_EQ(info.substr(0, expected.size()), expected);
  EXPECT_TRUE(models->list().empty());
  EXPECT_EQ(
      handle_late(R"(MODEL_INFO {"stream_id": 1, "model": "three"})")
          .rfind(R"(MSG [{"stream_id": 1, "error": "model: 'three' is unknown", "code": )", 0),
      0U);
}

TEST_F(AutoTest, WhereNoModelIsNamedAndNoneIsLoadedBothAreTold) {
  const Answers answers = handle(R"(GENERATE {"stream_id": 5, "prompt": [1]})");
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].rfind(R"(TOKEN [{"stream_id": 5, "error": "model: is missing)", 0), 0U);
  EXPECT_EQ(answers[1].rfind(R"(MSG [{"stream_id": 5, "error": "model: is missing)", 0), 0U);
  const Answers info = handle(R"(MODEL_INFO {"stream_id": 6})");
  ASSERT_EQ(info.size(), 1U);
  EXPECT_EQ(info[0].rfind(R"(MSG [{"stream_id": 6, "error": "model: is missing)", 0), 0U);
}

TEST_F(AutoTest, StreamsOfSeveralModelsShareAConnection) {
  EXPECT_EQ(handle(R"(GENERATE {"stream_id": 1, "prompt": [1], "model": "one"})"), Answers{});
  EXPECT_EQ(handle(R"(SCORE {"stream_id": 2, "prompt": [], "scored": [3], "model": "two"})"),
            Answers{});
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(sink->wait_done(2).tokens, std::vector<TokenId>{3});
  EXPECT_EQ(handle(R"(GENERATE {"stream_id": 3, "prompt": [1], "model": "three"})"), Answers{});
  EXPECT_EQ(sink->wait_done(3).error, "model: 'three' is unknown");
  EXPECT_TRUE(sink->wait_done(3).model_failed);
  EXPECT_EQ(models->refusals().count(ErrorCode::kInternal), 1U) << "no engine had it";
}

TEST_F(AutoTest, AStreamThatWaitsCanBeCancelled) {
  handle(R"(GENERATE {"stream_id": 1, "prompt": [1], "model": "one", "max_tokens": 500})");
  handle(R"(CANCEL {"stream_id": 1})");
  EXPECT_EQ(sink->wait_done(1).num_ends, 1);
}

TEST_F(DispatcherTest, UnknownKeysAreLogged) {
  ::testing::internal::CaptureStderr();
  handle(R"(GENERATE {"stream_id": 1, "prompt": [1], "max_tokens": 1, "my_key": "a value"})");
  sink->wait_done(1);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find(": ignored unknown keys: 'my_key'\n"), std::string::npos) << log;
}

class DeafCanceller : public registry::StreamCanceller {
 public:
  void cancel(StreamKey) override {}
};

TEST(AppendEvents, GroupsOneStepIntoOneMessageOfEachKind) {
  OperationLimits limits{ServerOptions()};
  Peer peer(1, limits);
  StreamTable& streams = peer.streams;
  for (const StreamId id : {1, 2, 3, 4, 5}) streams.add(id, std::make_shared<DeafCanceller>(), "");
  std::vector<StreamEvent> events;
  events.emplace_back(LoadingNotice{4, "m", 50});
  events.emplace_back(TokenEvent{1, 10, -1.0F, FinishReason::kNone, {}});
  events.emplace_back(TokenEvent{2, 20, -1.0F, FinishReason::kStop, {}});
  events.emplace_back(StreamError{3, {ErrorCode::kCancelled, "cancelled"}});
  events.emplace_back(
      StreamError{5, {ErrorCode::kNotFound, "model: is not there"}, /*no_model=*/true});
  events.emplace_back(TokenEvent{9, 90, -1.0F, FinishReason::kNone, {}});
  std::vector<std::string> messages;
  append_events(events, peer, messages);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[0],
            R"(MSG [{"stream_id": 4, "status": "loading", "model": "m", "progress": 50}])");
  EXPECT_EQ(messages[1],
            R"(TOKEN [{"token": 10, "stream_id": 1, "logprob": -1.0, "finish_reason": null}, )"
            R"({"token": 20, "stream_id": 2, "logprob": -1.0, "finish_reason": "stop"}, )"
            R"({"stream_id": 3, "error": "cancelled", "code": "cancelled", "retryable": false}, )"
            R"({"stream_id": 5, "error": "model: is not there", "code": "unknown_model", )"
            R"("retryable": false}])");
  EXPECT_EQ(messages[2], R"(MSG [{"stream_id": 5, "error": "model: is not there", )"
                         R"("code": "unknown_model", "retryable": false}])");
  EXPECT_TRUE(streams.contains(1));
  EXPECT_FALSE(streams.contains(2)) << "it has finished";
  EXPECT_FALSE(streams.contains(3)) << "it has failed";
  EXPECT_FALSE(streams.contains(5)) << "its model has failed";
}

}  // namespace
}  // namespace lmtp::server
