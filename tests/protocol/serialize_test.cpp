// What the server writes: valid JSON in every case, in the reference's shape.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "lmtp/protocol/codec.h"
#include "lmtp/request/sampling_table.h"

namespace lmtp::protocol {
namespace {

using Entry = TokenOrError;

std::string tokens_text(const std::vector<Entry>& entries) {
  std::string out;
  serialize_tokens(entries, out);
  return out;
}

TEST(Serialize, ATokenHasTheReferencesFields) {
  TokenEvent entry{3, 42, -0.5F, FinishReason::kNone,
                   std::vector<TokenLogprob>{{42, -0.5F}, {7, -1.25F}}};
  EXPECT_EQ(tokens_text({entry}),
            R"(TOKEN [{"token": 42, "stream_id": 3, "logprob": -0.5, "finish_reason": null, )"
            R"("top_logprobs": {"42": -0.5, "7": -1.25}}])");
  entry.top_logprobs = std::nullopt;
  entry.finish_reason = FinishReason::kStop;
  EXPECT_EQ(tokens_text({entry}),
            R"(TOKEN [{"token": 42, "stream_id": 3, "logprob": -0.5, "finish_reason": "stop"}])");
  entry.finish_reason = FinishReason::kLength;
  entry.logprob = 0.0F;
  EXPECT_EQ(tokens_text({entry}),
            R"(TOKEN [{"token": 42, "stream_id": 3, "logprob": 0.0, "finish_reason": "length"}])");
}

TEST(Serialize, TheFirstEntryOfAForkSaysWhatItBeginsWith) {
  TokenEntry entry;
  entry.event = {3, 42, -0.5F, FinishReason::kNone, std::nullopt};
  entry.fork = ForkBegun{.stream_id = 3, .fork_of = 1, .num_prompt = 7, .num_shared = 0};
  EXPECT_EQ(tokens_text({entry}),
            R"(TOKEN [{"token": 42, "stream_id": 3, "logprob": -0.5, "fork_of": 1, "fork_at": 0, )"
            R"("fork_prompt": 7, "finish_reason": null}])");
}

TEST(Serialize, WhatAReplySaysBesideItsTextFollowsIt) {
  TokenEntry entry;
  entry.event = {3, 42, -0.5F, FinishReason::kNone, std::nullopt};
  entry.text = "Hm";
  entry.pieces = std::make_shared<const ReplyPieces>(ReplyPieces{
      "It \"is\"",
      {{.index = 0, .is_complete = true}, {.index = 1, .id = "c", .name = "f", .arguments = "{"}}});
  EXPECT_EQ(tokens_text({entry}),
            R"(TOKEN [{"token": 42, "stream_id": 3, "logprob": -0.5, "finish_reason": null, )"
            R"("text": "Hm", "reasoning": "It \"is\"", "calls": [{"index": 0, "complete": true}, )"
            R"({"index": 1, "id": "c", "name": "f", "arguments": "{"}]}])");
}

TEST(Serialize, ListedTokensComeInTheirOrder) {
  TokenEvent event{3, 42, -0.5F, FinishReason::kNone, std::nullopt};
  event.listed_logprobs =
      std::make_shared<const std::vector<TokenLogprob>>(std::vector<TokenLogprob>{
          {7, -2.5F}, {5, -1.0F}, {6, -std::numeric_limits<float>::infinity()}});
  const std::string text = tokens_text({event});
  EXPECT_TRUE(text.ends_with(R"("token_logprobs": {"7": -2.5, "5": -1.0, "6": -1e+30}}])")) << text;
  EXPECT_EQ((*parse_server_message(text))[0].token_logprobs.size(), 3U);
}

TEST(Serialize, CandidatesAreTheLastField) {
  TokenEntry entry;
  entry.event = {.stream_id = 3, .token = kNoToken, .finish_reason = FinishReason::kStop};
  entry.candidates = {{-2.5, 2}, {-0.1, 1}, {-std::numeric_limits<double>::infinity(), 3}};
  const std::string text = tokens_text({entry});
  EXPECT_EQ(text,
            R"(TOKEN [{"token": null, "stream_id": 3, "logprob": 0.0, "finish_reason": "stop", )"
            R"("candidates": [{"logprob": -2.5, "num_tokens": 2}, )"
            R"({"logprob": -0.1, "num_tokens": 1}, {"logprob": -1e+30, "num_tokens": 3}]}])");
  const auto read = (*parse_server_message(text))[0].candidates;
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read[1].logprob, -0.1);
  EXPECT_EQ(read[2].num_tokens, 3);
}

TEST(Serialize, WhatIsMeasuredComesAfterLogprobs) {
  TokenEvent event{3, 42, -0.5F, FinishReason::kNone, TopLogprobs{{42, -0.5F}}};
  event.measured = {.entropy = 0.0F, .rank = 1};
  const std::string text = tokens_text({event});
  EXPECT_TRUE(text.ends_with(R"(}, "entropy": 0.0, "rank": 1}])")) << text;
  EXPECT_EQ((*parse_server_message(text))[0].measured, event.measured);
}

TEST(Serialize, AnswersAreTheLastFields) {
  TokenEntry entry;
  entry.event = {.stream_id = 3, .token = kNoToken, .finish_reason = FinishReason::kStop};
  entry.decision = {R"({"a": {"noul": 0.5}})", R"({"a": {}})", 9, 4};
  const std::string text = tokens_text({entry});
  EXPECT_EQ(text,
            R"(TOKEN [{"token": null, "stream_id": 3, "logprob": 0.0, "finish_reason": "stop", )"
            R"("answers": {"a": {"noul": 0.5}}, "diagnostics": {"a": {}}, )"
            R"("usage": {"input_tokens": 9, "cached_tokens": 4}}])");
  EXPECT_EQ((*parse_server_message(text))[0].answers_json, R"({"a": {"noul": 0.5}})");
}

TEST(Serialize, AllStreamsOfAStepShareAMessage) {
  EXPECT_EQ(tokens_text({TokenEvent{1, 2, -1.0F, FinishReason::kNone, std::nullopt},
                         ErrorEntry{9, "cancelled", ErrorCode::kCancelled}}),
            R"(TOKEN [{"token": 2, "stream_id": 1, "logprob": -1.0, "finish_reason": null}, )"
            R"({"stream_id": 9, "error": "cancelled", "code": "cancelled", "retryable": false}])");
}

TEST(Serialize, LogprobsReadBackAsTheSameFloat) {
  for (const float value : {-1e-7F, -3.14159274F, -1e-45F, -12345.678F, -0.1F, 0.0F, -1e20F,
                            -std::numeric_limits<float>::max()}) {
    const auto parsed =
        parse_server_message(tokens_text({TokenEvent{1, 2, value, FinishReason::kNone, {}}}));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ((*parsed)[0].logprob, value);
  }
}

TEST(Serialize, NumbersThatJsonLacksStayValid) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {-kInfinity, kInfinity, std::nanf("")}) {
    const auto parsed =
        parse_server_message(tokens_text({TokenEvent{1, 2, value, FinishReason::kNone, {}}}));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ((*parsed)[0].logprob, value == kInfinity ? 1e30F : -1e30F);
  }
}

TEST(Serialize, MessagesAreArraysAndNameTheirStream) {
  std::string out;
  serialize_msg_error({std::nullopt, "payload: is \"bad\"\n\x01"}, out);
  EXPECT_EQ(out, R"(MSG [{"stream_id": null, "error": "payload: is \"bad\"\n\u0001", )"
                 R"("code": "invalid_request", "retryable": false}])");

  out.clear();
  const std::vector<LoadingNotice> loading = {{5, "gpt2", 10}, {6, "a", 100}};
  serialize_loading(loading, out);
  EXPECT_EQ(out, R"(MSG [{"stream_id": 5, "status": "loading", "model": "gpt2", "progress": 10}, )"
                 R"({"stream_id": 6, "status": "loading", "model": "a", "progress": 100}])");

  out.clear();
  serialize_model_info({7, R"({"model": "x"})"}, out);
  EXPECT_EQ(out, R"(MSG [{"stream_id": 7, "model_info": {"model": "x"}}])");
}

// Whatever is in the table goes over the wire and comes back, so a new row needs no test here.
TEST(Serialize, AServerReadsEveryParameterThatAClientSets) {
  for (const SamplingParam& param : kSamplingTable) {
    GenerateMessage message;
    message.prompt = {1};
    const auto change = [&]<typename T>(T SamplingParams::*member) {
      SamplingParams& params = message.params;
      if constexpr (std::is_same_v<T, std::shared_ptr<const LogitBias>>) {
        params.*member = std::make_shared<LogitBias>(LogitBias{{3, 7}, {-100.0F, 2.5F}});
      } else if constexpr (std::is_same_v<T, std::uint64_t>) {
        params.*member = 5;
        params.has_seed = true;
      } else if constexpr (std::is_same_v<T, float>) {
        const double low = param.range.low;
        const auto high = static_cast<float>(param.range.high);
        const bool is_high = params.*member == high;
        params.*member = is_high ? static_cast<float>((low + param.range.high) / 2) : high;
      } else if constexpr (std::is_same_v<T, bool>) {
        params.*member = !(params.*member);
      } else {
        ++(params.*member);
      }
    };
    std::visit(change, param.member);
    const std::string text = serialize_client_message(message);
    EXPECT_NE(text.find("\"" + std::string(param.name) + "\": "), std::string::npos) << text;
    BiasCache cache;
    const auto parsed = parse_client_message(text, cache);
    const auto* read = std::get_if<ClientMessage>(&parsed);
    ASSERT_NE(read, nullptr) << std::get<ParseError>(parsed).message;
    const SamplingParams& back = std::get<GenerateMessage>(*read).params;
    for (const SamplingParam& other : kSamplingTable) {
      EXPECT_EQ(param_text(back, other), param_text(message.params, other))
          << param.name << ", " << other.name;
    }
  }
}

TEST(Serialize, ErrorsSayWhetherToTryAgain) {
  const auto said = [](ErrorEntry entry) {
    entry.error = "x";
    std::string out;
    serialize_msg_error(entry, out);
    return out.substr(out.find("\"code\""));
  };
  ErrorEntry entry{1, "", ErrorCode::kOverloaded};
  entry.index = 2;
  EXPECT_EQ(said(entry), R"("code": "overloaded", "retryable": true, "retry_after_ms": 1000}])");
  entry.retry_after_ms = 2500;
  EXPECT_EQ(said(entry), R"("code": "overloaded", "retryable": true, "retry_after_ms": 2500}])");
  entry.code = ErrorCode::kTimeout;
  EXPECT_EQ(said(entry), R"("code": "timeout", "retryable": false}])");
  entry.retry_after_ms = 0;
  for (const ErrorCode code : {ErrorCode::kUnavailable, ErrorCode::kInternal}) {
    entry.code = code;
    entry.no_model = true;
    EXPECT_EQ(said(entry),
              R"("code": "model_failed", "retryable": true, "retry_after_ms": 5000}])");
    entry.no_model = false;
    EXPECT_EQ(said(entry).find("model_failed"), std::string::npos);
  }
  entry.code = ErrorCode::kNotFound;
  entry.no_model = true;
  EXPECT_EQ(said(entry), R"("code": "unknown_model", "retryable": false}])");
}

TEST(Serialize, AnAnswerToControllerIsReadBack) {
  std::string out;
  serialize_controller_answer({3, R"({"tags":[{"tag":"a}"}]})"}, out);
  EXPECT_EQ(out, R"(MSG [{"stream_id": 3, "controller": {"tags":[{"tag":"a}"}]}}])");
  const auto entries = parse_server_message(out);
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(entries->at(0).controller_json, R"({"tags":[{"tag":"a}"}]})");
}

TEST(Serialize, AClientLeavesDefaultsOut) {
  GenerateMessage message;
  message.stream_id = 1;
  message.prompt = {1, 2};
  EXPECT_EQ(serialize_client_message(message), R"(GENERATE {"prompt": [1, 2], "stream_id": 1})");
  message.controller = "a";
  message.controller_arg = "b";
  EXPECT_EQ(
      serialize_client_message(message),
      R"(GENERATE {"prompt": [1, 2], "controller": "a", "controller_arg": "b", "stream_id": 1})");
}

}  // namespace
}  // namespace lmtp::protocol
