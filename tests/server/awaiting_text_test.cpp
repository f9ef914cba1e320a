// What needs a tokenizer and finds its model not loaded, and what needs buffers that are not filled
// yet: the order of the messages holds, and nothing waits for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "eventually.h"
#include "fake_tokenizer.h"
#include "running_server.h"
#include "wire.h"

namespace lmtp::server {
namespace {

using lmtp::testing::FakeAgent;
using lmtp::testing::FakeFactory;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::make_fake_model;
using lmtp::testing::Running;
using lmtp::testing::Wire;
using lmtp::testing::WireStream;

constexpr TokenId kBos = kFakeVocabSize - 2;

std::vector<TokenId> awaited(const std::vector<TokenId>& prompt, int count) {
  return FakeAgent::expected_tokens(prompt, count, kFakeVocabSize);
}

// A server of any model: "one" and "two", each when its gate opens; everything else is unknown.
struct AutoServer {
  explicit AutoServer(registry::AutoOptions options = {}, ServerOptions server_options = {}) {
    const auto find = [this](const std::string& name) -> Result<registry::ServedModel> {
      if (name != "one" && name != "two") {
        return Error{ErrorCode::kNotFound, "'" + name + "' is unknown"};
      }
      FakeModelOptions model;
      model.load_gate = name == "one" ? gate_of_one : gate_of_two;
      return make_fake_model(name, model);
    };
    models = std::make_unique<registry::Registry>(std::make_unique<FakeFactory>(find), options);
    server_options.port = 0;
    server = std::make_unique<Server>(server_options, *models);
    EXPECT_TRUE(server->start().ok());
  }
  ~AutoServer() {
    open_one();
    open_two();
  }
  void open_one() { open(one, one_opened); }
  void open_two() { open(two, two_opened); }
  static void open(std::promise<void>& gate, bool& opened) {
    if (!std::exchange(opened, true)) gate.set_value();
  }

  std::promise<void> one;
  std::promise<void> two;
  bool one_opened = false;
  bool two_opened = false;
  std::shared_future<void> gate_of_one = one.get_future().share();
  std::shared_future<void> gate_of_two = two.get_future().share();
  std::unique_ptr<registry::Registry> models;
  std::unique_ptr<Server> server;
};

TEST(AwaitingText, IsToldOfTheLoadingAndThenDone) {
  AutoServer auto_server;
  Wire wire(auto_server.server->port());
  wire.send(R"(GENERATE {"stream_id": 1, "model": "one", "prompt": "ab", "max_tokens": 3,
                         "notices": true, "seed": 7})");
  wire.send(R"(TOKENIZE {"stream_id": 2, "model": "one", "text": "ab"})");
  for (const int id : {1, 2}) {
    nlohmann::json notice = wire.next();
    while (id == 2 && notice["stream_id"] == 1) notice = wire.next();  // that it has come further
    EXPECT_EQ(notice["status"], "loading");
    EXPECT_EQ(notice["stream_id"], id);
  }
  EXPECT_NE(wire.ask(3, R"(GENERATE {"stream_id": 3, "prompt": "x", "model": "none"})")["error"]
                .get<std::string>()
                .find("'none' is unknown"),
            std::string::npos);
  EXPECT_TRUE(wire.next_of(3)["is_msg"]) << "as of every model that is not there";
  EXPECT_NE(wire.run(1, R"(GENERATE {"stream_id": 1, "prompt": "x"})").error.find("live stream"),
            std::string::npos);
  auto_server.open_one();
  EXPECT_EQ(wire.next_of(2)["tokens"], (std::vector<TokenId>{kBos, 'a', 'b'}));
  const WireStream again =
      wire.run(2, R"(GENERATE {"stream_id": 2, "prompt": "ab", "max_tokens": 3})");
  EXPECT_EQ(again.tokens, awaited({kBos, 'a', 'b'}, 3)) << "without a name: the loaded one";
}

TEST(AwaitingText, CancelAndCloseFindItWhereverItWaits) {
  AutoServer auto_server;
  Wire wire(auto_server.server->port());
  {
    Wire gone(auto_server.server->port());
    gone.send(R"(GENERATE {"stream_id": 1, "model": "one", "prompt": "ab", "n": 8})");
    EXPECT_EQ(gone.next()["status"], "loading");
  }
  wire.send(R"(GENERATE {"stream_id": 1, "model": "one", "prompt": "ab"})");
  wire.send(R"(BUFFER {"stream_id": 2, "model": "one", "buffer": "a", "text": "ab"})");
  wire.send(R"(GENERATE {"stream_id": 3, "model": "one", "prompt": [{"buffer": "a"}, [5]]})");
  wire.send(R"(TOKENIZE {"stream_id": 4, "model": "one", "text": "ab"})");
  for (const int id : {1, 2, 3, 4}) {
    // Behind the BUFFER: with it, what waits for it finds none.
    const nlohmann::json entry = wire.ask(id, "CANCEL {\"stream_id\": " + std::to_string(id) + "}");
    EXPECT_EQ(entry["error"], id == 3
                                  ? "buffer: 'a' is unknown; allowed is one that BUFFER or into "
                                    "has made on this connection"
                                  : "cancelled");
    EXPECT_EQ(entry["is_msg"], id == 2 || id == 4);
  }
  wire.send(R"(BUFFER {"stream_id": 2, "model": "one", "buffer": "a", "text": "ab"})");
  wire.send(R"(GENERATE {"stream_id": 3, "model": "one", "prompt": [{"buffer": "a"}, [5]]})");
  EXPECT_EQ(wire.ask(3, R"(CANCEL {"stream_id": 3})")["error"], "cancelled");
  wire.send(R"(GENERATE {"stream_id": 5, "prompt": [{"buffer": "a"}], "timeout_ms": 20})");
  EXPECT_EQ(wire.next_of(5)["error"], "timeout: the stream was not done within 20 ms (timeout_ms)");
  auto_server.open_one();
  EXPECT_EQ(wire.next_of(2)["length"], 3);
}

TEST(AwaitingText, BuffersAreFilledInTheOrderOfTheMessages) {
  AutoServer auto_server;
  Wire wire(auto_server.server->port());
  // It concerns no buffer, and is not held up by what waits for one.
  wire.send(R"(GENERATE {"stream_id": 6, "model": "one", "prompt": [7], "max_tokens": 1})");
  while (wire.next().value("progress", 0) != 40) continue;  // one is being loaded, so two waits
  wire.send(R"(BUFFER {"stream_id": 1, "model": "two", "buffer": "a", "text": "ab"})");
  wire.send(
      R"(BUFFER {"stream_id": 2, "model": "one", "buffer": "a", "text": "c", "append": true})");
  wire.send(R"(GENERATE {"stream_id": 3, "model": "two", "prompt": [{"buffer": "a"}, "d"],
                         "max_tokens": 2, "into": "b"})");
  wire.send(R"(FREE {"buffer": "a"})");
  wire.send(R"(FREE {"buffer": "a", "stream_id": 4})");
  wire.send(R"(BUFFER {"stream_id": 5, "buffer": "a", "tokens": [1]})");
  auto_server.open_one();
  EXPECT_EQ(wire.next_of(6)["token"], awaited({7}, 1)[0]);
  auto_server.open_two();
  EXPECT_EQ(wire.next_of(1)["length"], 3);
  EXPECT_EQ(wire.next_of(2)["length"], 4);
  EXPECT_EQ(wire.next_of(4)["error"].get<std::string>().substr(0, 22), "buffer: 'a' is unknown");
  EXPECT_EQ(wire.next_of(5)["length"], 1);
  EXPECT_EQ(wire.collect(3).tokens, awaited({kBos, 'a', 'b', 'c', 'd'}, 2));
  const WireStream from_into = wire.run(
      7,
      R"(GENERATE {"stream_id": 7, "model": "two", "prompt": [{"buffer": "b"}], "max_tokens": 1})");
  EXPECT_EQ(from_into.tokens[0], awaited({kBos, 'a', 'b', 'c', 'd'}, 3)[2]);
}

TEST(AwaitingText, WhatWaitsIsBounded) {
  ServerOptions options;
  options.max_waiting_bytes = std::size_t{1} << 20;
  AutoServer auto_server({}, options);
  Wire wire(auto_server.server->port());
  const auto send = [](Wire& to, int id, std::size_t num_kib) {
    to.send("GENERATE {\"stream_id\": " + std::to_string(id) +
            ", \"model\": \"one\", \"prompt\": \"" + std::string(num_kib << 10, 'x') + "\"}");
  };
  for (int id = 0; id < 3; ++id) send(wire, id, 300);
  EXPECT_EQ(wire.next_of(2)["code"], "overloaded") << "three quarters are one connection's";
  for (int id = 3; id < 100; ++id) send(wire, id, 60);
  EXPECT_EQ(wire.next_of(99)["code"], "overloaded") << "and it has filled them";
  Wire another(auto_server.server->port());
  send(another, 1, 150);
  another.send(R"(GENERATE {"stream_id": 2, "model": "one", "prompt": "ab", "max_tokens": 3})");
  EXPECT_EQ(another.ask(1, R"(CANCEL {"stream_id": 1})")["error"], "cancelled") << "it waits";
  EXPECT_EQ(another.ask(2, R"(CANCEL {"stream_id": 2})")["error"], "cancelled");
  EXPECT_EQ(wire.ask(0, R"(CANCEL {"stream_id": 0})")["error"], "cancelled");
  send(wire, 0, 300);
  EXPECT_EQ(wire.ask(0, R"(CANCEL {"stream_id": 0})")["error"], "cancelled")
      << "what has ended takes nothing";
  wire.send(R"(BUFFER {"stream_id": 100, "model": "one", "buffer": "a", "text": "ab"})");
  for (int i = 0; i < 1024; ++i) wire.send(R"(FREE {"buffer": "b"})");
  EXPECT_EQ(wire.ask(7, R"(FREE {"stream_id": 7, "buffer": "b"})")["code"], "overloaded");
}

// Takes a long text for one token, and many tokens for a letter, once its gate is open.
class SlowTokenizer : public lmtp::testing::FakeTokenizer {
 public:
  SlowTokenizer(std::shared_future<void> gate, std::atomic<int>& num_begun)
      : FakeTokenizer(kFakeVocabSize, false), gate_(std::move(gate)), num_begun_(num_begun) {}
  Result<std::vector<TokenId>> encode(std::string_view text) const override {
    if (text.size() < 1000) return FakeTokenizer::encode(text);
    wait();
    return std::vector<TokenId>{'x'};
  }
  std::string decode(std::span<const TokenId> ids) const override {
    if (ids.size() < 1000) return FakeTokenizer::decode(ids);
    wait();
    return "x";
  }

 private:
  void wait() const {
    ++num_begun_;
    gate_.wait();
  }

  const std::shared_future<void> gate_;
  std::atomic<int>& num_begun_;
};

// A server of one io thread whose tokenizer is slow.
struct SlowServer {
  SlowServer() : running(model(), one_io_thread()) {}
  ~SlowServer() { open(); }
  FakeModelOptions model() {
    FakeModelOptions options;
    options.load_tokenizer = [this] {
      return registry::LoadedTokenizer(
          std::make_shared<const SlowTokenizer>(gate.get_future().share(), num_begun));
    };
    return options;
  }
  static ServerOptions one_io_thread() {
    ServerOptions options;
    options.num_io_threads = 1;
    return options;
  }
  void open() {
    if (!std::exchange(opened, true)) gate.set_value();
  }
  void wait_begun(int num) const {
    EXPECT_TRUE(lmtp::testing::eventually([&] { return num_begun >= num; }));
  }

  std::promise<void> gate;
  bool opened = false;
  std::atomic<int> num_begun = 0;
  Running running;
};

std::string long_text(StreamId id, const std::string& verb, const std::string& fields = {}) {
  return verb + " {\"stream_id\": " + std::to_string(id) + fields + ", \"" +
         (verb == "GENERATE" ? "prompt" : "text") + "\": \"" +
         std::string(std::size_t{70} << 10, 'x') + "\"}";
}

TEST(AwaitingText, WhatIsBeingEncodedEndsWhenItsClientOrItsTimeSays) {
  SlowServer slow;
  Wire wire(slow.running.server.port());
  wire.send(long_text(1, "GENERATE"));
  slow.wait_begun(1);
  wire.send(long_text(2, "GENERATE", R"(, "timeout_ms": 20)"));
  EXPECT_EQ(wire.next_of(2)["error"], "timeout: the stream was not done within 20 ms (timeout_ms)");
  wire.send(long_text(3, "TOKENIZE"));
  EXPECT_EQ(wire.ask(3, R"(CANCEL {"stream_id": 3})")["error"], "cancelled");
  wire.send(long_text(4, "BUFFER", R"(, "buffer": "a")"));
  wire.send(R"(GENERATE {"stream_id": 5, "prompt": [{"buffer": "a"}, [5]]})");
  EXPECT_EQ(wire.ask(4, R"(CANCEL {"stream_id": 4})")["error"], "cancelled");
  EXPECT_EQ(wire.next_of(5)["error"].get<std::string>().rfind("buffer: 'a' is unknown", 0), 0U);
  EXPECT_EQ(wire.ask(1, R"(CANCEL {"stream_id": 1})")["error"], "cancelled");
  // Its id is another's, which waits for the encoder as well: what comes of the first is not its.
  wire.send(long_text(1, "GENERATE", R"(, "max_tokens": 2)"));
  slow.open();
  EXPECT_EQ(wire.collect(1).tokens, awaited({kBos, 'x'}, 2));
  EXPECT_EQ(wire.ask(6, long_text(6, "TOKENIZE"))["tokens"], (std::vector<TokenId>{kBos, 'x'}));
  EXPECT_EQ(slow.num_begun, 3) << "what had not begun is not encoded";
}

TEST(AwaitingText, ALongListOfIdsDoesNotHoldUpOthers) {
  SlowServer slow;
  Wire wire(slow.running.server.port());
  wire.send(R"(DETOKENIZE {"stream_id": 1, "tokens": )" +
            nlohmann::json(std::vector<TokenId>(20'000, 'a')).dump() + "}");
  slow.wait_begun(1);
  Wire other(slow.running.server.port());
  const WireStream stream =
      other.run(1, R"(GENERATE {"stream_id": 1, "prompt": "ab", "max_tokens": 3})");
  EXPECT_EQ(stream.tokens, awaited({kBos, 'a', 'b'}, 3));
  slow.open();
  EXPECT_EQ(wire.next_of(1)["text"], "x");
}

TEST(AwaitingText, ALongTextIsForTheModelThatWasLoadedWhenItCame) {
  std::promise<void> gate;
  std::atomic<int> num_begun = 0;
  const auto find = [opened = gate.get_future().share(),
                     &num_begun](const std::string& name) -> Result<registry::ServedModel> {
    FakeModelOptions model;
    model.load_tokenizer = [opened, &num_begun] {
      return registry::LoadedTokenizer(std::make_shared<const SlowTokenizer>(opened, num_begun));
    };
    return make_fake_model(name, model);
  };
  registry::AutoOptions options;
  options.max_models = 1;
  registry::Registry models(std::make_unique<FakeFactory>(find), options);
  ServerOptions server_options;
  server_options.port = 0;
  Server server(server_options, models);
  ASSERT_TRUE(server.start().ok());
  Wire wire(server.port());
  const auto load = [&](int id, const std::string& name) {
    wire.send("GENERATE {\"stream_id\": " + std::to_string(id) + ", \"model\": \"" + name +
              "\", \"prompt\": [5], \"max_tokens\": 1}");
    while (!wire.next_of(id).contains("token")) continue;
  };
  load(1, "one");
  wire.send(R"(GENERATE {"stream_id": 2, "max_tokens": 1, "notices": true, "prompt": ")" +
            std::string(std::size_t{70} << 10, 'x') + "\"}");
  load(3, "two");
  gate.set_value();
  const nlohmann::json notice = wire.next_of(2);
  EXPECT_EQ(notice["status"], "accepted");
  EXPECT_EQ(notice["model"], "one");
}

TEST(AwaitingText, AFailedLoadAnswersEveryKind) {
  registry::AutoOptions options;
  FakeModelOptions model;
  auto models = std::make_unique<registry::Registry>(
      std::make_unique<FakeFactory>([](const std::string& name) -> Result<registry::ServedModel> {
        auto served = make_fake_model(name);
        served.load = [](auto, const auto&) -> Result<std::unique_ptr<scheduler::ModelAgent>> {
          return Error{ErrorCode::kInternal, "the weights are broken"};
        };
        return served;
      }),
      options);
  ServerOptions server_options;
  server_options.port = 0;
  Server server(server_options, *models);
  ASSERT_TRUE(server.start().ok());
  Wire wire(server.port());
  const std::string error = "model: the weights are broken";
  for (const bool is_msg : {false, true}) {
    const nlohmann::json entry =
        is_msg ? wire.next_of(1)
               : wire.ask(1, R"(GENERATE {"stream_id": 1, "model": "m", "prompt": "x", "n": 2})");
    EXPECT_EQ(entry["error"], error);
    EXPECT_EQ(entry["is_msg"], is_msg);
  }
  for (const char* text :
       {R"(TOKENIZE {"stream_id": 2, "model": "m", "text": "x"})",
        R"(DETOKENIZE {"stream_id": 2, "model": "m", "tokens": [1]})",
        R"(BUFFER {"stream_id": 2, "model": "m", "buffer": "a", "text": "x"})"}) {
    const nlohmann::json entry = wire.ask(2, text);
    EXPECT_EQ(entry["error"], error);
    EXPECT_TRUE(entry["is_msg"]);
  }
}

TEST(BuffersOfAConnection, AFloodIsRefusedAndTheConnectionLives) {
  ServerOptions options;
  options.max_buffer_bytes = 4000;
  Running running({}, options);
  Wire wire(running.server.port());
  const std::string tokens = nlohmann::json(std::vector<TokenId>(100, 5)).dump();
  int num_kept = 0;
  for (int i = 0; i < 300; ++i) {
    const nlohmann::json answer =
        wire.ask(i, "BUFFER {\"stream_id\": " + std::to_string(i) + ", \"buffer\": \"a\", " +
                        "\"append\": true, \"tokens\": " + tokens + "}");
    num_kept += answer.contains("length") ? 1 : 0;
    if (!answer.contains("length")) {
      EXPECT_EQ(answer["error"].get<std::string>().rfind("buffer: full: ", 0), 0U);
    }
  }
  EXPECT_EQ(num_kept, 10);
  // One that is longer than the context is refused before it is copied 256 times.
  std::string parts = R"({"buffer": "a"})";
  for (int i = 1; i < 256; ++i) parts += R"(, {"buffer": "a"})";
  EXPECT_EQ(wire.run(1, "GENERATE {\"stream_id\": 1, \"prompt\": [" + parts + "]}").error,
            "prompt: has 256000 tokens, allowed are at most 512 (the context)");
  EXPECT_EQ(
      wire.run(1, R"(GENERATE {"stream_id": 1, "prompt": [{"buffer": "a", "upto": 1001}]})").error,
      "prompt[0]: upto is 1001, allowed are 0 to 1000, the tokens of 'a'");
  const WireStream stream = wire.run(1, R"(GENERATE {"stream_id": 1, "max_tokens": 2, "into": "b",
                                            "prompt": [{"buffer": "a", "upto": 2}, [1]]})");
  EXPECT_EQ(stream.tokens, awaited({5, 5, 1}, 2));
  EXPECT_EQ(wire.next()["error"].get<std::string>().rfind("buffer: full: ", 0), 0U)
      << "into finds no place either";
}

TEST(BuffersOfAConnection, IntoKeepsWhateverEndedTheStream) {
  Running running(lmtp::testing::endless_model());
  Wire wire(running.server.port());
  const auto length = [&] {
    return wire.ask(9, R"(BUFFER {"stream_id": 9, "buffer": "b", "append": true, "tokens": [0]})")
               ["length"]
                   .get<std::size_t>() -
           1;
  };
  wire.send(R"(GENERATE {"stream_id": 1, "prompt": [1], "max_tokens": 1000000, "into": "b"})");
  EXPECT_TRUE(wire.next_of(1).contains("token"));
  wire.send(R"(CANCEL {"stream_id": 1})");
  const WireStream cancelled = wire.collect(1);
  EXPECT_EQ(cancelled.error, "cancelled");
  EXPECT_EQ(length(), 1 + 1 + cancelled.tokens.size());
  wire.send(R"(GENERATE {"stream_id": 1, "prompt": [1, 2], "max_tokens": 1000000, "into": "b",
                         "timeout_ms": 30})");
  const WireStream late = wire.collect(1);
  EXPECT_EQ(late.error.rfind("timeout: ", 0), 0U);
  EXPECT_EQ(length(), 2 + late.tokens.size());
  EXPECT_EQ(wire.ask(9, R"(FREE {"stream_id": 9, "buffer": "b"})")["length"], 0);
}

}  // namespace
}  // namespace lmtp::server
