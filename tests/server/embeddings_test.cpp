// /v1/embeddings over real sockets, against a model whose embeddings are known.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generation/embedding_rows.h"
#include "http_client.h"
#include "lmtp/base/json.h"
#include "lmtp/base/memory_limit.h"
#include "running_server.h"

namespace lmtp::server {
namespace {

using lmtp::testing::fake_tokenizer;
using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::http_post;
using lmtp::testing::HttpClient;
using lmtp::testing::kFakeContext;
using lmtp::testing::Running;

struct Embeddings {
  explicit Embeddings(FakeModelOptions model = {}, ServerOptions options = {})
      : running(std::move(model), std::move(options)) {}

  HttpClient::Answer post(const std::string& body,
                          const std::string& path = "/v1/embeddings") const {
    return http_post(running.server.port(), path, body, "Content-Type: application/json\r\n");
  }
  Json ask(const std::string& body, const std::string& path = "/v1/embeddings") const {
    const HttpClient::Answer answer = post(body, path);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return *parse_json(answer.body, "answer");
  }
  // "STATUS PARAM CODE: MESSAGE" of a refusal.
  std::string refusal(const std::string& body, const std::string& path = "/v1/embeddings") const {
    const HttpClient::Answer answer = post(body, path);
    const Json error = parse_json(answer.body, "answer")->value("error", Json::object());
    return std::to_string(answer.status) + " " + error["param"].dump() + " " +
           error["code"].dump() + ": " + error.value("message", "");
  }

  Running running;
};

std::vector<float> normalized(std::vector<float> numbers) {
  double sum = 0;
  for (const float one : numbers) sum += static_cast<double>(one) * static_cast<double>(one);
  for (float& one : numbers) one = static_cast<float>(static_cast<double>(one) / std::sqrt(sum));
  return numbers;
}

std::vector<float> expected(const std::vector<TokenId>& ids, std::size_t dimensions = 4) {
  std::vector<float> numbers = *FakeAgent::embedding_of(ids, Pooling::kLast);
  numbers.resize(dimensions);
  return normalized(numbers);
}

// Those of one item of an answer's data.
std::vector<float> numbers(const Json& item) { return item["embedding"].get<std::vector<float>>(); }

std::vector<TokenId> with_bos(const std::string& text) {
  std::vector<TokenId> ids = *fake_tokenizer().encode(text);
  ids.insert(ids.begin(), fake_tokenizer().bos_id());
  return ids;
}

TEST(Embeddings, OfATextAreThoseOfItsLastTokenAndOfLengthOne) {
  const Embeddings serving;
  const Json answer = serving.ask(R"({"input": "abc", "model": "fake", "user": "u"})");
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "fake");
  ASSERT_EQ(answer["data"].size(), 1U);
  EXPECT_EQ(answer["data"][0]["object"], "embedding");
  EXPECT_EQ(answer["data"][0]["index"], 0);
  EXPECT_EQ(numbers(answer["data"][0]), expected(with_bos("abc")));
  EXPECT_EQ(answer["usage"], Json({{"prompt_tokens", 4},
                                   {"total_tokens", 4},
                                   {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
  const Json again = serving.ask(R"({"input": "abc"})");
  EXPECT_EQ(again["data"], answer["data"]);
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
}

TEST(Embeddings, AnotherSaltFindsNothingInTheCache) {
  const Embeddings serving;
  const auto num_cached = [&](const std::string& salt) {
    const Json answer = serving.ask(R"({"input": "abc", "cache_salt": ")" + salt + "\"}");
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(num_cached("a"), 0);
  EXPECT_EQ(num_cached("b"), 0);
  EXPECT_EQ(num_cached("a"), 3);
}

TEST(Embeddings, InputsAreTextsOrIdsInTheirOrder) {
  const Embeddings serving;
  const auto check = [&](const std::string& input,
                         const std::vector<std::vector<TokenId>>& prompts) {
    const Json data =
        serving.ask(R"({"add_special_tokens": false, "input": )" + input + "}")["data"];
    ASSERT_EQ(data.size(), prompts.size()) << input;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(data[i]["index"], i);
      ASSERT_EQ(numbers(data[i]), expected(prompts[i])) << i;
    }
  };
  check(R"("abc")", {{97, 98, 99}});
  check(R"(["abc", "b"])", {{97, 98, 99}, {98}});
  check("[5, 6, 7]", {{5, 6, 7}});
  check("[[5, 6, 7], [8], [5, 6, 7]]", {{5, 6, 7}, {8}, {5, 6, 7}});
  // More than the model takes at a time.
  std::vector<std::vector<TokenId>> many;
  for (TokenId id = 0; id < 700; ++id) many.push_back({id % 200, 3});
  check(Json(many).dump(), many);
}

TEST(Embeddings, Base64HasTheNumbersAndDimensionsAreTheFirst) {
  const Embeddings serving;
  const float first = expected({5, 6}, 1)[0];
  EXPECT_EQ(std::abs(first), 1.0F);
  const Json one =
      serving.ask(R"({"input": [5, 6], "dimensions": 1, "encoding_format": "base64"})")["data"];
  EXPECT_EQ(one[0]["embedding"], first > 0 ? "AACAPw==" : "AACAvw==");
  EXPECT_EQ(numbers(serving.ask(R"({"input": [5, 6], "dimensions": 3})")["data"][0]),
            expected({5, 6}, 3));
  EXPECT_EQ(serving.refusal(R"({"input": [5, 6], "dimensions": 5})"),
            "400 \"dimensions\" null: dimensions: is 5; allowed are 1 to 4, which the model's "
            "embeddings have");
}

TEST(Embeddings, LongInputsAreRefusedOrTruncated) {
  const Embeddings serving;
  std::vector<TokenId> ids(kFakeContext, 7);
  const auto body = [&](const std::string& more) {
    return R"({"input": )" + Json(ids).dump() + more + "}";
  };
  EXPECT_EQ(serving.ask(body(""))["usage"]["prompt_tokens"], kFakeContext) << "all of the context";
  ids.insert(ids.begin(), 9);
  EXPECT_TRUE(serving.refusal(body("")).starts_with("400 \"input\" \"context_length_exceeded\""))
      << serving.refusal(body(""));
  const Json whole = serving.ask(body(R"(, "truncate_prompt_tokens": -1)"));
  EXPECT_EQ(whole["usage"]["prompt_tokens"], kFakeContext);
  EXPECT_EQ(numbers(serving.ask(body(R"(, "truncate_prompt_tokens": 2)"))["data"][0]),
            expected({7, 7}));
}

TEST(Embeddings, WrongFieldsAreNamed) {
  const Embeddings serving;
  const auto param = [&](const std::string& body) {
    const std::string refusal = serving.refusal(body);
    EXPECT_TRUE(refusal.find("allowed") != std::string::npos ||
                refusal.find("needed") != std::string::npos ||
                refusal.find("missing") != std::string::npos)
        << refusal;
    return refusal.substr(0, refusal.find('"', 5) + 1);
  };
  EXPECT_EQ(param("{}"), "400 \"input\"");
  EXPECT_EQ(param(R"({"input": {}})"), "400 \"input\"");
  EXPECT_EQ(param(R"({"input": []})"), "400 \"input\"");
  EXPECT_EQ(param(R"({"input": [1, "a"]})"), "400 \"input\"");
  EXPECT_EQ(param(R"({"input": [[1], []]})"), "400 \"input\"");
  EXPECT_EQ(param(R"({"input": "", "add_special_tokens": false})"), "400 \"input\"");
  EXPECT_EQ(param(R"({"input": [100000]})"), "400 \"input\"");
  EXPECT_EQ(param(R"({"input": )" + Json(std::vector<std::string>(2049, "a")).dump() + "}"),
            "400 \"input\"");
  EXPECT_EQ(param(R"({"input": "a", "encoding_format": "int8"})"), "400 \"encoding_format\"");
  EXPECT_EQ(param(R"({"input": "a", "dimensions": 0})"), "400 \"dimensions\"");
  EXPECT_EQ(param(R"({"input": "a", "prompt_name": "query"})"), "400 \"prompt_name\"");
  EXPECT_EQ(param(R"({"input": "a", "truncate_prompt_tokens": 0})"),
            "400 \"truncate_prompt_tokens\"");
}

TEST(Embeddings, AreWhatTheModelsFolderSays) {
  FakeModelOptions model;
  model.embeddings = {.pooling = Pooling::kMean,
                      .normalizes = false,
                      .is_trained = true,
                      .max_tokens = 3,
                      .prompts = {{"query", "q:"}, {"plain", ""}},
                      .default_prompt = "query"};
  const Embeddings serving(model);
  const auto check = [&](const std::string& more, const std::vector<TokenId>& ids) {
    const Json data =
        serving.ask(R"({"add_special_tokens": false, "input": "a")" + more + "}")["data"];
    EXPECT_EQ(numbers(data[0]), *FakeAgent::embedding_of(ids, Pooling::kMean)) << more;
  };
  check("", {'q', ':', 'a'});
  check(R"(, "prompt_name": "query")", {'q', ':', 'a'});
  check(R"(, "prompt_name": "plain")", {'a'});
  EXPECT_EQ(serving.refusal(R"({"input": "a", "prompt_name": "code"})"),
            "400 \"prompt_name\" null: prompt_name: this model has no such prompt; allowed are "
            "plain, query");
  EXPECT_TRUE(serving.refusal(R"({"input": [1, 2, 3, 4]})")
                  .starts_with("400 \"input\" \"context_length_exceeded\""));
}

TEST(Embeddings, AModelWithoutAHeadGeneratesNothing) {
  FakeModelOptions model;
  model.generates = false;
  const Embeddings serving(model);
  serving.ask(R"({"input": "a"})");
  EXPECT_TRUE(serving.refusal(R"({"prompt": "a"})", "/v1/completions")
                  .starts_with("400 \"model\" null: model: was saved without an output head"));
}

TEST(Embeddings, DocumentsAreRankedByTheirCosine) {
  const Embeddings serving;
  const auto score = [](const std::string& document) {
    const std::vector<float> a = expected(with_bos("query"));
    const std::vector<float> b = expected(with_bos(document));
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  };
  const std::vector<std::string> documents = {"a", "bc", "def", "a"};
  const Json answer = serving.ask(
      R"({"query": "query", "documents": ["a", {"text": "bc"}, "def", "a"]})", "/v1/rerank");
  ASSERT_EQ(answer["results"].size(), 4U);
  double last = 2;
  for (const Json& result : answer["results"]) {
    const std::string& document = documents.at(result["index"].get<std::size_t>());
    EXPECT_EQ(result["document"]["text"], document);
    EXPECT_NEAR(result["relevance_score"].get<double>(), score(document), 1e-6);
    EXPECT_LE(result["relevance_score"].get<double>(), last);
    last = result["relevance_score"].get<double>();
  }
  EXPECT_EQ(answer["usage"]["total_tokens"], 6 + 2 + 3 + 4 + 2);
  const Json best = serving.ask(
      R"({"query": "query", "documents": ["a", "bc"], "top_n": 1, "return_documents": false})",
      "/rerank")["results"];
  ASSERT_EQ(best.size(), 1U);
  EXPECT_FALSE(best[0].contains("document"));
}

TEST(Embeddings, AJudgesDocumentsAreRankedByItsYes) {
  FakeModelOptions model;
  model.embeddings.judge = {.yes = 'y', .no = 'n'};
  model.context_length = 2048;
  model.agent.num_blocks = 256;
  const Embeddings serving(model);
  const auto score = [](const std::string& document) {
    const std::vector<TokenId> prompt = *fake_tokenizer().encode(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        "and the Instruct provided. Note that the answer can only be \"yes\" or \"no\"."
        "<|im_end|>\n<|im_start|>user\n<Instruct>: i\n<Query>: q\n<Document>: " +
        document + "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    const double yes = std::exp(static_cast<double>(FakeAgent::logprob_after(prompt, 'y')));
    const double no = std::exp(static_cast<double>(FakeAgent::logprob_after(prompt, 'n')));
    return yes / (yes + no);
  };
  const std::vector<std::string> documents = {"a", "bc", "def"};
  const Json results =
      serving.ask(R"({"query": "q", "instruction": "i", "documents": ["a", "bc", "def"]})",
                  "/rerank")["results"];
  ASSERT_EQ(results.size(), 3U);
  for (const Json& result : results) {
    const std::string& document = documents.at(result["index"].get<std::size_t>());
    EXPECT_NEAR(result["relevance_score"].get<double>(), score(document), 1e-6) << document;
  }
  EXPECT_GE(results[0]["relevance_score"], results[1]["relevance_score"]);
  // What is around the documents is not cut.
  const auto refusal = [&](const std::string& body) { return serving.refusal(body, "/rerank"); };
  EXPECT_TRUE(refusal(R"({"query": "q", "documents": ["a"], "truncate_prompt_tokens": 3})")
                  .starts_with("400 \"truncate_prompt_tokens\""));
  // The query is read once for each document, whatever is cut then.
  const Json much{{"query", std::string(20'000, 'q')},
                  {"documents", std::vector<std::string>(2048)},
                  {"truncate_prompt_tokens", 1000}};
  EXPECT_NE(refusal(much.dump()).find("MiB; allowed are at most 16 MiB"), std::string::npos)
      << refusal(much.dump());
}

TEST(Embeddings, WrongRankingsAreNamed) {
  const Embeddings serving;
  const auto param = [&](const std::string& body) {
    const std::string refusal = serving.refusal(body, "/rerank");
    EXPECT_TRUE(refusal.find("allowed") != std::string::npos ||
                refusal.find("needed") != std::string::npos)
        << refusal;
    return refusal.substr(0, refusal.find('"', 5) + 1);
  };
  EXPECT_EQ(param(R"({"documents": ["a"]})"), "400 \"query\"");
  EXPECT_EQ(param(R"({"query": "a"})"), "400 \"documents\"");
  EXPECT_EQ(param(R"({"query": "a", "documents": []})"), "400 \"documents\"");
  EXPECT_EQ(param(R"({"query": "a", "documents": [{}]})"), "400 \"documents\"");
  EXPECT_EQ(param(R"({"query": "a", "documents": ["a"], "top_n": -1})"), "400 \"top_n\"");
  const std::string much(kFakeContext, 'a');
  EXPECT_EQ(param(R"({"query": "a", "documents": [")" + much + R"("]})"), "400 \"documents\"");
}

// The connection would be closed for what it does not read.
TEST(Embeddings, AnswersLongerThanTheWriteQueueAreRefused) {
  ServerOptions options;
  options.max_write_queue_bytes = 4096;
  const Embeddings serving({}, options);
  const Json ids = std::vector<std::vector<TokenId>>(100, {5, 6});
  EXPECT_TRUE(serving.refusal(R"({"input": )" + ids.dump() + "}").starts_with("400 \"input\""));
  // Those of so many inputs are not computed.
  const Json many = std::vector<std::vector<TokenId>>(200, {5, 6});
  EXPECT_NE(serving.refusal(R"({"input": )" + many.dump() + "}").find("at most 128 inputs"),
            std::string::npos);
  const Json document = std::string(40, 'a');
  const Json ranking{{"query", "q"}, {"documents", std::vector<Json>(100, document)}};
  EXPECT_TRUE(serving.refusal(ranking.dump(), "/rerank").starts_with("400 \"documents\""));
}

// One request's may be no more than three quarters of what others leave.
TEST(EmbeddingRows, ThatTakeTooMuchMemoryAreAnError) {
  MemoryLimit limit(64);
  EmbeddingRows rows({{1}, {2}, {3}, {4}, {5}}, Pooling::kLast, limit);
  TokenEvent event;
  event.embedding = std::make_shared<const std::vector<float>>(4);
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_TRUE(rows.next());
    EXPECT_FALSE(rows.error());
    rows.read(row, event);
  }
  ASSERT_TRUE(rows.error());
  EXPECT_EQ(rows.error()->code, ErrorCode::kOverloaded);
  EXPECT_FALSE(rows.next()) << "the fifth is not computed";
}

}  // namespace
}  // namespace lmtp::server
