// TGI's HTTP API over real sockets: what it takes, what it answers, and its words for what is
// wrong.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http_client.h"
#include "running_server.h"
#include "tgi/tokenize.h"
#include "ws_client.h"

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
using lmtp::testing::kFakeContext;
using lmtp::testing::kFakeVocabSize;
using lmtp::testing::kJsonType;
using lmtp::testing::Running;
using lmtp::testing::WsClient;
using nlohmann::json;

std::vector<TokenId> prompt_of(const std::string& text) {
  std::vector<TokenId> ids = *fake_tokenizer().encode(text);
  ids.insert(ids.begin(), fake_tokenizer().bos_id());
  return ids;
}

std::vector<TokenId> continuation(const std::string& text, int count) {
  return FakeAgent::expected_tokens(prompt_of(text), count, kFakeVocabSize);
}

std::string text_of(std::vector<TokenId> ids) {
  std::erase_if(ids, [](TokenId id) { return fake_tokenizer().is_special(id); });
  return fake_tokenizer().decode(ids);
}

std::vector<TokenId> ids_of(const json& tokens) {
  std::vector<TokenId> ids;
  for (const json& token : tokens) ids.push_back(token.at("id"));
  return ids;
}

HttpClient::Answer post(const Running& running, const std::string& path, const std::string& body,
                        std::string_view fields = kJsonType) {
  return http_post(running.server.port(), path, body, fields);
}

std::string asking(const json& parameters, const std::string& inputs = "abc") {
  return json{{"inputs", inputs}, {"parameters", parameters}}.dump();
}

std::vector<json> events_of(const HttpClient::Answer& answer) {
  std::vector<json> events;
  std::size_t at = 0;
  while (at < answer.body.size()) {
    const std::size_t end = answer.body.find("\n\n", at);
    EXPECT_EQ(answer.body.compare(at, 5, "data:"), 0) << answer.body;
    if (end == std::string::npos) break;
    events.push_back(json::parse(answer.body.substr(at + 5, end - at - 5)));
    at = end + 2;
  }
  return events;
}

// The status and the body's two fields, as one line.
std::string refusal(const HttpClient::Answer& answer) {
  const json body = json::parse(answer.body, nullptr, false);
  if (!body.is_object() || !body.contains("error")) return answer.body;
  return std::to_string(answer.status) + " " + body.at("error_type").get<std::string>() + ": " +
         body.at("error").get<std::string>();
}

TEST(Tgi, AWholeAnswerIsTheText) {
  const Running running;
  const HttpClient::Answer answer = post(running, "/generate", asking({{"max_new_tokens", 20}}));
  EXPECT_EQ(answer.status, 200);
  const json expected = {{"generated_text", text_of(continuation("abc", 20))}};
  EXPECT_EQ(json::parse(answer.body), expected);
  for (const char* name :
       {"x-compute-type: cpu", "x-compute-time: ", "x-compute-characters: 3",
        "x-total-time: ", "x-validation-time: ", "x-queue-time: ", "x-inference-time: ",
        "x-time-per-token: ", "x-prompt-tokens: 4\r\n", "x-generated-tokens: 20\r\n"}) {
    EXPECT_NE(answer.head.find(name), std::string::npos) << name << answer.head;
  }
}

TEST(Tgi, DetailsAreTheTokensAndThePrompts) {
  const Running running;
  const json parameters = {{"max_new_tokens", 5},
                           {"decoder_input_details", true},
                           {"top_n_tokens", 1},
                           {"do_sample", true},
                           {"seed", 18446744073709551615U}};
  const json details = json::parse(post(running, "/generate", asking(parameters)).body)["details"];
  EXPECT_EQ(details["finish_reason"], "length");
  EXPECT_EQ(details["generated_tokens"], 5);
  EXPECT_EQ(details["seed"], 18446744073709551615U);
  EXPECT_EQ(ids_of(details["tokens"]), continuation("abc", 5));
  EXPECT_EQ(ids_of(details["prefill"]), prompt_of("abc"));
  EXPECT_EQ(details["prefill"][0]["logprob"], nullptr);
  EXPECT_EQ(details["prefill"][0]["text"], "<s>");
  EXPECT_FLOAT_EQ(details["prefill"][1]["logprob"],
                  FakeAgent::logprob_after({fake_tokenizer().bos_id()}, 'a'));
  ASSERT_EQ(details["top_tokens"].size(), 5U);
  EXPECT_EQ(details["top_tokens"][0], json::array({details["tokens"][0]}));
  EXPECT_EQ(details["tokens"][0]["special"], false);
  EXPECT_FALSE(details.contains("best_of_sequences"));
  const json plain = json::parse(
      post(running, "/generate", asking({{"details", true}, {"max_new_tokens", 1}})).body);
  EXPECT_EQ(plain["details"]["seed"], nullptr) << "nothing was drawn";
  EXPECT_EQ(plain["details"]["prefill"], json::array());
  EXPECT_FALSE(plain["details"].contains("top_tokens"));
}

TEST(Tgi, AStreamIsAnEventForEachToken) {
  const Running running;
  const HttpClient::Answer answer =
      post(running, "/generate_stream", asking({{"max_new_tokens", 30}, {"details", true}}, "aé"));
  EXPECT_NE(answer.head.find("Content-Type: text/event-stream\r\n"), std::string::npos);
  EXPECT_NE(answer.head.find("x-compute-characters: 2\r\n"), std::string::npos);
  EXPECT_NE(answer.head.find("X-Accel-Buffering: no\r\n"), std::string::npos);
  const std::vector<json> events = events_of(answer);
  const std::vector<TokenId> expected = continuation("aé", 30);
  ASSERT_EQ(events.size(), expected.size());
  std::string text;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["index"], i + 1);
    EXPECT_EQ(events[i]["token"]["id"], expected[i]);
    text += events[i]["token"]["text"];
    const bool is_last = i + 1 == events.size();
    EXPECT_EQ(events[i]["generated_text"].is_null(), !is_last);
    EXPECT_EQ(events[i]["details"].is_null(), !is_last);
  }
  // What is held of an unfinished character comes with the whole text.
  EXPECT_EQ(fake_tokenizer().decode(expected).compare(0, text.size(), text), 0);
  EXPECT_EQ(events.back()["generated_text"], text_of(expected));
  EXPECT_EQ(events.back()["details"], (json{{"finish_reason", "length"},
                                            {"generated_tokens", 30},
                                            {"seed", nullptr},
                                            {"input_length", 4}}));
}

TEST(Tgi, AStreamThatWaitsIsKeptAlive) {
  std::promise<void> gate;
  FakeModelOptions model;
  model.load_gate = gate.get_future().share();
  ServerOptions options;
  options.timeouts.keep_alive = std::chrono::milliseconds(1);
  const Running running(model, options);
  const std::string parameters = asking({{"max_new_tokens", 2}});
  HttpClient client(running.server.port());
  client.send(http_request("POST /generate_stream", parameters, kJsonType));
  HttpClient whole(running.server.port());
  whole.send(http_request("POST /generate", parameters, kJsonType));
  EXPECT_NE(client.read_until("\r\n\r\n").find("text/event-stream"), std::string::npos);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.read_until(":\n\n\r\n"), "3\r\n:\n\n\r\n");
  gate.set_value();
  EXPECT_NE(client.read_until("0\r\n\r\n").find(R"(data:{"index":2,)"), std::string::npos);
  EXPECT_EQ(json::parse(whole.read_answer().body),
            json({{"generated_text", text_of(continuation("abc", 2))}}));
}

TEST(Tgi, TheRootChoosesByTheFieldStream) {
  const Running running;
  const std::string text = text_of(continuation("abc", 4));
  const HttpClient::Answer whole = post(running, "/", asking({{"max_new_tokens", 4}}));
  EXPECT_EQ(json::parse(whole.body), json::array({{{"generated_text", "abc" + text}}}))
      << "with the prompt, by default";
  json body = json::parse(asking({{"max_new_tokens", 4}, {"return_full_text", false}}));
  body["stream"] = true;
  const std::vector<json> events = events_of(post(running, "/", body.dump()));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events.back()["generated_text"], text);
  EXPECT_EQ(post(running, "/invocations", asking({{"max_new_tokens", 4}})).body, whole.body);
}

TEST(Tgi, AStopSequenceIsPartOfTheText) {
  const Running running;
  const std::string whole = text_of(continuation("abc", 200));
  const std::size_t at = whole.find("inmal");
  ASSERT_NE(at, std::string::npos) << whole;
  const json parameters = {{"stop", {"inmal"}}, {"max_new_tokens", 200}, {"details", true}};
  const json answer = json::parse(post(running, "/generate", asking(parameters)).body);
  EXPECT_EQ(answer["generated_text"], whole.substr(0, at + 5));
  EXPECT_EQ(answer["details"]["finish_reason"], "stop_sequence");
  const std::vector<json> events = events_of(post(running, "/generate_stream", asking(parameters)));
  EXPECT_EQ(events.back()["generated_text"], whole.substr(0, at + 5));
}

TEST(Tgi, TheEndOfTextEndsIt) {
  FakeModelOptions model;
  const std::vector<TokenId> tokens = continuation("abc", 9);
  model.agent.eos_id = tokens.back();
  const Running running(model);
  const json answer = json::parse(post(running, "/generate", asking({{"details", true}})).body);
  EXPECT_EQ(answer["details"]["finish_reason"], "eos_token");
  EXPECT_EQ(ids_of(answer["details"]["tokens"]), tokens);
}

TEST(Tgi, OfSeveralSequencesTheBestIsTheAnswer) {
  const Running running;
  const json parameters = {
      {"best_of", 2}, {"do_sample", true}, {"max_new_tokens", 6}, {"details", true}};
  const json details = json::parse(post(running, "/generate", asking(parameters)).body)["details"];
  ASSERT_EQ(details["best_of_sequences"].size(), 1U);
  const json& other = details["best_of_sequences"][0];
  EXPECT_EQ(ids_of(other["tokens"]).size(), 6U);
  EXPECT_TRUE(other.contains("generated_text"));
  EXPECT_NE(other["seed"], details["seed"]);
}

TEST(Tgi, LengthsAreWhatFits) {
  const Running running;
  const auto num_generated = [&](const json& parameters) {
    json asked = parameters;
    asked["details"] = true;
    const json answer = json::parse(post(running, "/generate", asking(asked)).body);
    return answer.contains("details") ? answer["details"]["generated_tokens"].get<int>() : -1;
  };
  EXPECT_EQ(num_generated({}), kFakeContext - 4);
  EXPECT_EQ(num_generated({{"truncate", 2}}), kFakeContext - 2);
  EXPECT_EQ(num_generated({{"max_new_tokens", kFakeContext - 4}}), kFakeContext - 4);
  const json two = {{"truncate", 2}, {"decoder_input_details", true}, {"max_new_tokens", 1}};
  const json answer = json::parse(post(running, "/generate", asking(two)).body);
  EXPECT_EQ(ids_of(answer["details"]["prefill"]), (std::vector<TokenId>{'b', 'c'}));
  EXPECT_EQ(refusal(post(running, "/generate", asking({{"max_new_tokens", kFakeContext - 3}}))),
            "422 validation: Input validation error: `inputs` tokens + `max_new_tokens` must be <= "
            "512. Given: 4 `inputs` tokens and 509 `max_new_tokens`");
  EXPECT_EQ(refusal(post(running, "/generate", asking({}, std::string(600, 'a')))),
            "422 validation: Input validation error: `inputs` must have less than 511 tokens. "
            "Given: 601");
  EXPECT_EQ(refusal(post(running, "/generate", asking({{"truncate", 512}}))),
            "422 validation: Input validation error: `truncate` must be strictly positive and less "
            "than 511. Given: 512");
}

TEST(Tgi, WhatIsWrongIsToldInItsWords) {
  const Running running;
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"best_of", 3}, {"do_sample", true}}, "`best_of` must be > 0 and <= 2. Given: 3"},
      {{{"best_of", 2}}, "you must use sampling when `best_of` is > 1"},
      {{{"best_of", 2}, {"do_sample", true}, {"seed", 1}},
       "`seed` must not be set when `best_of` > 1"},
      {{{"temperature", 0}}, "`temperature` must be strictly positive"},
      {{{"repetition_penalty", 0}}, "`repetition_penalty` must be strictly positive"},
      {{{"frequency_penalty", 2.5}}, "`frequency_penalty` must be >= -2.0 and <= 2.0"},
      {{{"top_p", 1.0}}, "`top_p` must be > 0.0 and < 1.0"},
      {{{"top_k", 0}}, "`top_k` must be strictly positive"},
      {{{"typical_p", 0}}, "`typical_p` must be > 0.0 and < 1.0"},
      {{{"typical_p", 1}}, "`typical_p` must be > 0.0 and < 1.0"},
      {{{"max_new_tokens", 0}}, "`max_new_tokens` must be strictly positive"},
      {{{"stop", {"a", "b", "c", "d", "e"}}}, "`stop` supports up to 4 stop sequences. Given: 5"},
      {{{"top_n_tokens", 6}}, "`top_n_tokens` must be >= 0 and <= 5. Given: 6"},
      {{{"truncate", 0}}, "`truncate` must be strictly positive and less than 511. Given: 0"},
      {{{"watermark", true}}, "`watermark` is not supported"},
  };
  for (const auto& [parameters, sentence] : cases) {
    EXPECT_EQ(refusal(post(running, "/generate", asking(parameters))),
              "422 validation: Input validation error: " + sentence);
  }
  EXPECT_EQ(refusal(post(running, "/generate", R"({"inputs": ""})")),
            "422 validation: Input validation error: `inputs` cannot be empty");
  EXPECT_EQ(refusal(post(running, "/generate_stream", asking({{"best_of", 2}}))),
            "422 validation: Input validation error: `best_of` != 1 is not supported when "
            "streaming tokens");
  EXPECT_EQ(refusal(post(running, "/generate_stream", asking({{"decoder_input_details", true}}))),
            "422 validation: Input validation error: `decoder_input_details` == true is not "
            "supported when streaming tokens");
  EXPECT_EQ(running.stats().num_steps, 0);
}

TEST(Tgi, WhatIsNoRequestIsToldAsAxumDoes) {
  const Running running;
  const std::string data =
      "422 validation: Failed to deserialize the JSON body into the target type: ";
  EXPECT_EQ(refusal(post(running, "/generate", "{}")), data + "missing field `inputs`");
  EXPECT_EQ(refusal(post(running, "/generate", R"({"inputs": 5})")),
            data + "inputs: is 5; allowed is a string");
  EXPECT_EQ(refusal(post(running, "/generate", "[]")),
            data + "body: is an array; allowed is an object");
  EXPECT_EQ(refusal(post(running, "/generate", asking({{"top_p", "x"}}))),
            data + "parameters.top_p: is a string; allowed is a number >= -1e+38 and <= 1e+38");
  EXPECT_EQ(refusal(post(running, "/generate", asking(json::array()))),
            data + "parameters: is an array; allowed is an object");
  EXPECT_EQ(post(running, "/generate", "{\"inputs\": ").status, 400);
  EXPECT_EQ(refusal(post(running, "/generate", R"({"inputs": "a", "parameters": {"top_p": NaN}})")),
            "400 validation: Failed to parse the request body as JSON: body: line 1, column 41: "
            "NaN; allowed are finite numbers");
  EXPECT_EQ(refusal(post(running, "/generate", "{}", "")),
            "415 validation: Expected request with `Content-Type: application/json`");
  EXPECT_EQ(post(running, "/generate", "{}", "Content-Type: text/plain\r\n").status, 415);
  EXPECT_EQ(post(running, "/generate", "{}", "Content-Type: application/x+json; a=b\r\n").status,
            422);
  HttpClient client(running.server.port());
  client.send(http_request("GET /generate"));
  EXPECT_EQ(client.read_answer().status, 405);
}

TEST(Tgi, AnOverloadSaysHowLongToWait) {
  std::promise<void> gate;
  FakeModelOptions model;
  model.load_gate = gate.get_future().share();
  ServerOptions options;
  options.max_waiting_bytes = 10;
  const Running running(model, options);
  const HttpClient::Answer answer = post(running, "/generate", asking({}, "longer than that"));
  gate.set_value();
  EXPECT_EQ(refusal(answer), "429 overloaded: Model is overloaded");
  EXPECT_NE(answer.head.find("Retry-After: 1\r\n"), std::string::npos);
}

TEST(Tgi, AFailureIsAnAnswerOrAnEvent) {
  FakeModelOptions model;
  std::atomic<int> num_steps = 0;
  model.agent.before_step = [&](const scheduler::StepPlan&) -> Result<void> {
    const int step = ++num_steps;
    if (step == 1 || step > 4) return Error{ErrorCode::kInternal, "no luck"};
    return {};
  };
  const Running running(model);
  const HttpClient::Answer whole = post(running, "/generate", asking({}));
  EXPECT_EQ(whole.status, 424);
  EXPECT_EQ(refusal(whole).find("424 generation: Request failed during generation: "), 0U);
  const std::vector<json> events = events_of(post(running, "/generate_stream", asking({})));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events.back()["error_type"], "generation");
}

// What HTTP adds changes nothing of what is computed.
TEST(Tgi, TheTokensAreThoseOfLmtp) {
  const Running running;
  const std::vector<json> events =
      events_of(post(running, "/generate_stream",
                     asking({{"max_new_tokens", 40}, {"temperature", 0.7}, {"seed", 5}})));
  WsClient client(running.server.port());
  client.send("GENERATE {\"stream_id\": 1, \"prompt\": " + json(prompt_of("abc")).dump() +
              ", \"max_tokens\": 40, \"temperature\": 0.7, \"seed\": 5}");
  const WsClient::Outcome outcome = client.collect(1);
  ASSERT_EQ(events.size(), outcome.tokens.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["token"]["id"], outcome.tokens[i]);
    EXPECT_EQ(events[i]["token"]["logprob"].get<float>(), outcome.logprobs[i]);
  }
}

TEST(Tgi, AClientThatGoesEndsItsStream) {
  const Running running(endless_model());
  {
    HttpClient client(running.server.port());
    client.send(
        http_request("POST /generate_stream", asking({{"max_new_tokens", kEndless}}), kJsonType));
    client.read_until("\"index\":3");
  }
  running.wait_idle();
}

TEST(Tgi, AnAnswerThatCannotBeSentAsAWholeIsRefused) {
  ServerOptions options;
  options.max_write_queue_bytes = 128 << 10;
  const Running running({}, options);
  const json parameters = {
      {"details", true}, {"top_n_tokens", 3}, {"best_of", 2}, {"do_sample", true}};
  EXPECT_EQ(refusal(post(running, "/generate", asking(parameters))),
            "422 validation: Input validation error: the answer is too long to be sent as a whole; "
            "stream it, or ask for fewer `max_new_tokens` or `top_n_tokens`");
  running.wait_idle();
}

TEST(Tgi, OldClientsAndPipelinesAreAnswered) {
  const Running running;
  const std::string body = asking({{"max_new_tokens", 2}});
  HttpClient old(running.server.port());
  old.send("POST /generate_stream HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(events_of(old.read_answer()).size(), 2U);
  HttpClient client(running.server.port());
  const std::string one = http_request("POST /generate_stream", body, kJsonType);
  client.send(one + one);
  EXPECT_EQ(events_of(client.read_answer()).size(), 2U);
  EXPECT_EQ(events_of(client.read_answer()).size(), 2U);
}

TEST(Tgi, InfoIsThatOfTheModelAndTheLimits) {
  const Running running;
  HttpClient client(running.server.port());
  client.send(http_request("GET /info"));
  const json info = json::parse(client.read_answer().body);
  EXPECT_EQ(info["model_id"], "fake");
  EXPECT_EQ(info["max_total_tokens"], kFakeContext);
  EXPECT_EQ(info["max_input_tokens"], kFakeContext - 1);
  EXPECT_EQ(info["max_concurrent_requests"], kDefaultConcurrentRequests);
  EXPECT_EQ(info["max_best_of"], 2);
  EXPECT_EQ(info["max_stop_sequences"], 4);
  EXPECT_EQ(info["version"], "test");
}

TEST(Tgi, TokensHaveTheirPlacesInTheText) {
  const Running running;
  const HttpClient::Answer answer = post(running, "/tokenize", R"({"inputs": "aé"})");
  EXPECT_EQ(json::parse(answer.body),
            json::parse(R"([{"id": 998, "text": "", "start": 0, "stop": 0},
                            {"id": 97, "text": "a", "start": 0, "stop": 1},
                            {"id": 195, "text": "é", "start": 1, "stop": 3},
                            {"id": 169, "text": "é", "start": 1, "stop": 3}])"));
  EXPECT_EQ(running.stats().num_steps, 0);
  const std::vector<TokenId> others = {'x', 'y'};
  EXPECT_EQ(json::parse(tgi_tokens_json(fake_tokenizer(), "ab", others, true)),
            json::parse(R"([{"id": 120, "text": "x", "start": 0, "stop": 0},
                            {"id": 121, "text": "y", "start": 0, "stop": 0}])"))
      << "a normalizer has changed the text";
  EXPECT_EQ(refusal(post(running, "/tokenize", R"({"inputs": 1})")),
            "422 validation: Failed to deserialize the JSON body into the target type: inputs: is "
            "1; allowed is a string");
}

TEST(Tgi, AChatsBosIsPartOfItsText) {
  const std::vector<TokenId> ids = {fake_tokenizer().bos_id(), 'a'};
  EXPECT_EQ(json::parse(tgi_tokens_json(fake_tokenizer(), "<s>a", ids, false)),
            json::parse(R"([{"id": 998, "text": "<s>", "start": 0, "stop": 3},
                            {"id": 97, "text": "a", "start": 3, "stop": 4}])"));
}

TEST(Tgi, WhatIsWrongWithAChatIsTold) {
  const Running running;
  const auto refused = [&](const std::string& body) {
    return refusal(post(running, "/chat_tokenize", body));
  };
  EXPECT_EQ(refused(R"({"messages": []})"),
            "422 validation: Failed to deserialize the JSON body into the target type: messages: "
            "is an array; allowed is an array of at least one message");
  EXPECT_EQ(refused("{").substr(0, 15), "400 validation:");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user", "content": "a"}]})").substr(0, 45),
            "422 template_error: Template error: messages:");
  EXPECT_EQ(refused(R"({"model": "other", "messages": [{"role": "user", "content": "a"}]})")
                .substr(0, 14),
            "404 not_found:");
  EXPECT_EQ(refusal(post(running, "/chat_tokenize", "{}", "")).substr(0, 15), "415 validation:");
}

}  // namespace
}  // namespace lmtp::server
