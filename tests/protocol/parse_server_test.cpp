// What servers send, ours and LMQL's, as a client reads it.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

std::vector<ServerEntry> parse(const std::string& text) {
  auto parsed = parse_server_message(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed ? *std::move(parsed) : std::vector<ServerEntry>();
}

TEST(ParseServer, ReadsTokensAsTheReferenceSendsThem) {
  const std::string first =
      R"({"token": 416, "stream_id": 1, "logprob": -1.1488874615720324, "finish_reason": null,)"
      R"( "top_logprobs": {"416": -1.1488874615720324, "413": -2}})";
  const auto entries =
      parse("TOKEN [" + first +
            R"(, {"token": 5, "stream_id": 2, "logprob": 0, "finish_reason": "length"},)"
            R"( {"token": 6, "stream_id": 3, "logprob": 0.0, "finish_reason": "stop"}])");
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_FALSE(entries[0].is_msg);
  EXPECT_EQ(entries[0].stream_id, 1);
  EXPECT_EQ(entries[0].token, 416);
  EXPECT_FLOAT_EQ(entries[0].logprob, -1.1488875F);
  EXPECT_EQ(entries[0].finish_reason, FinishReason::kNone);
  ASSERT_EQ(entries[0].top_logprobs.size(), 2U);
  EXPECT_EQ(entries[0].top_logprobs[1], (TokenLogprob{413, -2.0F}));
  EXPECT_EQ(entries[0].raw_json, first);
  EXPECT_EQ(entries[1].finish_reason, FinishReason::kLength);
  EXPECT_TRUE(entries[1].top_logprobs.empty());
  EXPECT_EQ(entries[2].finish_reason, FinishReason::kStop);
}

TEST(ParseServer, ReadsMessages) {
  const auto info =
      parse(R"(MSG [{"stream_id": 4, "model_info": {"model": "x", "a": [1, {"b": "}"}]}}])");
  ASSERT_EQ(info.size(), 1U);
  EXPECT_TRUE(info[0].is_msg);
  EXPECT_EQ(info[0].model_info_json, R"({"model": "x", "a": [1, {"b": "}"}]})");

  const auto loading =
      parse(R"(MSG [{"stream_id": 5, "status": "loading", "model": "x", "progress": 40}])");
  ASSERT_EQ(loading.size(), 1U);
  EXPECT_EQ(loading[0].status, "loading");
  EXPECT_EQ(loading[0].progress_percent, 40);

  const auto errors = parse(R"(MSG {"stream_id": null, "error": "a \"b\""})");
  ASSERT_EQ(errors.size(), 1U) << "an object alone, as the reference's README shows it";
  EXPECT_FALSE(errors[0].stream_id.has_value());
  EXPECT_EQ(errors[0].error, "a \"b\"");
}

TEST(ParseServer, ReadsErrorsAndWhetherToTryAgain) {
  std::string out;
  ErrorEntry error{3, "overloaded: x", ErrorCode::kOverloaded};
  error.index = 2;
  serialize_msg_error(error, out);
  const auto entries = parse(out);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].error_code, "overloaded");
  EXPECT_TRUE(entries[0].retryable);
  EXPECT_EQ(entries[0].retry_after_ms, 1000);
  EXPECT_EQ(entries[0].index, 2);
  const auto old = parse(R"(TOKEN [{"stream_id": 1, "error": "x"}])");
  EXPECT_EQ(old[0].error_code, "");
  EXPECT_FALSE(old[0].retryable);
}

TEST(ParseServer, ReadsTextSamplesAndStops) {
  TokenEntry entry;
  entry.event = {5, 42, -0.5F, FinishReason::kStop, std::nullopt};
  entry.index = 1;
  entry.text = "a\n\xc3\xa9";
  entry.stop_text = "\"\"";
  std::string out;
  const TokenOrError one = entry;
  serialize_tokens({&one, 1}, out);
  const auto entries = parse(out);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].token, 42);
  EXPECT_EQ(entries[0].index, 1);
  EXPECT_EQ(entries[0].text, "a\n\xc3\xa9");
  EXPECT_EQ(entries[0].stop_text, "\"\"");
  EXPECT_EQ(parse(R"(TOKEN [{"token": 1, "stream_id": 1}])")[0].text, std::nullopt);
}

TEST(ParseServer, ReadsNoticesAndAnswers) {
  std::string out;
  NoticeEntry notice;
  notice.stream_id = 4;
  notice.status = "accepted";
  notice.seed = 18446744073709551615ULL;
  notice.model = "m";
  serialize_notices({&notice, 1}, out);
  EXPECT_EQ(parse(out)[0].status, "accepted");
  EXPECT_EQ(parse(out)[0].seed, notice.seed);
  out.clear();
  notice.status = "recomputes";
  notice.num_tokens = 12;
  serialize_notices({&notice, 1}, out);
  EXPECT_EQ(parse(out)[0].num_tokens, 12);
  out.clear();
  serialize_answer(TokensEntry{1, {5, 6}}, out);
  EXPECT_EQ(parse(out)[0].tokens, (std::vector<TokenId>{5, 6}));
  out.clear();
  serialize_answer(TextEntry{1, ""}, out);
  EXPECT_EQ(parse(out)[0].text, "");
}

TEST(ParseServer, EntriesOfControllers) {
  std::string out;
  TokenEntry begun{{.stream_id = 1, .token = kNoToken}, 3};
  begun.forked = SampleForked{1, 3, 2, 40};
  TokenEntry cut{{.stream_id = 1, .token = 7, .num_backtracked = 5}, 3};
  serialize_tokens(std::vector<TokenOrError>{begun, cut}, out);
  const auto entries = parse(out);
  EXPECT_EQ(entries[0].token, std::nullopt);
  EXPECT_EQ(entries[0].index, 3);
  EXPECT_EQ(entries[0].fork_of_index, 2);
  EXPECT_EQ(entries[0].fork_at, 40);
  EXPECT_EQ(entries[1].token, 7);
  EXPECT_EQ(entries[1].fork_of_index, std::nullopt);
  EXPECT_EQ(entries[1].num_backtracked, 5);
}

TEST(ParseServer, NumbersOutOfRangeAreClamped) {
  const auto entries =
      parse(R"(MSG [{"index": 1e300, "retry_after_ms": -5, "progress": 1e99, "seed": -1}])");
  EXPECT_EQ(entries[0].index, std::numeric_limits<int>::max());
  EXPECT_EQ(entries[0].retry_after_ms, 0);
  EXPECT_EQ(entries[0].progress_percent, 100);
  EXPECT_EQ(entries[0].seed, 0U);
}

TEST(ParseServer, MessagesOfTheFutureAreNotErrors) {
  EXPECT_TRUE(parse("STATUS [1]").empty());
  EXPECT_TRUE(parse("").empty());
  EXPECT_TRUE(parse("TOKEN []").empty());
}

TEST(ParseServer, NonsenseIsAnError) {
  for (const char* text : {"TOKEN", "TOKEN x", "TOKEN [1]", "TOKEN 5", "MSG [{}", "MSG [{},]"}) {
    EXPECT_FALSE(parse_server_message(text).ok()) << text;
  }
}

}  // namespace
}  // namespace lmtp::protocol
