// What HTTP endpoints have in common, over real sockets: an endpoint that writes a line for each
// token, in the place of a protocol.
#include "generation/generation.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http_client.h"
#include "lmtp/request/error_kind.h"
#include "running_server.h"

namespace lmtp::server {
namespace {

using lmtp::testing::endless_model;
using lmtp::testing::fake_tokenizer;
using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::http_post;
using lmtp::testing::http_request;
using lmtp::testing::HttpClient;
using lmtp::testing::kEndless;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::Running;
using SharedResponder = std::shared_ptr<HttpResponder>;

// "PROMPT SAMPLE TOKEN [REASON]" a token, "PROMPT prompt TOKEN" for one of a prompt, then the
// texts of all samples and "end".
class Lines : public GenerationListener {
 public:
  explicit Lines(SharedResponder responder, std::optional<std::size_t> max_prompt_tokens)
      : responder_(std::move(responder)), max_prompt_tokens_(max_prompt_tokens) {}

  Result<void> on_prompts(const registry::ReadyModel& /*model*/, Prompts& prompts,
                          SamplingParams& params) override {
    EXPECT_TRUE(params.has_seed);
    if (max_prompt_tokens_ && prompts[0].size() > *max_prompt_tokens_) {
      return Error{ErrorCode::kInvalid, "inputs: too long for this endpoint"};
    }
    responder_->begin({200, "text/plain", ""});
    begun_ = true;
    return {};
  }
  void on_prompt_token(int prompt, TokenEvent event) override {
    lines_ += std::to_string(prompt) + " prompt " + std::to_string(event.token) + "\n";
  }
  void on_reply(Reply reply) override {
    EXPECT_TRUE(begun_);
    lines_ += std::to_string(reply.prompt) + " " + std::to_string(reply.token.sample) + " " +
              std::to_string(reply.token.token);
    if (reply.token.finish_reason == FinishReason::kLength) lines_ += " length";
    if (reply.token.finish_reason == FinishReason::kStop) lines_ += " stop";
    lines_ += '\n';
    texts_ += reply.take_content();
    if (reply.stop_text) texts_ += "|" + *reply.stop_text;
  }
  Result<void> on_step() override {
    responder_->write(std::exchange(lines_, {}));
    return {};
  }
  void on_end() override {
    responder_->write(texts_ + "\nend\n");
    responder_->end();
  }
  void on_error(const Error& error, bool no_model) override {
    if (!begun_) {
      return responder_->send({error_kind(error.code).http_status, "text/plain",
                               (no_model ? "no model: " : "") + error.message});
    }
    responder_->write("error: " + error.message + "\n");
    responder_->end();
  }

 private:
  const SharedResponder responder_;
  const std::optional<std::size_t> max_prompt_tokens_;
  bool begun_ = false;
  std::string lines_;
  std::string texts_;
};

struct Endpoint {
  GenerationRequest request;  // its prompts are the body's lines
  std::optional<std::size_t> max_prompt_tokens;
};

// A server with POST /lines. `options` is read at each request.
struct Serving {
  explicit Serving(FakeModelOptions model = {}) : waiting(std::size_t{1} << 20) {
    encoder.start();
    running.emplace(
        std::move(model), ServerOptions(), [this](HttpRoutes& routes, registry::Registry& models) {
          context.emplace(GenerationContext{ModelsByCaller(models), encoder, waiting});
          routes.add({"POST", "/lines", 1 << 20,
                      [this](const HttpRequest& http, const auto& r) { answer(http, r); }});
        });
  }
  // The engine's sinks go before the encoder and the context.
  ~Serving() {
    running->server.stop(Running::soon());
    running.reset();
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  void answer(const HttpRequest& http, const SharedResponder& responder) {
    GenerationRequest request = endpoint.request;
    request.model = http.query;
    request.num_bytes = http.body.size();
    request.make_prompts = [body = http.body](const registry::ReadyModel&) -> Result<Prompts> {
      if (body == "bad") return Error{ErrorCode::kInvalid, "prompt: is bad"};
      Prompts prompts(1);
      for (const char c : body) {
        if (c == '\n') {
          prompts.emplace_back();
        } else {
          prompts.back().push_back(static_cast<unsigned char>(c));
        }
      }
      return prompts;
    };
    generate(*context, std::move(request), responder,
             std::make_shared<Lines>(responder, endpoint.max_prompt_tokens));
  }

  HttpClient::Answer post(const std::string& body, const std::string& model = "") {
    return http_post(running->server.port(), "/lines" + (model.empty() ? "" : "?" + model), body);
  }

  Endpoint endpoint;
  MemoryLimit waiting;
  Encoder encoder;
  std::optional<GenerationContext> context;
  std::optional<Running> running;
};

std::vector<TokenId> ids_of(const std::string& text) { return *fake_tokenizer().encode(text); }

std::string lines_of(int prompt, int sample, const std::vector<TokenId>& tokens) {
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    out += std::to_string(prompt) + " " + std::to_string(sample) + " " + std::to_string(tokens[i]) +
           (i + 1 < tokens.size() ? "\n" : " length\n");
  }
  return out;
}

std::vector<TokenId> continued(const std::string& prompt, int num_tokens) {
  return FakeAgent::expected_tokens(ids_of(prompt), num_tokens, kFakeVocabSize);
}

TEST(Generation, AsManyTokensAsAskedForAndTheirText) {
  Serving serving;
  serving.endpoint.request.params.max_tokens = 20;
  serving.endpoint.request.text.skip_special_tokens = false;
  const std::vector<TokenId> expected = continued("abc", 20);
  const HttpClient::Answer answer = serving.post("abc");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, lines_of(0, 0, expected) + fake_tokenizer().decode(expected) + "\nend\n");
}

TEST(Generation, APromptsScoreComesBeforeItsSamples) {
  Serving serving;
  serving.endpoint.request.params.max_tokens = 3;
  serving.endpoint.request.scores_prompts = true;
  const HttpClient::Answer answer = serving.post("abc");
  EXPECT_TRUE(
      answer.body.starts_with("0 prompt 98\n0 prompt 99\n" + lines_of(0, 0, continued("abc", 3))))
      << answer.body;
  EXPECT_TRUE(serving.post("a").body.starts_with(lines_of(0, 0, continued("a", 3))));
  serving.endpoint.request.generates = false;
  EXPECT_EQ(serving.post("abc").body, "0 prompt 98\n0 prompt 99\n\nend\n");
  EXPECT_EQ(serving.post("a").body, "\nend\n");
}

TEST(Generation, EachPromptHasItsSamples) {
  Serving serving;
  serving.endpoint.request.num_samples = 3;
  serving.endpoint.request.params.max_tokens = 1;
  const HttpClient::Answer answer = serving.post("ab\nxyz");
  for (int sample = 0; sample < 3; ++sample) {
    EXPECT_NE(answer.body.find(lines_of(0, sample, continued("ab", 1))), std::string::npos);
    EXPECT_NE(answer.body.find(lines_of(1, sample, continued("xyz", 1))), std::string::npos);
  }
  EXPECT_TRUE(answer.body.ends_with("\nend\n")) << answer.body;
}

TEST(Generation, AStopStringEndsItsSample) {
  Serving serving;
  serving.endpoint.request.params.max_tokens = 200;
  const std::string whole = fake_tokenizer().decode(continued("abc", 200));
  serving.endpoint.request.text = {false, {"inmal"}, false};
  const std::size_t at = whole.find("inmal");
  ASSERT_NE(at, std::string::npos) << whole;
  const HttpClient::Answer answer = serving.post("abc");
  EXPECT_NE(answer.body.find(" stop\n" + whole.substr(0, at) + "|inmal\nend\n"), std::string::npos)
      << answer.body;
}

TEST(Generation, ToTheEndOfTheContext) {
  Serving serving;
  serving.endpoint.request.to_context_end = true;
  const int context = serving.running->models->limits_of("")->context_length;
  EXPECT_TRUE(serving.post("abc").body.starts_with(lines_of(0, 0, continued("abc", context - 3))));
}

TEST(Generation, WhatIsWrongIsToldAndNothingRuns) {
  Serving serving;
  EXPECT_EQ(serving.post("bad").body, "prompt: is bad");
  EXPECT_EQ(serving.post("bad").status, 400);
  serving.endpoint.max_prompt_tokens = 3;
  EXPECT_EQ(serving.post("abcd").body, "inputs: too long for this endpoint");
  EXPECT_EQ(serving.post("abc", "nobody").status, 404);
  EXPECT_TRUE(serving.post("abc", "nobody").body.starts_with("no model: "));
  serving.endpoint.request.num_samples = 60;
  EXPECT_EQ(serving.post("a\nb\nc\nd\ne").body,
            "prompt: asks for 300 sequences (prompts times samples), allowed are at most 256; "
            "send them in parts");
  EXPECT_EQ(serving.running->stats().num_steps, 0);
}

TEST(Generation, AModelIsWaitedForAndLongTextsDoNotHoldUpTheStrand) {
  std::promise<void> gate;
  FakeModelOptions model;
  model.load_gate = gate.get_future().share();
  Serving serving(model);
  serving.endpoint.request.params.max_tokens = 2;
  HttpClient client(serving.running->server.port());
  client.send(http_request("POST /lines", "abc"));
  EXPECT_EQ(serving.running->stats().num_steps, 0);
  gate.set_value();
  EXPECT_TRUE(client.read_answer().body.starts_with(lines_of(0, 0, continued("abc", 2))));
  serving.endpoint.request.is_slow = true;
  EXPECT_TRUE(serving.post("abc").body.starts_with(lines_of(0, 0, continued("abc", 2))));
  serving.encoder.stop();
  EXPECT_EQ(serving.post("abc").body, "overloaded: long texts wait to be read; retry later");
}

TEST(Generation, WhereTheClientGoesAllItsSequencesEnd) {
  Serving serving(endless_model());
  serving.endpoint.request.num_samples = 4;
  serving.endpoint.request.params.max_tokens = kEndless;
  {
    HttpClient client(serving.running->server.port());
    client.send(http_request("POST /lines", "abc"));
    client.read_until("0 3 ");
  }
  serving.running->wait_idle();
}

TEST(Generation, OneThatIsRefusedEndsTheOthers) {
  FakeModelOptions model = endless_model();
  model.engine.max_concurrent_requests = 3;
  Serving serving(model);
  serving.endpoint.request.num_samples = 4;
  serving.endpoint.request.params.max_tokens = kEndless;
  const HttpClient::Answer answer = serving.post("abc");
  EXPECT_NE(answer.body.find("error: overloaded"), std::string::npos) << answer.body;
  serving.running->wait_idle();
}

}  // namespace
}  // namespace lmtp::server
