// Messages with random bytes changed, cut and doubled: each is answered, none reads out of bounds
// (the sanitizers watch), and whatever is accepted holds to the documented ranges.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <variant>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

constexpr int kNumMutants = 20000;

const std::string kSeeds[] = {
    R"(GENERATE {"max_tokens": 7, "temperature": 0.5, "logit_bias": {"268": 100, "352": -100},)"
    R"( "top_logprobs": 3, "model": "tiny-gpt2", "prompt": [50256, 4186], "stream_id": 1})",
    R"(GENERATE {"top_p": 0.9, "top_k": 3, "min_p": 0.1, "typical_p": 0.9, "seed": 5,)"
    R"( "repetition_penalty": 1.5, "prompt": [1], "presence_penalty": -1,)"
    R"( "frequency_penalty": 2e0, "stream_id": 9, "x": {"y": [null]}})",
    R"(SCORE {"prompt": [1, 2, 3], "scored": [4, 5], "model": "a\"b\\c", "stream_id": 2})",
    R"(MODEL_INFO {"stream_id": 3, "model": "m", "data": {"model": "m"}})",
    R"(CANCEL {"stream_id": 4})",
    R"(GENERATE {"prompt": ["a", [1, 2], {"buffer": "b", "upto": 3}], "stop": ["x", "y"], "n": 2,)"
    R"( "min_tokens": 3, "ignore_eos": true, "mask": "AQIDBAUGBwg=", "logprobs": "raw",)"
    R"( "stop_token_ids": [5], "timeout_ms": 10, "text": false, "stream_id": 1})",
    R"(GENERATE {"prompt": "a \"b\"", "resumed": 1, "into": "c", "stream_id": 1})",
    R"(GENERATE {"prompt": [1], "grammar": {"type": "json", "value": {"a": [1]}}, "stream_id": 1})",
    R"(SCORE {"prompt": "a", "scored": "b", "top_logprobs": 2, "stream_id": 1})",
    R"(BUFFER {"buffer": "a", "tokens": [1], "append": true, "stream_id": 1})",
    R"(TOKENIZE {"text": "a", "add_special_tokens": false, "stream_id": 1})",
    R"(DETOKENIZE {"tokens": [1, 2], "stream_id": 1})",
    R"(FREE {"buffer": "a"})",
    R"(FORK {"stream_id": 1, "streams": [2, 3], "params": {"seed": 1, "logit_bias": {"4": 0.5}}})",
    R"(BACKTRACK {"stream_id": 1, "drop": 3, "append": [1, 2]})",
    R"(CONTROLLER {"stream_id": 1, "op": "upload", "binary": "AGFzbQ=="})",
    R"(CONTROLLER {"op": "tag", "module_id": "ab", "tags": ["x", "y"], "stream_id": 1})",
};

std::string mutate(std::string text, std::mt19937& random) {
  const std::string interesting = "{}[]\",:\\ 0123456789-+.eENnul\n";
  const int num_edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < num_edits && !text.empty(); ++i) {
    const std::size_t at = random() % text.size();
    const std::size_t length = std::min<std::size_t>(random() % 8, text.size() - at);
    switch (random() % 5) {
      case 0:
        text[at] = interesting[random() % interesting.size()];
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, 1, interesting[random() % interesting.size()]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

void expect_within_ranges(const GenerateMessage& message) {
  const SamplingParams& params = message.params;
  EXPECT_NE(message.prompt.empty(), message.options.prompt_parts.empty());
  EXPECT_LE(message.options.prompt_parts.size(), kMaxPromptParts);
  EXPECT_LE(message.stop.size(), kMaxStops);
  for (const std::string& stop : message.stop) {
    EXPECT_TRUE(!stop.empty() && stop.size() <= kMaxStopBytes);
  }
  EXPECT_TRUE(message.num_samples >= 1 && message.num_samples <= kMaxSamples);
  EXPECT_TRUE(message.options.timeout_ms >= 0 && message.options.timeout_ms <= kMaxTimeoutMs);
  EXPECT_TRUE(message.into.empty() || message.num_samples == 1);
  EXPECT_GE(params.min_tokens, 0);
  if (params.mask) {
    EXPECT_EQ(params.mask->words.size(), static_cast<std::size_t>(params.mask->num_bytes + 7) / 8);
  }
  for (const TokenId id : message.prompt) EXPECT_GE(id, 0);
  EXPECT_TRUE(params.temperature >= 0.0F && params.temperature <= 100.0F);
  EXPECT_TRUE(params.top_p > 0.0F && params.top_p <= 1.0F);
  EXPECT_GE(params.top_k, 0);
  EXPECT_TRUE(params.min_p >= 0.0F && params.min_p <= 1.0F);
  EXPECT_TRUE(params.typical_p > 0.0F && params.typical_p <= 1.0F);
  EXPECT_GT(params.repetition_penalty, 0.0F);
  EXPECT_TRUE(params.top_logprobs >= 0 && params.top_logprobs <= kMaxTopLogprobs);
  EXPECT_GE(params.max_tokens, 1);
  if (!params.logit_bias) return;
  ASSERT_EQ(params.logit_bias->ids.size(), params.logit_bias->values.size());
  for (std::size_t i = 1; i < params.logit_bias->ids.size(); ++i) {
    EXPECT_LT(params.logit_bias->ids[i - 1], params.logit_bias->ids[i]);
  }
}

TEST(ParseMutations, EachIsAnsweredAndNoneSlipsThrough) {
  std::mt19937 random(20240501);
  BiasCache cache(20000);
  int num_accepted = 0;
  for (int i = 0; i < kNumMutants; ++i) {
    const std::string text = mutate(kSeeds[random() % std::size(kSeeds)], random);
    const auto parsed = parse_client_message(text, cache);
    BiasCache fresh;
    const auto without_cache = parse_client_message(text, fresh);
    ASSERT_EQ(parsed.index(), without_cache.index()) << "the cache changed the answer to " << text;
    if (const auto* error = std::get_if<ParseError>(&parsed)) {
      EXPECT_NE(error->message.find(": "), std::string::npos) << text;
      EXPECT_EQ(error->message, std::get<ParseError>(without_cache).message) << text;
      continue;
    }
    ++num_accepted;
    const auto* message = std::get_if<GenerateMessage>(&std::get<ClientMessage>(parsed));
    if (message != nullptr) expect_within_ranges(*message);
    if (testing::Test::HasFailure()) FAIL() << text;
  }
  EXPECT_GT(num_accepted, kNumMutants / 100) << "the mutants are too wild to test anything";
  EXPECT_LT(num_accepted, kNumMutants / 2);
}

TEST(ParseMutations, ServerMessagesToo) {
  std::mt19937 random(7);
  const std::string seed =
      R"(TOKEN [{"token": 1, "stream_id": 2, "logprob": -1.5, "finish_reason": null,)"
      R"( "top_logprobs": {"1": -1.5}}, {"stream_id": 3, "error": "x"}])";
  for (int i = 0; i < kNumMutants; ++i) {
    const std::string text = mutate(seed, random);
    const auto parsed = parse_server_message(text);
    if (!parsed) {
      EXPECT_FALSE(parsed.error().message.empty());
    }
  }
}

}  // namespace
}  // namespace lmtp::protocol
