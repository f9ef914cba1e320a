// Bodies of requests: where they are read, and what is said where too much waits.
#include "generation/read_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "context.h"
#include "fake_model.h"
#include "http_client.h"
#include "running_server.h"

namespace lmtp::server {
namespace {

using lmtp::testing::http_post;
using lmtp::testing::Running;
using ::testing::HasSubstr;

std::string long_body(std::size_t num_bytes = 2 * kEncodedAtOnceMax) {
  return std::string(num_bytes, ' ');
}

// Keeps what is posted for the test's thread, which is the strand.
class Kept : public HttpResponder {
 public:
  void send(HttpResponse response) override { sent = std::move(response); }
  void begin(HttpResponse /*head*/) override {}
  void write(std::string_view /*piece*/) override {}
  void end() override {}
  void on_gone(std::function<void()> /*callback*/) override {}
  void on_silence(std::chrono::milliseconds /*interval*/,
                  std::function<void()> /*callback*/) override {}
  void post(std::function<void()> work) override { posted.set_value(std::move(work)); }
  std::shared_ptr<Mailroom> mailroom() override { return nullptr; }
  ConnectionId id() const override { return 1; }
  std::string begin_id(std::string_view prefix) override { return std::string(prefix); }
  std::shared_ptr<const Caller> caller() const override { return nullptr; }
  bool others_connected() override { return false; }

  HttpResponse sent;
  std::promise<std::function<void()>> posted;
};

struct ReadBody : ::testing::Test {
  void SetUp() override {
    options.max_waiting_bytes = 1 << 20;
    models = lmtp::testing::make_fake_models({});
    context = std::make_shared<ServerContext>(options, *models);
    context->generation.encoder.start();
  }
  void TearDown() override { context->generation.encoder.stop(); }

  void read(std::string body, std::function<std::function<void()>(HttpRequest)> how) const {
    HttpRequest request;
    request.path = "/v1/completions";
    request.body = std::move(body);
    read_body(*context, std::move(request), responder, std::move(how));
  }
  std::function<void()> take_posted() const { return responder->posted.get_future().get(); }

  ServerOptions options;
  std::unique_ptr<registry::Registry> models;
  std::shared_ptr<ServerContext> context;
  const std::shared_ptr<Kept> responder = std::make_shared<Kept>();
};

TEST_F(ReadBody, ShortOnesWhereTheyCame) {
  std::thread::id reader;
  bool answered = false;
  read("{}", [&](const HttpRequest& request) -> std::function<void()> {
    EXPECT_EQ(request.body, "{}");
    reader = std::this_thread::get_id();
    return [&] { answered = true; };
  });
  EXPECT_EQ(reader, std::this_thread::get_id());
  EXPECT_TRUE(answered);
}

TEST_F(ReadBody, LongOnesOnTheEncodersThreadAndTheirAnswerOnTheStrand) {
  std::thread::id reader;
  bool answered = false;
  read(long_body(), [&](const HttpRequest& request) -> std::function<void()> {
    EXPECT_EQ(request.body, long_body());
    reader = std::this_thread::get_id();
    return [&] { answered = true; };
  });
  const auto answer = take_posted();
  EXPECT_NE(reader, std::this_thread::get_id());
  EXPECT_FALSE(answered);
  answer();
  EXPECT_TRUE(answered);
}

TEST_F(ReadBody, WhatWaitsIsCountedUntilItIsRead) {
  std::promise<void> gate;
  read(long_body(1 << 19), [&](const HttpRequest&) -> std::function<void()> {
    gate.get_future().wait();
    return [] {};
  });
  const auto other = std::make_shared<Kept>();
  HttpRequest request;
  request.path = "/v1/completions";
  request.body = long_body((1 << 19) + 1);
  const auto never = [](const HttpRequest&) -> std::function<void()> {
    ADD_FAILURE();
    return [] {};
  };
  read_body(*context, request, other, never);
  EXPECT_EQ(other->sent.status, 429);
  EXPECT_THAT(other->sent.body, HasSubstr("long bodies wait to be read"));
  gate.set_value();
  take_posted();
  read_body(*context, request, other, [](const HttpRequest&) { return [] {}; });
  EXPECT_TRUE(other->posted.get_future().get());
}

TEST_F(ReadBody, MemoryThatRunsOutIsAnAnswer) {
  read(long_body(), [](const HttpRequest&) -> std::function<void()> { throw std::bad_alloc(); });
  take_posted()();
  EXPECT_EQ(responder->sent.status, 503);
}

// Over a socket, in the form of each API.
TEST(LongBodies, AreAnsweredAndRefusedAsShortOnes) {
  ServerOptions options;
  options.max_waiting_bytes = 300'000;
  const Running running({}, options);
  const auto post = [&](const std::string& path, const std::string& body) {
    return http_post(running.server.port(), path, body);
  };
  const std::string fits = long_body(200'000);
  const std::string much = long_body(400'000);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": [3, 7], "max_tokens": 2})" + fits).status, 200);
  EXPECT_EQ(post("/tokenize", R"({"inputs": "a"})" + fits).status, 200);
  EXPECT_EQ(post("/tokenize", R"({"prompt": "a"})" + fits).status, 200);
  EXPECT_EQ(post("/invocations", R"({"inputs": "a"})" + fits).status, 200);
  const auto broken = post("/v1/completions", fits + "{");
  EXPECT_EQ(broken.status, 400);
  EXPECT_THAT(broken.body, HasSubstr(R"("type")"));
  const auto openai = post("/v1/completions", R"({"prompt": [3, 7]})" + much);
  EXPECT_EQ(openai.status, 429);
  EXPECT_THAT(openai.head, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(openai.body, HasSubstr(R"("error": {)"));
  const auto tgi = post("/generate", R"({"inputs": "a"})" + much);
  EXPECT_EQ(tgi.status, 429);
  EXPECT_THAT(tgi.body, HasSubstr(R"("error_type": "overloaded")"));
}

// The thread that made an answer of so many bytes, and what was sent.
struct Made {
  std::thread::id thread;
  Result<std::string> sent = std::string();
};

struct MakeAnswer : ReadBody {
  void make(std::size_t num_bytes) {
    make_answer(
        context->generation.encoder, num_bytes, responder,
        [this]() -> Result<std::string> {
          made.thread = std::this_thread::get_id();
          return std::string("body");
        },
        [this](Result<std::string> body) {
          EXPECT_EQ(std::this_thread::get_id(), strand);
          made.sent = std::move(body);
        });
  }

  const std::thread::id strand = std::this_thread::get_id();
  Made made;
};

TEST_F(MakeAnswer, ShortOnesWhereTheyAreSent) {
  make(kEncodedAtOnceMax);
  EXPECT_EQ(made.thread, strand);
  EXPECT_EQ(*made.sent, "body");
}

TEST_F(MakeAnswer, LongOnesOnTheEncodersThread) {
  make(kEncodedAtOnceMax + 1);
  const auto posted = take_posted();
  EXPECT_NE(made.thread, strand);
  EXPECT_EQ(*made.sent, "") << "nothing is sent on that thread";
  posted();
  EXPECT_EQ(*made.sent, "body");
}

TEST_F(MakeAnswer, LongOnesWhereTheyAreSentIfTooMuchWaits) {
  std::promise<void> go;
  const auto held = go.get_future().share();
  Encoder& encoder = context->generation.encoder;
  while (encoder.submit(1, [held] { held.wait(); })) continue;
  make(kEncodedAtOnceMax + 1);
  EXPECT_EQ(made.thread, strand);
  EXPECT_EQ(*made.sent, "body");
  go.set_value();
}

TEST_F(MakeAnswer, AnExceptionIsAnError) {
  make_answer(
      context->generation.encoder, 2 * kEncodedAtOnceMax, responder,
      []() -> Result<std::string> { throw std::bad_alloc(); },
      [this](Result<std::string> body) { made.sent = std::move(body); });
  take_posted()();
  ASSERT_FALSE(made.sent);
  EXPECT_EQ(made.sent.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace lmtp::server
