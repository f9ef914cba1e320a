// Messages of clients that are right, and what they mean.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>

#include "lmtp/protocol/codec.h"
#include "parse_as.h"

namespace lmtp::protocol {
namespace {

TEST(ParseClient, ReadsAGenerateAsLmqlSendsIt) {
  const auto message = parse_as<GenerateMessage>(
      R"(GENERATE {"max_tokens": 7, "temperature": 0.0, "logit_bias": {"268": 100, "352": -100},)"
      R"( "top_logprobs": 3, "model": "tiny-gpt2", "prompt": [50256, 4186], "stream_id": 1})");
  EXPECT_EQ(message.stream_id, 1);
  EXPECT_EQ(message.model, "tiny-gpt2");
  EXPECT_EQ(message.prompt, (std::vector<TokenId>{50256, 4186}));
  EXPECT_EQ(message.params.max_tokens, 7);
  EXPECT_EQ(message.params.temperature, 0.0F);
  EXPECT_EQ(message.params.top_logprobs, 3);
  ASSERT_NE(message.params.logit_bias, nullptr);
  EXPECT_EQ(message.params.logit_bias->ids, (std::vector<TokenId>{268, 352}));
  EXPECT_EQ(message.params.logit_bias->values, (std::vector<float>{100.0F, -100.0F}));
  EXPECT_TRUE(message.unknown_keys.empty());
}

TEST(ParseClient, AbsentAndNullFieldsHaveTheReferencesDefaults) {
  for (const char* text :
       {R"(GENERATE {"prompt": [1], "stream_id": 0})",
        R"(GENERATE {"prompt": [1], "stream_id": 0, "model": null, "temperature": null,)"
        R"( "top_p": null, "top_k": null, "min_p": null, "typical_p": null,)"
        R"( "repetition_penalty": null, "presence_penalty": null,)"
        R"( "frequency_penalty": null, "logit_bias": null, "seed": null, "top_logprobs": null,)"
        R"( "max_tokens": null})"}) {
    const auto message = parse_as<GenerateMessage>(text);
    const SamplingParams& params = message.params;
    EXPECT_EQ(message.model, "");
    EXPECT_EQ(params.max_tokens, 32);
    EXPECT_EQ(params.temperature, 0.0F);
    EXPECT_EQ(params.top_logprobs, 1);
    EXPECT_EQ(params.top_k, 0);
    EXPECT_EQ(params.top_p, 1.0F);
    EXPECT_EQ(params.min_p, 0.0F);
    EXPECT_EQ(params.typical_p, 1.0F);
    EXPECT_FALSE(params.has_penalties());
    EXPECT_FALSE(params.has_seed);
    EXPECT_EQ(params.logit_bias, nullptr);
  }
}

TEST(ParseClient, ReadsEveryParameterAsWholeNumberOrFraction) {
  const auto params =
      parse_as<GenerateMessage>(
          R"(GENERATE {"stream_id": -3, "prompt": [0], "temperature": 1, "top_p": 0.5, "top_k": 4,)"
          R"( "min_p": 0.25, "typical_p": 0.75,)"
          R"( "repetition_penalty": 2, "presence_penalty": -1.5, "frequency_penalty": 1e1,)"
          R"( "seed": 18446744073709551615, "top_logprobs": 5000, "max_tokens": 99999999999999})")
          .params;
  EXPECT_EQ(params.temperature, 1.0F);
  EXPECT_EQ(params.top_p, 0.5F);
  EXPECT_EQ(params.top_k, 4);
  EXPECT_EQ(params.min_p, 0.25F);
  EXPECT_EQ(params.typical_p, 0.75F);
  EXPECT_EQ(params.repetition_penalty, 2.0F);
  EXPECT_EQ(params.presence_penalty, -1.5F);
  EXPECT_EQ(params.frequency_penalty, 10.0F);
  EXPECT_TRUE(params.has_seed);
  EXPECT_EQ(params.seed, 18446744073709551615ULL);
  EXPECT_EQ(params.top_logprobs, kMaxTopLogprobs);
  EXPECT_GE(params.max_tokens, 1 << 20) << "clamped, not refused";
}

TEST(ParseClient, ANegativeSeedStandsForItsTwosComplement) {
  const auto params =
      parse_as<GenerateMessage>(R"(GENERATE {"stream_id": 1, "prompt": [0], "seed": -1})").params;
  EXPECT_EQ(params.seed, 18446744073709551615ULL);
}

TEST(ParseClient, CountsUnknownKeysButKeepsFew) {
  std::string text = R"(GENERATE {"stream_id": 1, "prompt": [0], "length_penalty": 1.0)";
  for (int i = 0; i < 1000; ++i) text += ", \"key" + std::to_string(i) + "\": [1]";
  const auto message = parse_as<GenerateMessage>(text + "}");
  ASSERT_EQ(message.unknown_keys.size(), kMaxUnknownKeysKept);
  EXPECT_EQ(message.unknown_keys[0], "length_penalty");
}

TEST(ParseClient, ReadsTheOtherVerbs) {
  const auto score = parse_as<ScoreMessage>(
      R"(SCORE {"model": "m", "prompt": [], "scored": [5, 6], "stream_id": 2})");
  EXPECT_TRUE(score.prompt.empty());
  EXPECT_EQ(score.scored, (std::vector<TokenId>{5, 6}));
  const auto info = parse_as<ModelInfoMessage>(
      "MODEL_INFO {\"stream_id\": 3, \"model\": \"m\", \"data\": {\"model\": \"m\"}}\n");
  EXPECT_EQ(info.stream_id, 3);
  EXPECT_EQ(info.model, "m");
  EXPECT_EQ(parse_as<CancelMessage>(R"(CANCEL {"stream_id": 4})").stream_id, 4);
}

TEST(ParseClient, EditsOfStreams) {
  const auto fork = parse_as<ForkMessage>(
      R"(FORK {"stream_id": 1, "streams": [2, -3], "params": {"max_tokens": 5, "seed": 0}})");
  EXPECT_EQ(fork.stream_id, 1);
  EXPECT_EQ(fork.streams, (std::vector<StreamId>{2, -3}));
  SamplingParams params;
  params.temperature = 0.5F;
  fork.changes.apply(params);
  EXPECT_EQ(params.temperature, 0.5F);
  EXPECT_EQ(params.max_tokens, 5);
  EXPECT_EQ(fork.changes.given.count(), 2U) << "a seed of 0 is one";
  const auto back =
      parse_as<BacktrackMessage>(R"(BACKTRACK {"stream_id": 1, "drop": 4, "append": [7, 8]})");
  EXPECT_EQ(back.num_dropped, 4);
  EXPECT_EQ(back.appended, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(parse_as<BacktrackMessage>(R"(BACKTRACK {"stream_id": 1})").num_dropped, 0);
  const auto far =
      parse_as<BacktrackMessage>(R"(BACKTRACK {"stream_id": 1, "drop": 9223372036854775807})");
  EXPECT_EQ(far.num_dropped, std::numeric_limits<std::int64_t>::max()) << "for the refusal";
  // And as they are written.
  const auto forked = parse_as<ForkMessage>(serialize_client_message(fork));
  EXPECT_EQ(forked.streams, fork.streams);
  EXPECT_EQ(forked.changes.given, fork.changes.given);
  EXPECT_EQ(forked.changes.values.max_tokens, 5);
  EXPECT_EQ(parse_as<BacktrackMessage>(serialize_client_message(back)).appended, back.appended);
}

TEST(ParseClient, ControllersAreUploadedNamedAndListed) {
  using Op = ControllerMessage::Op;
  ControllerMessage message = parse_as<ControllerMessage>(
      R"(CONTROLLER {"stream_id": 1, "model": "m", "op": "upload", "binary": "AGFzbf8"})");
  EXPECT_EQ(message.op, Op::kUpload);
  EXPECT_EQ(message.model, "m");
  EXPECT_EQ(message.binary, std::string("\0asm\xff", 5)) << "without padding";
  EXPECT_EQ(serialize_client_message(message),
            R"(CONTROLLER {"op": "upload", "binary": "AGFzbf8=", "model": "m", "stream_id": 1})");
  EXPECT_EQ(parse_as<ControllerMessage>(serialize_client_message(message)).binary, message.binary);

  message = parse_as<ControllerMessage>(
      R"(CONTROLLER {"stream_id": 1, "op": "tag", "module_id": "ab", "tags": ["x", "\u00e9"]})");
  EXPECT_EQ(message.op, Op::kTag);
  EXPECT_EQ(message.module_id, "ab");
  EXPECT_EQ(message.tags, (std::vector<std::string>{"x", "\xc3\xa9"}));
  EXPECT_EQ(parse_as<ControllerMessage>(serialize_client_message(message)).tags, message.tags);
  const auto one = R"(CONTROLLER {"stream_id": 1, "op": "tag", "module_id": "ab", "tags": "x"})";
  EXPECT_EQ(parse_as<ControllerMessage>(one).tags, std::vector<std::string>{"x"});

  message =
      parse_as<ControllerMessage>(R"(CONTROLLER {"stream_id": 1, "op": "untag", "tags": "x"})");
  EXPECT_EQ(message.op, Op::kUntag);
  EXPECT_EQ(message.tags, std::vector<std::string>{"x"});
  EXPECT_EQ(serialize_client_message(message),
            R"(CONTROLLER {"op": "untag", "tags": ["x"], "stream_id": 1})");

  message = parse_as<ControllerMessage>(R"(CONTROLLER {"stream_id": 1, "op": "list"})");
  EXPECT_EQ(message.op, Op::kList);
  EXPECT_EQ(serialize_client_message(message), R"(CONTROLLER {"op": "list", "stream_id": 1})");
}

TEST(ParseClient, BiasIsSortedByTokenId) {
  const auto params =
      parse_as<GenerateMessage>(R"(GENERATE {"stream_id": 1, "prompt": [0], "logit_bias":)"
                                R"( {"30": 3, "4": 0.5, "200": -1e30, "0": 0}})")
          .params;
  ASSERT_NE(params.logit_bias, nullptr);
  EXPECT_EQ(params.logit_bias->ids, (std::vector<TokenId>{0, 4, 30, 200}));
  EXPECT_EQ(params.logit_bias->values, (std::vector<float>{0.0F, 0.5F, 3.0F, -1e30F}));
}

TEST(ParseClient, AnEmptyBiasIsNone) {
  const auto params =
      parse_as<GenerateMessage>(R"(GENERATE {"stream_id": 1, "prompt": [0], "logit_bias": {}})")
          .params;
  EXPECT_EQ(params.logit_bias, nullptr);
}

std::string with_bias(const std::string& bias, int stream_id) {
  return "GENERATE {\"stream_id\": " + std::to_string(stream_id) + ", \"logit_bias\": " + bias +
         ", \"prompt\": [1, 2]}";
}

TEST(ParseClient, EqualBiasesAreKeptOnce) {
  BiasCache cache;
  const std::string bias = R"({"5": 100, "7": 100})";
  const auto first = parse_as<GenerateMessage>(with_bias(bias, 1), cache);
  const auto second = parse_as<GenerateMessage>(with_bias(bias, 2), cache);
  const auto other = parse_as<GenerateMessage>(with_bias(R"({"5": 100, "8": 100})", 3), cache);
  EXPECT_EQ(first.params.logit_bias, second.params.logit_bias);
  EXPECT_NE(first.params.logit_bias, other.params.logit_bias);
  EXPECT_EQ(second.stream_id, 2);
  EXPECT_EQ(second.prompt, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(other.params.logit_bias->ids, (std::vector<TokenId>{5, 8}));
}

TEST(ParseClient, AKnownBiasDoesNotHideABrokenRest) {
  BiasCache cache;
  const std::string bias = R"({"5": 100})";
  parse_as<GenerateMessage>(with_bias(bias, 1), cache);
  for (const std::string rest : {"", "}}", ", \"prompt\": [1]", "x, \"prompt\": [1]}",
                                 ", \"prompt\": [1], \"logit_bias\": {\"6\": 1}}"}) {
    const std::string text = "GENERATE {\"stream_id\": 1, \"logit_bias\": " + bias + rest;
    EXPECT_TRUE(std::holds_alternative<ParseError>(parse_client_message(text, cache))) << text;
  }
}

TEST(ParseClient, KeysAndStringsMayBeEscaped) {
  BiasCache cache;
  const auto message = parse_as<GenerateMessage>(
      R"(GENERATE {"stream\u005fid": 9, "logit\u005fbias": {"\u0035": 1}, "prompt": [1],)"
      R"( "model": "a\"}\\, \"logit_bias\": {"})",
      cache);
  EXPECT_EQ(message.stream_id, 9);
  EXPECT_EQ(message.model, R"(a"}\, "logit_bias": {)");
  ASSERT_NE(message.params.logit_bias, nullptr);
  EXPECT_EQ(message.params.logit_bias->ids, (std::vector<TokenId>{5}));
}

std::string refusal(const std::string& text, RequestLimits limits, std::string* model = nullptr) {
  BiasCache cache;
  const auto parsed = parse_client_message(text, cache, [&](std::string_view name) {
    if (model != nullptr) *model = name;
    return limits;
  });
  const auto* error = std::get_if<ParseError>(&parsed);
  if (error == nullptr) return "";
  EXPECT_EQ(error->stream_id, 7) << error->message;
  return error->message;
}

TEST(ParseClient, WhatIsLongerThanTheModelTakesIsRefusedUnread) {
  const RequestLimits limits = {.num_tokens = 9000, .num_biases = 4000};
  const std::string tail = R"(, "model": "org/m", "stream_id": 7})";
  std::string model;
  // No entry is an id: whoever had read them would say so.
  // A part may have two commas and no token.
  for (const char* entry : {"1", "\"\"", "NaN", "[1]", "-1.5"}) {
    const std::string many = "[" + repeated(entry, 9001 + 512) + "]" + tail;
    EXPECT_EQ(refusal("GENERATE {\"prompt\": " + many, limits, &model),
              "prompt: has more than 9000 tokens; allowed are at most 9000 (the context)");
    EXPECT_EQ(model, "org/m");
    EXPECT_EQ(refusal("SCORE {\"prompt\": [], \"scored\": " + many, limits),
              "scored: has more than 9000 tokens; allowed are at most 9000 (the context)");
  }
  EXPECT_EQ(refusal("GENERATE {\"prompt\": [" + repeated("1", 9001) + "]" + tail, limits),
            "prompt: has more than 9000 tokens; allowed are at most 9000 (the context)");
  EXPECT_EQ(refusal("GENERATE {\"prompt\": [" + repeated("1", 9000) + "]" + tail, limits), "");
  EXPECT_EQ(refusal("GENERATE {\"prompt\": [\"" + repeated("a", 20000) + "\"]" + tail, limits), "")
      << "commas of a text are no tokens";
  const std::string ids = "[" + repeated("1", 4000) + "]";
  EXPECT_EQ(refusal("GENERATE {\"prompt\": [\"a\", " + ids + "," + ids + "]" + tail, limits), "");
  EXPECT_EQ(refusal("GENERATE {\"prompt\": [1], \"logit_bias\": {" + repeated("\"5\": x", 4001) +
                        "}" + tail,
                    limits),
            "logit_bias: has more than 4000 entries; allowed are at most 4000 (the vocabulary)");
}

TEST(ParseClient, WhatIsLongAndCutOffIsNotReadEither) {
  const std::string open = "[" + repeated("1", 9001);
  EXPECT_EQ(refusal("GENERATE {\"stream_id\": 7, \"prompt\": " + open, {.num_tokens = 512}),
            "payload: is not valid JSON; one JSON object is expected after the verb");
}

TEST(ParseClient, NoOtherFieldHoldsMegabytes) {
  const std::string zeros = "[" + repeated("0", 1 << 19) + "]";
  const std::string size = std::to_string(zeros.size());
  for (const char* key : {"x", "temperature", "pr\\u006fmpt"}) {
    const std::string field = ", \"" + std::string(key) + "\": " + zeros + "}";
    EXPECT_EQ(refusal("SCORE {\"stream_id\": 7, \"scored\": [1]" + field, {}),
              std::string(key) + ": has " + size + " bytes; allowed are at most 1048576");
  }
}

TEST(ParseClient, WhatIsSerializedReadsBackTheSame) {
  auto bias = std::make_shared<LogitBias>();
  bias->ids = {1, 20, 21};
  bias->values = {-100.0F, 0.1F, -0.0F};
  GenerateMessage generate;
  generate.stream_id = 12;
  generate.model = "a \"b\"\n";
  generate.prompt = {1, 2, 3};
  generate.params.temperature = 0.7F;
  generate.params.top_p = 0.9F;
  generate.params.top_k = 3;
  generate.params.min_p = 0.05F;
  generate.params.typical_p = 0.95F;
  generate.params.repetition_penalty = 1.1F;
  generate.params.presence_penalty = -0.5F;
  generate.params.frequency_penalty = 0.25F;
  generate.params.top_logprobs = 0;
  generate.params.max_tokens = 5;
  generate.params.seed = 1234567890123456789ULL;
  generate.params.has_seed = true;
  generate.params.logit_bias = bias;
  const auto back = parse_as<GenerateMessage>(serialize_client_message(generate));
  EXPECT_EQ(back.stream_id, generate.stream_id);
  EXPECT_EQ(back.model, generate.model);
  EXPECT_EQ(back.prompt, generate.prompt);
  EXPECT_EQ(back.params.temperature, generate.params.temperature);
  EXPECT_EQ(back.params.top_p, generate.params.top_p);
  EXPECT_EQ(back.params.top_k, generate.params.top_k);
  EXPECT_EQ(back.params.min_p, generate.params.min_p);
  EXPECT_EQ(back.params.typical_p, generate.params.typical_p);
  EXPECT_EQ(back.params.repetition_penalty, generate.params.repetition_penalty);
  EXPECT_EQ(back.params.presence_penalty, generate.params.presence_penalty);
  EXPECT_EQ(back.params.frequency_penalty, generate.params.frequency_penalty);
  EXPECT_EQ(back.params.top_logprobs, 0);
  EXPECT_EQ(back.params.max_tokens, 5);
  EXPECT_EQ(back.params.seed, generate.params.seed);
  EXPECT_EQ(*back.params.logit_bias, *bias);
  EXPECT_TRUE(std::signbit(back.params.logit_bias->values[2]));

  const auto score =
      parse_as<ScoreMessage>(serialize_client_message(ScoreMessage{1, "", {1}, {2, 3}}));
  EXPECT_EQ(score.scored, (std::vector<TokenId>{2, 3}));
  EXPECT_EQ(parse_as<ModelInfoMessage>(serialize_client_message(ModelInfoMessage{7, "m"})).model,
            "m");
  EXPECT_EQ(parse_as<CancelMessage>(serialize_client_message(CancelMessage{8})).stream_id, 8);
}

}  // namespace
}  // namespace lmtp::protocol
