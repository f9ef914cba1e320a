// OpenAI's API over real sockets, against a model whose tokens are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "http_client.h"
#include "lmtp/base/json.h"
#include "running_server.h"

namespace lmtp::server {
namespace {

using lmtp::testing::fake_tokenizer;
using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::http_post;
using lmtp::testing::http_request;
using lmtp::testing::HttpClient;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::Running;

struct OpenAiServing {
  explicit OpenAiServing(FakeModelOptions model = {}, ServerOptions options = {})
      : running(std::move(model), std::move(options)) {}

  HttpClient::Answer post(const std::string& path, const std::string& body,
                          const std::string& type = "application/json") const {
    return http_post(running.server.port(), path, body, "Content-Type: " + type + "\r\n");
  }
  HttpClient::Answer get(const std::string& path) const {
    HttpClient client(running.server.port());
    client.send(http_request("GET " + path));
    return client.read_answer();
  }
  // Of an answer that is given.
  Json ask(const std::string& body, const std::string& path = "/v1/completions") const {
    const HttpClient::Answer answer = post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return parse(answer.body);
  }
  // "STATUS TYPE PARAM CODE" of a refusal.
  std::string refusal(const std::string& body, const std::string& path = "/v1/completions") const {
    const HttpClient::Answer answer = post(path, body);
    const Json error = parse(answer.body).value("error", Json::object());
    EXPECT_FALSE(error.value("message", "").empty()) << answer.body;
    return std::to_string(answer.status) + " " + error.value("type", "none") + " " +
           error["param"].dump() + " " + error["code"].dump();
  }
  std::vector<std::string> stream(const std::string& body) const {
    const HttpClient::Answer answer = post("/v1/completions", body);
    EXPECT_NE(answer.head.find("Content-Type: text/event-stream"), std::string::npos)
        << answer.head;
    EXPECT_TRUE(answer.is_whole);
    std::vector<std::string> data;
    std::string_view rest = answer.body;
    while (!rest.empty()) {
      EXPECT_TRUE(rest.starts_with("data: ")) << rest;
      const std::size_t end = rest.find("\n\n");
      data.emplace_back(rest.substr(6, end - 6));
      rest.remove_prefix(end + 2);
    }
    EXPECT_EQ(data.back(), "[DONE]");
    data.pop_back();
    return data;
  }

  static Json parse(const std::string& text) {
    auto parsed = parse_json(text, "answer");
    EXPECT_TRUE(parsed.ok()) << text;
    return parsed ? *parsed : Json();
  }

  Running running;
};

// Of a prompt without BOS.
std::vector<TokenId> completed(const std::string& prompt, int num_tokens) {
  return FakeAgent::expected_tokens(*fake_tokenizer().encode(prompt), num_tokens, kFakeVocabSize);
}

const std::string kNoBos = R"("add_special_tokens": false, "skip_special_tokens": false, )";

TEST(OpenAi, ACompletionHasTheTokensTextAndTheFieldsOfOpenAi) {
  const OpenAiServing serving;
  const Json answer =
      serving.ask("{" + kNoBos + R"("prompt": "abc", "max_tokens": 20, "return_token_ids": true})");
  const std::vector<TokenId> expected = completed("abc", 20);
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "fake");
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(answer["usage"], Json({{"prompt_tokens", 3},
                                   {"completion_tokens", 20},
                                   {"total_tokens", 23},
                                   {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
  const Json choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], fake_tokenizer().decode(expected));
  EXPECT_EQ(choice["token_ids"], Json(expected));
  EXPECT_EQ(choice["prompt_token_ids"], Json({97, 98, 99}));
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(serving.ask(R"({"prompt": "abc"})")["usage"]["completion_tokens"], 16);
  EXPECT_EQ(serving.ask(R"({"prompt": "abc"})")["usage"]["prompt_tokens"], 4) << "with BOS";
}

// Each prompt counts once, as its tokens do, however many samples find it there.
TEST(OpenAi, UsageSaysHowMuchOfThePromptsWasCached) {
  const OpenAiServing serving;
  const auto ids = [](int first) {
    Json forty = Json::array();
    for (int id = first; id < first + 40; ++id) forty.push_back(id);
    return forty.dump();
  };
  const auto request = [](const std::string& prompt, const std::string& more) {
    return R"({"max_tokens": 2, "prompt": )" + prompt + more + "}";
  };
  const auto cached = [&](const std::string& prompt, const std::string& more = "") {
    return serving.ask(request(prompt, more))["usage"]["prompt_tokens_details"]["cached_tokens"];
  };
  EXPECT_EQ(cached(ids(100)), 0);
  EXPECT_EQ(cached(ids(100)), 39) << "the last one is computed for its logits";
  EXPECT_EQ(cached(ids(200), R"(, "n": 3)"), 0) << "one of them computes it";
  EXPECT_EQ(cached(ids(200), R"(, "n": 3)"), 39);
  EXPECT_EQ(cached("[" + ids(100) + ", " + ids(300) + ", " + ids(200) + "]", R"(, "best_of": 2)"),
            78);
  EXPECT_EQ(cached(ids(400), R"(, "echo": true, "logprobs": 0)"), 0);
  const std::string counted = R"(, "stream": true, "stream_options": {"include_usage": true)";
  for (const std::string& more :
       {std::string("}"), std::string(", \"continuous_usage_stats\": true}")}) {
    const auto chunks = serving.stream(request(ids(100), counted + more));
    EXPECT_EQ(OpenAiServing::parse(chunks.back())["usage"]["prompt_tokens_details"],
              Json({{"cached_tokens", 39}}));
  }
}

// The client's, or a fresh one: in the header of each answer, errors among them, and in the log.
TEST(OpenAi, ARequestIsFoundByItsIdInTheLog) {
  ::testing::internal::CaptureStderr();
  std::vector<std::string> wanted;
  {
    const OpenAiServing serving;
    const auto id_of = [](const HttpClient::Answer& answer) {
      const std::size_t begin = answer.head.find("X-Request-Id: ");
      EXPECT_NE(begin, std::string::npos) << answer.head;
      const std::size_t end = answer.head.find('\r', begin);
      EXPECT_EQ(answer.head.find("X-Request-Id: ", end), std::string::npos) << answer.head;
      return answer.head.substr(begin + 14, end - begin - 14);
    };
    const auto post = [&](const std::string& body, const std::string& fields) {
      return http_post(serving.running.server.port(), "/v1/completions", body,
                       std::string(lmtp::testing::kJsonType) + fields);
    };
    const std::string mine =
        "X-Request-ID: mine\r\n"
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
    const std::string trace = "trace 4bf92f3577b34da6a3ce929d0e0e4736";
    for (const std::string& more : {std::string("}"), std::string(", \"stream\": true}")}) {
      const auto plain = post(R"({"prompt": [1], "max_tokens": 1)" + more, "");
      EXPECT_NE(plain.body.find("\"id\": \"" + id_of(plain) + "\""), std::string::npos)
          << plain.body;
      wanted.push_back("POST /v1/completions, prompt 1 .*, id " + id_of(plain) + ": length");
      const auto named = post(R"({"prompt": [1], "max_tokens": 1)" + more, mine);
      EXPECT_EQ(id_of(named), "mine");
      EXPECT_NE(named.head.find("traceparent: 00-4bf92f"), std::string::npos) << named.head;
      const std::string fresh = named.body.substr(named.body.find("cmpl-"), 37);
      wanted.push_back("POST /v1/completions, .*, id mine \\(" + fresh + "\\), " + trace +
                       ": length");
    }
    const auto wrong = post("{}", mine);
    EXPECT_EQ(wrong.status, 400);
    EXPECT_EQ(id_of(wrong), "mine");
    wanted.push_back("127.0.0.1: POST /v1/completions, id mine, " + trace + ": 400: prompt");
    const auto unknown = serving.get("/nowhere");
    wanted.push_back("127.0.0.1: GET /nowhere, id " + id_of(unknown) + ": 404: ");
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\nHost: elsewhere.org\r\n\r\n"), std::string("\x01\r\n\r\n"),
          "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n"}) {
      HttpClient client(serving.running.server.port());
      client.send(bytes);
      EXPECT_EQ(id_of(client.read_answer()).size(), 36U);
    }
    EXPECT_EQ(id_of(serving.get("/health")).size(), 36U);
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  for (const std::string& line : wanted) EXPECT_THAT(lines, ::testing::ContainsRegex(line));
}

TEST(OpenAi, AStreamIsTheSameInPiecesWithItsUsageLast) {
  const OpenAiServing serving;
  const std::string request = "{" + kNoBos + R"("prompt": "abc", "max_tokens": 20, "n": 2)";
  const Json whole = serving.ask(request + "}");
  const auto chunks =
      serving.stream(request + R"(, "stream": true, "stream_options": {"include_usage": true}})");
  std::vector<std::string> texts(2);
  std::vector<std::string> reasons(2);
  for (std::size_t i = 0; i + 1 < chunks.size(); ++i) {
    const Json chunk = OpenAiServing::parse(chunks[i]);
    EXPECT_EQ(chunk["object"], "text_completion");
    EXPECT_TRUE(chunk["usage"].is_null());
    const Json& choice = chunk["choices"][0];
    const auto index = choice["index"].get<std::size_t>();
    texts.at(index) += choice["text"].get<std::string>();
    EXPECT_EQ(reasons.at(index), "");
    if (!choice["finish_reason"].is_null()) reasons[index] = choice["finish_reason"];
  }
  const Json last = OpenAiServing::parse(chunks.back());
  EXPECT_EQ(last["choices"], Json::array());
  for (const char* count : {"prompt_tokens", "completion_tokens", "total_tokens"}) {
    EXPECT_EQ(last["usage"][count], whole["usage"][count]);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Json(texts[i]), whole["choices"][i]["text"]);
    EXPECT_EQ(reasons[i], "length");
  }
}

TEST(OpenAi, EchoWithLogprobsIsThePromptsScore) {
  const OpenAiServing serving;
  const std::string request =
      "{" + kNoBos + R"("prompt": "abc", "echo": true, "logprobs": 1, "max_tokens": )";
  const Json choice = serving.ask(request + "2}")["choices"][0];
  const std::vector<TokenId> expected = completed("abc", 2);
  EXPECT_EQ(choice["text"], "abc" + fake_tokenizer().decode(expected));
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"].size(), 5U);
  EXPECT_EQ(logprobs["tokens"][1], "b");
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1].get<float>(), FakeAgent::logprob_after({97}, 98));
  EXPECT_EQ(logprobs["token_logprobs"][2].get<float>(), FakeAgent::logprob_after({97, 98}, 99));
  EXPECT_EQ(logprobs["token_logprobs"][3].get<float>(),
            FakeAgent::logprob_after({97, 98, 99}, expected[0]));
  EXPECT_EQ(logprobs["top_logprobs"][1]["b"], logprobs["token_logprobs"][1]);
  EXPECT_EQ(logprobs["text_offset"][2], 2);
  EXPECT_EQ(logprobs["text_offset"][3], 3);

  Json scored = serving.ask(request + "0}");
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
  EXPECT_EQ(scored["choices"][0]["text"], "abc");
  EXPECT_EQ(scored["choices"][0]["logprobs"]["token_logprobs"].size(), 3U);
  const auto chunks = serving.stream(request + R"(2, "stream": true})");
  EXPECT_EQ(OpenAiServing::parse(chunks[0])["choices"][0]["logprobs"]["tokens"].size(), 4U)
      << "the prompt's come with the first";
}

// In vLLM's form: of completions in each choice, of chats in the answer.
TEST(OpenAi, PromptLogprobsHaveRanks) {
  const OpenAiServing serving;
  const std::string request = "{" + kNoBos + R"("prompt": "abc", "max_tokens": 1)";
  const Json answer = serving.ask(request + R"(, "prompt_logprobs": 1, "n": 2})");
  for (const Json& choice : answer["choices"]) {
    const Json& logprobs = choice["prompt_logprobs"];
    ASSERT_EQ(logprobs.size(), 3U);
    EXPECT_TRUE(logprobs[0].is_null());
    EXPECT_EQ(logprobs[1]["98"]["logprob"].get<float>(), FakeAgent::logprob_after({97}, 98));
    EXPECT_EQ(logprobs[1]["98"]["rank"], FakeAgent::kRank);
    EXPECT_EQ(logprobs[2]["99"]["decoded_token"], "c");
    EXPECT_TRUE(choice["logprobs"].is_null());
  }
  EXPECT_EQ(serving.ask(request + R"(, "prompt_logprobs": 0})")["choices"][0]["prompt_logprobs"],
            answer["choices"][0]["prompt_logprobs"]);
  const Json echoed = serving.ask(
      request + R"(, "prompt_logprobs": 1, "echo": true, "logprobs": 1, "stream": false})");
  EXPECT_EQ(echoed["choices"][0]["prompt_logprobs"], answer["choices"][0]["prompt_logprobs"]);
  EXPECT_EQ(echoed["choices"][0]["logprobs"]["tokens"].size(), 4U);
  EXPECT_FALSE(serving.ask(request + "}")["choices"][0].contains("prompt_logprobs"));
}

TEST(OpenAi, ListsOfPromptsAndSamplesHaveAChoiceEach) {
  const OpenAiServing serving;
  const std::string more = R"(, "n": 2, "max_tokens": 3, "return_token_ids": true)";
  const Json texts = serving.ask("{" + kNoBos + R"("prompt": ["abc", "xy"])" + more + "}");
  const Json ids = serving.ask(R"({"prompt": [[97, 98, 99], [120, 121]])" + more + "}");
  ASSERT_EQ(texts["choices"].size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(texts["choices"][i]["index"], i);
    EXPECT_EQ(texts["choices"][i]["token_ids"], Json(completed(i < 2 ? "abc" : "xy", 3)));
    EXPECT_EQ(ids["choices"][i]["token_ids"], texts["choices"][i]["token_ids"]);
  }
  EXPECT_EQ(texts["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(serving.ask(R"({"prompt": [97, 98, 99]})")["usage"]["prompt_tokens"], 3);
  const Json best = serving.ask(R"({"prompt": [97], "best_of": 3, "max_tokens": 2})");
  EXPECT_EQ(best["choices"].size(), 1U);
  EXPECT_EQ(best["usage"]["completion_tokens"], 6);
}

TEST(OpenAi, StopsAreNotPartOfTheTextButWhereItIsAskedFor) {
  const OpenAiServing serving;
  const std::string request = "{" + kNoBos + R"("prompt": "abc", "max_tokens": 200)";
  const std::string text = fake_tokenizer().decode(completed("abc", 200));
  const std::size_t at = text.find("inmal");
  ASSERT_NE(at, std::string::npos);
  const Json cut = serving.ask(request + R"(, "stop": "inmal"})")["choices"][0];
  EXPECT_EQ(cut["text"], text.substr(0, at));
  EXPECT_EQ(cut["finish_reason"], "stop");
  EXPECT_EQ(cut["stop_reason"], "inmal");
  const Json with = serving.ask(
      request + R"(, "stop": ["nothing", "inmal"], "include_stop_str_in_output": true})");
  EXPECT_EQ(with["choices"][0]["text"], text.substr(0, at) + "inmal");
  const std::vector<TokenId> ids = completed("abc", 4);
  const Json by_id = serving.ask(request + R"(, "stop_token_ids": [)" + std::to_string(ids[3]) +
                                 "]}")["choices"][0];
  EXPECT_EQ(by_id["text"], fake_tokenizer().decode(std::span(ids).first(3)));
  EXPECT_EQ(by_id["stop_reason"], ids[3]);
}

TEST(OpenAi, WhatIsWrongIsNamedAndNothingRuns) {
  const OpenAiServing serving;
  const std::string invalid = "400 invalid_request_error ";
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"({})", R"("prompt" null)"},
      {R"({"prompt": 5})", R"("prompt" null)"},
      {R"({"prompt": []})", R"("prompt" null)"},
      {R"({"prompt": [1, "a"]})", R"("prompt" null)"},
      {R"({"prompt": [[1], [-1]]})", R"("prompt" null)"},
      {R"({"prompt": [1000000]})", R"("prompt" null)"},
      {R"({"prompt": "a", "max_tokens": 0})", R"("max_tokens" null)"},
      {R"({"prompt": "a", "max_tokens": 100000})", R"("prompt" "context_length_exceeded")"},
      {R"({"prompt": "a", "temperature": "hot"})", R"("temperature" null)"},
      {R"({"prompt": "a", "top_p": 0})", R"("top_p" null)"},
      {R"({"prompt": "a", "n": 0})", R"("n" null)"},
      {R"({"prompt": "a", "n": 2, "best_of": 1})", R"("best_of" null)"},
      {R"({"prompt": "a", "best_of": 2, "stream": true})", R"("best_of" null)"},
      {R"({"prompt": "a", "logprobs": true})", R"("logprobs" null)"},
      {R"({"prompt": "a", "stop": ["", "b"]})", R"("stop" null)"},
      {R"({"prompt": "a", "logit_bias": {"x": 1}})", R"("logit_bias" null)"},
      {R"({"prompt": "a", "logit_bias": {"1": 1e99}})", R"("logit_bias" null)"},
      {R"({"prompt": "a", "stream_options": {"include_usage": true}})", R"("stream_options" null)"},
      {R"({"prompt": "a", "suffix": "b"})", R"("suffix" null)"},
      {R"({"prompt": "a", "structural_tag": {"a": 1}})", R"("structural_tag" null)"},
      {R"({"prompt": "a", "bad_words": ["a", ""]})", R"("bad_words" null)"},
      {R"({"prompt": "a", "bad_words": [5]})", R"("bad_words" null)"},
      {R"({"prompt": "a", "allowed_token_ids": []})", R"("allowed_token_ids" null)"},
      {R"({"prompt": "a", "allowed_token_ids": [5, 6, 5]})", R"("allowed_token_ids" null)"},
      {R"({"prompt": "a", "allowed_token_ids": [2000000]})", R"("allowed_token_ids" null)"},
      {R"({"prompt": "a", "allowed_token_ids": [-1]})", R"("allowed_token_ids" null)"},
      {R"({"prompt": "a", "allowed_token_ids": [5], "stop_token_ids": [5], "min_tokens": 1})",
       R"("allowed_token_ids" null)"},
      {R"({"prompt": "a", "prompt_logprobs": 1, "stream": true})", R"("prompt_logprobs" null)"},
      {R"({"prompt": "a", "prompt_logprobs": -2})", R"("prompt_logprobs" null)"},
      {R"({"prompt": "a", "min_p": 1.1})", R"("min_p" null)"},
      {R"({"prompt": "a", "typical_p": 0})", R"("typical_p" null)"},
      {R"({"prompt": "a", "min_p": NaN})", R"("body" null)"},
      {R"({"prompt": "a", "temperature": 1e999})", R"("body" null)"},
      {R"([])", R"("body" null)"},
      {R"({"prompt": )", R"("body" null)"},
      {"{\"prompt\": \"\xff\"}", R"("body" null)"},
  };
  for (const auto& [body, expected] : wrong) {
    EXPECT_EQ(serving.refusal(body), invalid + expected) << body;
  }
  EXPECT_EQ(serving.refusal(R"({"prompt": "a", "model": "nobody"})"),
            R"(404 invalid_request_error "model" "model_not_found")");
  EXPECT_EQ(serving.running.stats().num_generated_tokens, 0U);
  // Defaults that clients write out, and what is nobody's.
  serving.ask(R"({"prompt": "a", "suffix": null, "response_format": {"type": "text"}, "min_p": 0,
                  "user": "me", "top_k": -1, "typical_p": 1.0, "nobody": {"knows": "it"}})");
}

TEST(OpenAi, WhatTheServerItselfRefusesIsOpenAisErrorToo) {
  ServerOptions options;
  options.max_message_bytes = 100;
  const OpenAiServing serving({}, options);
  const auto is_error = [](const HttpClient::Answer& answer, int status) {
    EXPECT_EQ(answer.status, status);
    EXPECT_NE(answer.head.find("Content-Type: application/json"), std::string::npos);
    EXPECT_TRUE(OpenAiServing::parse(answer.body)["error"]["message"].is_string()) << answer.body;
  };
  is_error(serving.get("/v1/completions"), 405);
  is_error(serving.get("/v1/nothing"), 404);
  is_error(serving.post("/v1/completions", std::string(101, ' ')), 413);
  is_error(serving.post("/v1/completions", R"({"prompt": "a"})", "text/plain"), 415);
  EXPECT_EQ(serving.get("/nothing").head.find("application/json"), std::string::npos);
}

TEST(OpenAi, AnAnswerThatIsTooLongForTheQueueIsRefusedAndItsStreamsEnd) {
  ServerOptions options;
  options.max_write_queue_bytes = std::size_t{128} << 10;
  const OpenAiServing serving({}, options);
  const std::string request = R"({"prompt": [97], "max_tokens": 500, "n": 60, "logprobs": 5)";
  EXPECT_EQ(serving.refusal(request + "}"), R"(400 invalid_request_error "stream" null)");
  serving.running.wait_idle();
}

TEST(OpenAi, TooMuchAtOnceIsRefusedWithATimeToWait) {
  FakeModelOptions model;
  model.engine.max_concurrent_requests = 2;
  const OpenAiServing serving(model);
  const HttpClient::Answer answer =
      serving.post("/v1/completions", R"({"prompt": [97], "max_tokens": 500, "n": 8})");
  EXPECT_EQ(answer.status, 429);
  EXPECT_NE(answer.head.find("Retry-After: 1\r\n"), std::string::npos) << answer.head;
  EXPECT_EQ(OpenAiServing::parse(answer.body)["error"]["code"], "rate_limit_exceeded");
  serving.running.wait_idle();
}

TEST(OpenAi, AnErrorBehindTheFirstTokenIsAnEvent) {
  FakeModelOptions model;
  model.agent.row_fails = [](const scheduler::SlotState& s) { return s.tokens.size() > 6; };
  const OpenAiServing serving(model);
  const auto chunks =
      serving.stream(R"({"prompt": [97, 98, 99], "max_tokens": 50, "stream": true})");
  ASSERT_GE(chunks.size(), 2U);
  EXPECT_EQ(OpenAiServing::parse(chunks.back())["error"]["type"], "server_error");
}

TEST(OpenAi, ModelsAreListedAndFoundByName) {
  const OpenAiServing serving;
  const Json list = OpenAiServing::parse(serving.get("/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "fake");
  const Json one = OpenAiServing::parse(serving.get("/v1/models/fake").body);
  EXPECT_EQ(one, list["data"][0]);
  for (const char* path : {"/v1/models/%2Fmodels%2Ffake", "/v1/models//models/fake"}) {
    EXPECT_EQ(OpenAiServing::parse(serving.get(path).body)["id"], "/models/fake") << path;
  }
  const HttpClient::Answer unknown = serving.get("/v1/models/org/nobody");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(OpenAiServing::parse(unknown.body)["error"]["code"], "model_not_found");
}

TEST(OpenAi, TextToTokensAndBack) {
  const OpenAiServing serving;
  const Json tokens = serving.ask(R"({"prompt": "ab", "return_token_strs": true})", "/tokenize");
  EXPECT_EQ(tokens["count"], 3);
  EXPECT_EQ(tokens["tokens"], Json({fake_tokenizer().bos_id(), 97, 98}));
  EXPECT_EQ(tokens["token_strs"], Json({"<s>", "a", "b"}));
  EXPECT_EQ(serving.ask(R"({"prompt": "ab", "add_special_tokens": false})", "/tokenize")["count"],
            2);
  EXPECT_EQ(serving.ask(R"({"tokens": [97, 98]})", "/detokenize")["prompt"], "ab");
  EXPECT_EQ(serving.refusal(R"({"tokens": [1000000]})", "/detokenize"),
            R"(400 invalid_request_error "tokens" null)");
  EXPECT_EQ(serving.refusal(R"({})", "/tokenize"), R"(400 invalid_request_error "prompt" null)");
  EXPECT_EQ(OpenAiServing::parse(serving.get("/version").body)["version"], "test");
  EXPECT_EQ(serving.get("/ping").status, 200);
}

}  // namespace
}  // namespace lmtp::server
