// Messages with text, buffers, stops and masks that are right, and what they mean.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/protocol/codec.h"
#include "parse_as.h"

namespace lmtp::protocol {
namespace {

GenerateMessage parsed(const std::string& fields) {
  return parse_as<GenerateMessage>("GENERATE {\"stream_id\": 7, " + fields + "}");
}

TEST(ParseText, APromptMayBeAString) {
  const auto message = parsed(R"("prompt": "a\u00e9, \"b\"")");
  EXPECT_TRUE(message.prompt.empty());
  ASSERT_EQ(message.options.prompt_parts.size(), 1U);
  EXPECT_EQ(std::get<std::string>(message.options.prompt_parts[0]), "a\xc3\xa9, \"b\"");
  EXPECT_FALSE(message.options.text.has_value());
  EXPECT_TRUE(message.options.add_special_tokens);
  EXPECT_TRUE(message.options.skip_special_tokens);

  const auto empty = parsed(R"("prompt": "")");
  ASSERT_EQ(empty.options.prompt_parts.size(), 1U) << "BOS alone";
}

TEST(ParseText, APromptMayBeOfParts) {
  const auto message =
      parsed(R"("prompt": [[5, 6], "a", {"buffer": "b"}, {"upto": 3, "buffer": "c"}, [],)"
             R"( {"buffer": "d", "upto": null}])");
  EXPECT_TRUE(message.prompt.empty());
  const auto& parts = message.options.prompt_parts;
  ASSERT_EQ(parts.size(), 6U);
  EXPECT_EQ(std::get<std::vector<TokenId>>(parts[0]), (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(std::get<std::string>(parts[1]), "a");
  EXPECT_EQ(std::get<BufferPart>(parts[2]).name, "b");
  EXPECT_EQ(std::get<BufferPart>(parts[2]).upto, std::nullopt);
  EXPECT_EQ(std::get<BufferPart>(parts[3]).upto, 3U);
  EXPECT_TRUE(std::get<std::vector<TokenId>>(parts[4]).empty());
  EXPECT_EQ(std::get<BufferPart>(parts[5]).upto, std::nullopt);
}

TEST(ParseText, AGrammarIsATypeAndItsValue) {
  const std::vector<std::pair<std::string, Grammar>> cases = {
      {R"({"type": "regex", "value": "[0-9]+\n"})", {Grammar::Kind::kRegex, "[0-9]+\n"}},
      {R"({"value": ["a", "b\u00e9"], "type": "choice"})",
       {Grammar::Kind::kChoice, "[\"a\",\"b\xc3\xa9\"]"}},
      {R"({"type": "json"})", {Grammar::Kind::kJson, ""}},
      {R"({"type": "json", "value": null})", {Grammar::Kind::kJson, ""}},
      {R"({"type": "json", "value": {"z": 1, "a": [2]}})",
       {Grammar::Kind::kJsonSchema, R"({"z":1,"a":[2]})"}},
      {R"({"type": "gbnf", "value": "root ::= \"a\""})", {Grammar::Kind::kGbnf, "root ::= \"a\""}},
  };
  for (const auto& [json, expected] : cases) {
    const auto message = parsed(R"("prompt": [1], "grammar": )" + json);
    ASSERT_TRUE(message.grammar.has_value()) << json;
    EXPECT_EQ(*message.grammar, expected) << json;
    const auto back = parse_as<GenerateMessage>(serialize_client_message(message));
    EXPECT_EQ(back.grammar, message.grammar) << json;
  }
  EXPECT_FALSE(parsed(R"("prompt": [1], "grammar": null)").grammar.has_value());
}

TEST(ParseText, TokensThatAreListed) {
  const auto message = parsed(R"("prompt": [1], "logprob_token_ids": [7, 5])");
  ASSERT_NE(message.params.logprob_token_ids, nullptr);
  const auto back = parse_as<GenerateMessage>(serialize_client_message(message));
  EXPECT_EQ(*back.params.logprob_token_ids, (std::vector<TokenId>{7, 5}));
  EXPECT_EQ(parsed(R"("prompt": [1], "logprob_token_ids": [])").params.logprob_token_ids, nullptr);
  BiasCache cache;
  const auto score = std::get<ScoreMessage>(std::get<ClientMessage>(parse_client_message(
      R"(SCORE {"stream_id": 1, "prompt": [1], "scored": [2], "logprob_token_ids": [3]})", cache)));
  EXPECT_EQ(*parse_as<ScoreMessage>(serialize_client_message(score)).logprob_token_ids,
            std::vector<TokenId>{3});
}

TEST(ParseText, BadWords) {
  const auto message = parsed(R"("prompt": [1], "bad_words": ["x", " y z"])");
  EXPECT_EQ(message.bad_words, (std::vector<std::string>{"x", " y z"}));
  EXPECT_EQ(parse_as<GenerateMessage>(serialize_client_message(message)).bad_words,
            message.bad_words);
  EXPECT_TRUE(parsed(R"("prompt": [1], "bad_words": [])").bad_words.empty());
}

TEST(ParseText, WhatIsMeasured) {
  EXPECT_FALSE(parsed(R"("prompt": [1], "entropy": false, "rank": null)").params.measures.any());
  const auto message = parsed(R"("prompt": [1], "entropy": true)");
  EXPECT_EQ(message.params.measures, (Measures{.entropy = true, .rank = false}));
  EXPECT_EQ(parse_as<GenerateMessage>(serialize_client_message(message)).params.measures,
            message.params.measures);
  BiasCache cache;
  const auto score = std::get<ScoreMessage>(std::get<ClientMessage>(parse_client_message(
      R"(SCORE {"stream_id": 1, "prompt": [1], "scored": [2], "rank": true})", cache)));
  EXPECT_EQ(parse_as<ScoreMessage>(serialize_client_message(score)).measures,
            (Measures{.entropy = false, .rank = true}));
}

TEST(ParseText, AReplyIsReadWhereThatIsAskedFor) {
  const std::string chat = R"("messages": [{"role": "user"}])";
  EXPECT_FALSE(parsed(chat).reading.has_value());
  const auto plain = parsed(chat + R"(, "parsed": true, "tool_choice": null)");
  ASSERT_TRUE(plain.reading.has_value());
  EXPECT_TRUE(plain.reading->tool_choice.empty() && plain.reading->parallel_tool_calls);
  EXPECT_LT(plain.reading->thinking_token_budget, 0);
  const auto message =
      parsed(chat + R"(, "parsed": true, "tool_choice": {"type": "a"},)"
                    R"( "parallel_tool_calls": false, "thinking_token_budget": 0)");
  const auto back = parse_as<GenerateMessage>(serialize_client_message(message));
  ASSERT_TRUE(back.reading.has_value());
  EXPECT_EQ(back.reading->tool_choice, R"({"type":"a"})");
  EXPECT_FALSE(back.reading->parallel_tool_calls);
  EXPECT_EQ(back.reading->thinking_token_budget, 0);
}

TEST(ParseText, AChatStandsInThePlaceOfAPrompt) {
  const std::string messages = R"([{"role":"user","content":"a\n"},{"role":"x","b":[1.5,{}]}])";
  const auto message =
      parsed(R"("messages": )" + messages +
             R"(, "tools": [{"a": 1}], "chat_template_kwargs": {"enable_thinking": false},)"
             R"( "add_generation_prompt": false)");
  ASSERT_TRUE(message.chat.has_value());
  EXPECT_EQ(message.chat->messages, messages);
  EXPECT_EQ(message.chat->tools, R"([{"a":1}])");
  EXPECT_EQ(message.chat->template_kwargs, R"({"enable_thinking":false})");
  EXPECT_FALSE(message.chat->add_generation_prompt);
  EXPECT_TRUE(message.prompt.empty() && message.options.prompt_parts.empty());

  const auto resumed =
      parsed(R"("messages": [{"role": "user"}], "prompt": [5, 6], "resumed": 2, "tools": null)");
  EXPECT_EQ(resumed.prompt, (std::vector<TokenId>{5, 6}));
  EXPECT_TRUE(resumed.chat->add_generation_prompt && resumed.chat->tools.empty());
  for (const GenerateMessage* chat : {&message, &resumed}) {
    const auto back = parse_as<GenerateMessage>(serialize_client_message(*chat));
    EXPECT_EQ(back.chat->messages, chat->chat->messages);
    EXPECT_EQ(serialize_client_message(back), serialize_client_message(*chat));
  }
  const auto tokenize =
      parse_as<TokenizeMessage>(R"(TOKENIZE {"stream_id": 1, "messages": [{"role": "user"}]})");
  EXPECT_EQ(tokenize.chat->messages, R"([{"role":"user"}])");
  EXPECT_EQ(serialize_client_message(tokenize),
            R"(TOKENIZE {"messages": [{"role":"user"}], "stream_id": 1})");
}

TEST(ParseText, WrongChatsAreNamed) {
  const auto error = [](const std::string& fields) {
    BiasCache cache;
    const auto parsed = parse_client_message("GENERATE {\"stream_id\": 7, " + fields + "}", cache);
    return std::get<ParseError>(parsed).message;
  };
  const std::string allowed =
      "; allowed is an array of messages, {\"role\": \"user\", \"content\": TEXT}";
  EXPECT_EQ(error(R"("messages": "a")"), "messages: is a string" + allowed);
  EXPECT_EQ(error(R"("messages": [])"), "messages: is empty" + allowed);
  EXPECT_EQ(error(R"("messages": [{"role": "a"}, 5])"), "messages[1]: is 5" + allowed);
  EXPECT_EQ(error(R"("messages": [{"role": 1}])"), "messages[0]: has no role" + allowed);
  EXPECT_EQ(error(R"("messages": [{"role": "a"}], "tools": {})"),
            "tools: is an object; allowed is an array");
  EXPECT_EQ(error(R"("messages": [{"role": "a"}], "chat_template_kwargs": 1)"),
            "chat_template_kwargs: is 1; allowed is an object");
  EXPECT_EQ(error(R"("prompt": [1], "tools": 5)"), "tools: is 5; allowed is an array")
      << "also without messages";
  EXPECT_EQ(error(R"("prompt": [1], "parsed": true)"),
            "parsed: stands without messages; allowed is one beside them");
  EXPECT_EQ(error(R"("messages": [{"role": "a"}], "tool_choice": "auto", "parsed": false)"),
            "tool_choice: stands without parsed; allowed is one beside \"parsed\": true");
  EXPECT_EQ(
      error(R"("messages": [{"role": "a"}], "parsed": true,)"
            R"( "grammar": {"type": "json", "triggers": {"openings": ["a"]}})"),
      "grammar.triggers: stand beside parsed, which has its own; allowed is a grammar without");
  EXPECT_TRUE(error(R"("prompt": [1], "add_generation_prompt": "x")")
                  .starts_with("add_generation_prompt: is a string"));
  const std::string beside =
      "prompt: stands beside messages; allowed there are the token ids that came of it before, as "
      "many as resumed says";
  EXPECT_EQ(error(R"("messages": [{"role": "a"}], "prompt": [1])"), beside);
  EXPECT_EQ(error(R"("messages": [{"role": "a"}], "prompt": "b", "resumed": 1)"), beside);
  EXPECT_EQ(error(R"("messages": [{"role": "a"}], "prompt": [1, 2], "resumed": 1)"), beside);
}

TEST(ParseText, AListOfIdsHasNoParts) {
  const auto message = parsed(R"("prompt": [5, 6])");
  EXPECT_EQ(message.prompt, (std::vector<TokenId>{5, 6}));
  EXPECT_TRUE(message.options.prompt_parts.empty());
}

TEST(ParseText, AbsentAndNullFieldsHaveTheirDefaults) {
  for (const char* fields :
       {R"("prompt": [1])",
        R"("prompt": [1], "stop": null, "include_stop": null, "stop_token_ids": null, "n": null,)"
        R"( "ignore_eos": null, "min_tokens": null, "resumed": null, "logprobs": null,)"
        R"( "mask": null, "notices": null, "first_token_timeout_ms": null, "timeout_ms": null,)"
        R"( "into": null, "text": null, "add_special_tokens": null, "skip_special_tokens": null)",
        R"("prompt": [1], "stop": [], "stop_token_ids": [], "resumed": 0, "n": 1)"}) {
    const auto message = parsed(fields);
    EXPECT_TRUE(message.stop.empty());
    EXPECT_FALSE(message.include_stop);
    EXPECT_TRUE(message.params.stop_token_ids.empty());
    EXPECT_EQ(message.num_samples, 1);
    EXPECT_FALSE(message.params.ignore_eos);
    EXPECT_EQ(message.params.min_tokens, 0);
    EXPECT_EQ(message.num_resumed, 0);
    EXPECT_FALSE(message.params.raw_logprobs);
    EXPECT_EQ(message.params.mask, nullptr);
    EXPECT_FALSE(message.options.notices);
    EXPECT_EQ(message.options.first_token_timeout_ms, 0);
    EXPECT_EQ(message.options.timeout_ms, 0);
    EXPECT_TRUE(message.into.empty());
    EXPECT_FALSE(message.options.text.has_value());
    EXPECT_TRUE(message.options.add_special_tokens);
    EXPECT_TRUE(message.options.skip_special_tokens);
    EXPECT_TRUE(message.unknown_keys.empty());
  }
}

TEST(ParseText, OneStopNeedsNoList) {
  EXPECT_EQ(parsed(R"("prompt": [1], "stop": "\n\n")").stop, (std::vector<std::string>{"\n\n"}));
  EXPECT_EQ(parsed(R"("prompt": [1], "stop": ["a", "b"])").stop,
            (std::vector<std::string>{"a", "b"}));
}

TEST(ParseText, OfPartsTheTokensAreCountedLater) {
  EXPECT_EQ(parsed(R"("prompt": "a", "resumed": 50)").num_resumed, 50);
  EXPECT_EQ(parsed(R"("prompt": [1, 2], "resumed": 2)").num_resumed, 2);
}

TEST(ParseText, LogprobsAreProcessedUnlessAskedFor) {
  EXPECT_TRUE(parsed(R"("prompt": [1], "logprobs": "raw")").params.raw_logprobs);
  EXPECT_FALSE(parsed(R"("prompt": [1], "logprobs": "processed")").params.raw_logprobs);
}

TEST(ParseText, AMaskIsBitsLowestFirst) {
  for (const char* mask : {"\"gQAB\"", R"("gQ\u0041B")", "\"gQABAAAAAAAAAAAAAAAAAA==\"",
                           "\"gQABAAAAAAAAAAAAAAAAAA\"", R"("gQABAAAAAAAA\/w")"}) {
    const auto message = parsed("\"prompt\": [1], \"mask\": " + std::string(mask));
    ASSERT_NE(message.params.mask, nullptr) << mask;
    const std::uint64_t first = message.params.mask->words[0];
    EXPECT_EQ(first & 0xFFFFFFFFFFFFFFU, 0x010081U) << mask;
  }
  const auto mask = parsed(R"("mask": "AAAAAAAAAAAB", "prompt": [1])").params.mask;
  ASSERT_NE(mask, nullptr);
  EXPECT_EQ(mask->num_bytes, 9);
  EXPECT_EQ(mask->words, (std::vector<std::uint64_t>{0, 1}));
}

TEST(ParseText, AMaskOfAnyLengthReadsBackTheSame) {
  std::mt19937_64 random(3);
  for (int num_bytes = 1; num_bytes < 40; ++num_bytes) {
    auto mask = std::make_shared<TokenMask>();
    mask->num_bytes = num_bytes;
    mask->words.resize(static_cast<std::size_t>(num_bytes + 7) / 8);
    for (std::uint64_t& word : mask->words) word = random() | 1U;
    if (num_bytes % 8 != 0) mask->words.back() &= (std::uint64_t{1} << num_bytes % 8 * 8) - 1;
    GenerateMessage message;
    message.prompt = {1};
    message.params.mask = mask;
    const auto back = parse_as<GenerateMessage>(serialize_client_message(message));
    ASSERT_NE(back.params.mask, nullptr);
    EXPECT_EQ(*back.params.mask, *mask) << num_bytes;
  }
}

TEST(ParseText, AScoreMayBeText) {
  const auto message = parse_as<ScoreMessage>(
      R"(SCORE {"stream_id": 7, "prompt": "a", "scored": "b", "top_logprobs": 3, "text": false,)"
      R"( "add_special_tokens": false, "notices": true, "timeout_ms": 5})");
  EXPECT_EQ(std::get<std::string>(message.options.prompt_parts.at(0)), "a");
  EXPECT_EQ(message.scored_text, "b");
  EXPECT_TRUE(message.scored.empty());
  EXPECT_EQ(message.top_logprobs, 3);
  EXPECT_EQ(message.options.text, false);
  EXPECT_FALSE(message.options.add_special_tokens);
  EXPECT_TRUE(message.options.notices);
  EXPECT_EQ(message.options.timeout_ms, 5);
  const auto plain =
      parse_as<ScoreMessage>(R"(SCORE {"stream_id": 7, "prompt": [], "scored": [1]})");
  EXPECT_EQ(plain.top_logprobs, 0);
}

TEST(ParseText, CandidatesAreIdsOrText) {
  const auto message = parse_as<ScoreMessage>(
      R"(SCORE {"stream_id": 7, "prompt": [1], "candidates": [[5, 6], "a\"b", [], "c"]})");
  const std::vector<Candidate> candidates = {std::vector<TokenId>{5, 6}, "a\"b",
                                             std::vector<TokenId>{}, "c"};
  EXPECT_EQ(message.candidates, candidates);
  EXPECT_TRUE(message.scored.empty());
  EXPECT_EQ(parse_as<ScoreMessage>(serialize_client_message(message)).candidates, candidates);
}

TEST(ParseText, ADecisionKeepsItsJson) {
  const auto message = parse_as<DecideMessage>(
      R"(DECIDE {"stream_id": 7, "model": "m", "state": "5\"", "questions": {"b": [1.0], "a": 5},)"
      R"( "scoring": "label", "diagnostics": true, "instructions": "x", "notices": true,)"
      R"( "chat_template_kwargs": {"k": null}, "other": 1})");
  EXPECT_EQ(message.state, R"("5\"")");
  EXPECT_EQ(message.questions, R"({"b":[1.0],"a":5})");
  EXPECT_EQ(message.scoring, "label");
  EXPECT_TRUE(message.diagnoses);
  EXPECT_EQ(message.instructions, "x");
  EXPECT_EQ(message.template_kwargs, R"({"k":null})");
  EXPECT_TRUE(message.options.notices);
  EXPECT_EQ(message.unknown_keys, std::vector<std::string>{"other"});
  EXPECT_EQ(serialize_client_message(parse_as<DecideMessage>(serialize_client_message(message))),
            serialize_client_message(message));
  const auto chat = parse_as<DecideMessage>(
      R"(DECIDE {"stream_id": 7, "questions": {}, "messages": [{"role": "user"}]})");
  EXPECT_EQ(chat.messages, R"([{"role":"user"}])");
  EXPECT_EQ(chat.state, "");
  EXPECT_EQ(chat.scoring, "auto");
}

TEST(ParseText, ReadsTheVerbsOfTextAndBuffers) {
  const auto tokenize = parse_as<TokenizeMessage>(
      R"(TOKENIZE {"stream_id": 7, "text": "", "model": "m", "add_special_tokens": false})");
  EXPECT_EQ(tokenize.model, "m");
  EXPECT_FALSE(tokenize.add_special_tokens);
  EXPECT_TRUE(
      parse_as<TokenizeMessage>(R"(TOKENIZE {"stream_id": 7, "text": "a"})").add_special_tokens);

  const auto detokenize = parse_as<DetokenizeMessage>(
      R"(DETOKENIZE {"stream_id": 7, "tokens": [1, 2], "skip_special_tokens": false})");
  EXPECT_EQ(detokenize.tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_FALSE(detokenize.skip_special_tokens);
  EXPECT_TRUE(parse_as<DetokenizeMessage>(R"(DETOKENIZE {"stream_id": 7, "tokens": []})")
                  .skip_special_tokens);

  const auto ids =
      parse_as<BufferMessage>(R"(BUFFER {"stream_id": 7, "buffer": "a", "tokens": [1]})");
  EXPECT_EQ(ids.buffer, "a");
  EXPECT_EQ(std::get<std::vector<TokenId>>(ids.content), (std::vector<TokenId>{1}));
  EXPECT_FALSE(ids.append);
  EXPECT_EQ(ids.add_special_tokens, std::nullopt);
  const auto text = parse_as<BufferMessage>(
      R"(BUFFER {"stream_id": 7, "buffer": "a", "text": "b", "tokens": null, "append": true,)"
      R"( "add_special_tokens": true, "model": "m"})");
  EXPECT_EQ(std::get<std::string>(text.content), "b");
  EXPECT_TRUE(text.append);
  EXPECT_EQ(text.add_special_tokens, true);

  EXPECT_EQ(parse_as<FreeMessage>(R"(FREE {"buffer": "a"})").stream_id, std::nullopt);
  const auto free = parse_as<FreeMessage>(R"(FREE {"stream_id": 7, "buffer": "a"})");
  EXPECT_EQ(free.stream_id, 7);
  EXPECT_EQ(free.buffer, "a");
}

// Each has every member at something else than its default.
const ClientMessage kFull[] = {
    [] {
      GenerateMessage message;
      message.stream_id = 7;
      message.model = "m";
      message.options = {.prompt_parts = {"a\n", std::vector<TokenId>{1}, BufferPart{"b", 2}},
                         .add_special_tokens = false,
                         .text = false,
                         .skip_special_tokens = false,
                         .notices = true,
                         .first_token_timeout_ms = 5,
                         .timeout_ms = kMaxTimeoutMs,
                         .cache_salt = "s"};
      message.stop = {"x", "\"y\""};
      message.include_stop = true;
      message.num_resumed = 1;
      message.num_samples = 2;
      message.params.min_tokens = 2;
      message.params.ignore_eos = true;
      message.params.stop_token_ids = {4, 5};
      message.params.raw_logprobs = true;
      message.params.mask = std::make_shared<TokenMask>(TokenMask{{0x1234}, 2});
      return message;
    }(),
    [] {
      GenerateMessage message;
      message.options.prompt_parts = {"a"};
      message.into = "c";
      return message;
    }(),
    [] {
      ScoreMessage message;
      message.options = {.prompt_parts = {"a"}, .text = true};
      message.scored_text = "b";
      message.top_logprobs = 2;
      return message;
    }(),
    TokenizeMessage{7, "m", "a", false},
    DetokenizeMessage{7, "m", {1, 2}, false},
    BufferMessage{7, "m", "a", "b", true, false},
    BufferMessage{7, "m", "a", std::vector<TokenId>{}, false, true},
    FreeMessage{7, "a"},
    FreeMessage{std::nullopt, "a"},
};

TEST(ParseText, WhatIsSerializedReadsBackTheSame) {
  for (const ClientMessage& message : kFull) {
    const std::string text = serialize_client_message(message);
    BiasCache cache;
    const auto parsed = parse_client_message(text, cache);
    const auto* back = std::get_if<ClientMessage>(&parsed);
    ASSERT_NE(back, nullptr) << text << " " << std::get<ParseError>(parsed).message;
    EXPECT_EQ(back->index(), message.index()) << text;
    EXPECT_EQ(serialize_client_message(*back), text);
  }
}

}  // namespace
}  // namespace lmtp::protocol
