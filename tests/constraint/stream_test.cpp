// Streams that are kept to a grammar: how they end, and that they are the same whatever was cut,
// forked, computed again or put behind others.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/request/bad_words.h"
#include "support/constraint_driver.h"

namespace lmtp::constraint {
namespace {

using testing::Drawn;
using testing::Kind;
using testing::Streams;

constexpr const char* kPerson = R"({"type":"object","properties":{
    "full name":{"type":"string","maxLength":20},"age":{"type":"integer"},
    "address":{"type":"object","properties":{"house number":{"type":"integer"},
      "country":{"enum":["Österreich","Côte d'Ivoire"]}},
      "required":["house number","country"],"additionalProperties":false},
    "kind of animal":{"const":"  two spaces, 123456 digits it's"}},
    "required":["full name","age","address","kind of animal"],"additionalProperties":false,
    "x-guidance":{"whitespace_flexible":false}})";

// Ends a stream with its n-th token.
class CountingStop : public StopChecker {
 public:
  explicit CountingStop(int left) : left_(left) {}
  bool push(TokenId /*token*/, bool may_stop) override { return --left_ <= 0 && may_stop; }
  std::unique_ptr<StopChecker> restarted(std::span<const TokenId> /*before*/,
                                         std::span<const TokenId> generated) const override {
    return std::make_unique<CountingStop>(left_ + static_cast<int>(generated.size()));
  }

 private:
  int left_;
};

std::vector<TokenId> first(const std::vector<TokenId>& tokens, std::size_t num) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(num)};
}

TEST(StreamTest, ACompleteTextEndsWithItsLastToken) {
  Streams streams;
  const auto stream = constrain(streams.grammar(Kind::kChoice, R"(["yes","no"])"), {}, nullptr);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto again = constrain(streams.grammar(Kind::kChoice, R"(["yes","no"])"), {}, nullptr);
    const Drawn drawn = streams.draw(*again, seed, 10);
    EXPECT_TRUE(drawn.has_ended);
    const std::string text = streams.text_of(drawn.tokens);
    EXPECT_TRUE(text == "yes" || text == "no") << text;
    EXPECT_NE(drawn.tokens.back(), streams.eos());
  }
}

// A chat model ends its answers by a token that is not among the model's end tokens.
TEST(StreamTest, WhatElseEndsTheStreamMayFollowWhereAnEndTokenMay) {
  Streams streams(testing::load("tests/goldens/tokenizers/qwen2"));
  TokenId special = 0;
  while (special == streams.eos() || !streams.tokenizer().is_special(special)) ++special;
  const TokenId digit = streams.tokenizer().encode_continuation("7")->back();
  const auto stream = constrain(streams.grammar(Kind::kRegex, "[0-9]+"), {}, nullptr, {},
                                {special, digit, streams.tokenizer().vocab_size() + 100});
  ASSERT_TRUE(stream.ok());
  const auto begin = streams.next(*stream->mask_source, {});
  EXPECT_FALSE(begin->allows(special) || begin->allows(streams.eos()));
  const auto after = streams.next(*stream->mask_source, std::vector<TokenId>{digit});
  EXPECT_TRUE(after->allows(special) && after->allows(streams.eos()) && after->allows(digit));
  const auto letters = constrain(streams.grammar(Kind::kRegex, "[a-z]+"), {}, nullptr, {}, {digit});
  const TokenId letter = streams.tokenizer().encode_continuation("a")->back();
  const auto text = streams.next(*letters->mask_source, std::vector<TokenId>{letter});
  EXPECT_TRUE(text->allows(streams.eos()));
  EXPECT_FALSE(text->allows(digit));
}

// What the tokenizer spells with ids that the model has no logits for is spelled with others.
TEST(StreamTest, IdsBeyondTheVocabularyAreNeverAllowed) {
  constexpr int kVocabSize = 400;
  Streams streams(testing::demo(), {.timeout = std::chrono::hours(1)}, kVocabSize);
  ASSERT_GT(streams.tokenizer().vocab_size(), kVocabSize);
  const std::string text = "the money";
  const auto ids = streams.tokenizer().encode_continuation(text);
  ASSERT_GE(std::ranges::max(*ids), kVocabSize);
  for (const bool forces : {false, true}) {
    const auto grammar = streams.grammar(forces ? Kind::kChoice : Kind::kRegex,
                                         forces ? R"(["the money"])" : "the [a-z]+ey");
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto stream = constrain(grammar, {}, nullptr);
      const Drawn drawn = streams.draw(*stream, seed, 100);
      ASSERT_FALSE(drawn.error) << drawn.error->message;
      EXPECT_LT(std::ranges::max(drawn.tokens), kVocabSize);
      if (forces) {
        EXPECT_EQ(streams.text_of(drawn.tokens), text);
      }
    }
  }
  const auto wrong = constrain(streams.grammar(Kind::kChoice, R"(["the money"])"), *ids, nullptr);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("is not one that the grammar allows"), std::string::npos);
}

TEST(StreamTest, AnEndTokenIsAllowedWhereTheGrammarAccepts) {
  Streams streams;
  const auto stream = constrain(streams.grammar(Kind::kRegex, "a{2,}"), {}, nullptr);
  const auto a = streams.tokenizer().encode_continuation("a");
  const TokenId letter = a->front();
  const std::vector<TokenId> one = {letter};
  const std::vector<TokenId> two = {letter, letter};
  EXPECT_FALSE(streams.next(*stream->mask_source, one)->allows(streams.eos()));
  EXPECT_TRUE(streams.next(*stream->mask_source, two)->allows(streams.eos()));
  // Which ends the stream, also where the engine was told to ignore it.
  EXPECT_FALSE(stream->stops->push(letter, true));
  EXPECT_FALSE(stream->stops->push(letter, true));
  EXPECT_TRUE(stream->stops->push(streams.eos(), true));
}

TEST(StreamTest, WhatCannotStopYetGoesOnWithAnEndTokenAlone) {
  Streams streams;
  const auto stream = constrain(streams.grammar(Kind::kRegex, "a"), {}, nullptr);
  const auto a = streams.tokenizer().encode_continuation("a");
  EXPECT_FALSE(stream->stops->push(a->front(), false));
  const auto next = streams.next(*stream->mask_source, *a);
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next->allowed(), std::vector<TokenId>{streams.eos()});
  EXPECT_TRUE(stream->stops->push(streams.eos(), true));
}

TEST(StreamTest, TheTextsOwnStopsEndItToo) {
  Streams streams;
  const auto grammar = streams.grammar(Kind::kRegex, "[a-z ]*");
  const auto stream = constrain(grammar, {}, std::make_shared<CountingStop>(3));
  const Drawn drawn = streams.draw(*stream, 1, 20);
  EXPECT_TRUE(drawn.has_ended);
  EXPECT_EQ(drawn.tokens.size(), 3U);
  const auto restarted = stream->stops->restarted({}, first(drawn.tokens, 2));
  EXPECT_FALSE(restarted->push(drawn.tokens[0], true));
  EXPECT_TRUE(restarted->push(drawn.tokens[1], true));
}

// Tokenizers spell the rest of a text in different ways where it begins.
class ForcedTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ForcedTest, TokensAreThoseThatAreDrawnOneByOne) {
  Streams streams(testing::load(GetParam()));
  const auto grammar = streams.grammar(Kind::kJsonSchema, kPerson);
  ASSERT_NE(grammar, nullptr);
  constexpr std::size_t kMost = 120;
  int num_forced = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto forcing = constrain(grammar, {}, nullptr);
    const auto drawing = constrain(grammar, {}, std::make_shared<CountingStop>(100000));
    const Drawn forced = streams.draw(*forcing, seed, kMost);
    const Drawn drawn = streams.draw(*drawing, seed, kMost);
    ASSERT_FALSE(forced.error) << forced.error->message << streams.text_of(forced.tokens);
    EXPECT_EQ(drawn.num_forced, 0);
    EXPECT_EQ(forced.tokens, drawn.tokens) << streams.text_of(forced.tokens) << "\n"
                                           << streams.text_of(drawn.tokens);
    EXPECT_EQ(forced.has_ended, drawn.has_ended);
    num_forced += forced.num_forced;
    // From wherever a client takes it up again it goes the same way.
    for (std::size_t num = 0; num < forced.tokens.size(); num += 1 + seed) {
      const auto begin = first(forced.tokens, num);
      const auto resumed = constrain(grammar, begin, nullptr);
      ASSERT_TRUE(resumed.ok()) << resumed.error().message;
      EXPECT_EQ(streams.draw(*resumed, seed, kMost, begin).tokens, forced.tokens) << num;
    }
  }
  EXPECT_GT(num_forced, 10);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, ForcedTest,
                         ::testing::Values("models/demo", "tests/goldens/tokenizers/llama2",
                                           "tests/goldens/tokenizers/llama3",
                                           "tests/goldens/tokenizers/gemma",
                                           "tests/goldens/tokenizers/qwen2",
                                           "tests/goldens/tokenizers/tekken"));

TEST(StreamTest, WhatNoTokenSpellsIsAnErrorOfThatStream) {
  Streams streams(testing::load("tests/goldens/tokenizers/unigram"));
  const auto grammar = streams.grammar(Kind::kRegex, "C\u00f4te");
  const auto stream = constrain(grammar, {}, nullptr);
  const auto next =
      streams.next(*stream->mask_source, *streams.tokenizer().encode_continuation("C"));
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, ErrorCode::kConstraint);
  EXPECT_EQ(next.error().message,
            "constraint: none of the model's tokens goes on as the grammar wants it here");
}

// What the grammar forces ends before the token that would make a bad word; nothing may follow.
TEST(StreamTest, BadWordsNarrowAGrammar) {
  Streams streams;
  const auto ids = [&](const std::string& text) {
    return *streams.tokenizer().encode_continuation(text);
  };
  const auto stream = constrain(streams.grammar(Kind::kChoice, R"(["abcabdcab"])"), {}, nullptr);
  const auto plain = streams.next(*stream->mask_source, {});
  std::vector<TokenId> forced = plain->allowed();
  ASSERT_EQ(forced.size(), 1U);
  forced.insert(forced.end(), plain->forced.begin(), plain->forced.end());
  ASSERT_GE(forced.size(), 4U) << "letters, or pairs of them";
  for (std::size_t length = 1; length <= 2; ++length) {
    for (std::size_t last = length - 1; last < forced.size(); ++last) {
      const auto begin = forced.begin() + static_cast<std::ptrdiff_t>(last + 1 - length);
      const std::vector<TokenId> word(begin, begin + static_cast<std::ptrdiff_t>(length));
      const auto at = static_cast<std::size_t>(
                          std::search(forced.begin(), forced.end(), word.begin(), word.end()) -
                          forced.begin()) +
                      length - 1;
      const auto source =
          without(std::make_shared<const BadWords>(BadWords{{}, {word}}), stream->mask_source);
      const auto next = streams.next(*source, {});
      ASSERT_TRUE(next.ok());
      EXPECT_EQ(next->allowed(), first(forced, at == 0 ? 0 : 1));
      const std::vector<TokenId> behind(forced.begin() + 1, forced.end());
      EXPECT_EQ(next->forced, first(behind, at == 0 ? 0 : at - 1));
      EXPECT_TRUE(streams.next(*source, first(forced, at))->allowed().empty());
      EXPECT_TRUE(streams.next(*source->forked(), first(forced, at))->allowed().empty());
    }
  }
  const auto letters = constrain(streams.grammar(Kind::kRegex, "[ab]{9}"), {}, nullptr);
  const auto source = without(
      std::make_shared<const BadWords>(BadWords{{}, {ids("a"), {ids("b")[0], ids("b")[0]}}}),
      letters->mask_source);
  EXPECT_FALSE(streams.next(*source, {})->allows(ids("a")[0]));
  EXPECT_TRUE(streams.next(*source, {})->allows(ids("b")[0]));
  EXPECT_FALSE(streams.next(*source, ids("b"))->allows(ids("b")[0]));
}

TEST(StreamTest, MasksAfterAStepBackAreThoseOfAFreshStream) {
  Streams streams;
  const auto grammar = streams.grammar(Kind::kJsonSchema, kPerson);
  const auto stream = constrain(grammar, {}, nullptr);
  const Drawn drawn = streams.draw(*stream, 7, 80);
  ASSERT_GT(drawn.tokens.size(), 40U);
  for (const std::size_t num : {39U, 3U, 25U, 24U, 26U, 0U, 40U}) {
    const auto begin = first(drawn.tokens, num);
    const auto fresh = constrain(grammar, {}, nullptr);
    const auto back = streams.next(*stream->mask_source, begin);
    const auto anew = streams.next(*fresh->mask_source, begin);
    ASSERT_TRUE(back.ok() && anew.ok());
    EXPECT_EQ(back->words, anew->words) << num;
    EXPECT_EQ(back->forced, anew->forced) << num;
  }
}

TEST(StreamTest, ABacktrackIntoTheMiddleAndAnotherEnd) {
  Streams streams;
  const auto grammar = streams.grammar(Kind::kRegex, "(ab|ac)(de|d)f");
  const auto stream = constrain(grammar, {}, nullptr);
  const auto ids = [&](const char* text) {
    std::vector<TokenId> tokens;
    for (const char c : std::string(text)) {
      tokens.push_back(streams.tokenizer().encode_continuation(std::string(1, c))->front());
    }
    return tokens;
  };
  for (const TokenId token : ids("abd")) EXPECT_FALSE(stream->stops->push(token, true));
  // Two tokens are dropped and others appended, which no choice was made for.
  const auto stops = stream->stops->restarted({}, ids("a"));
  EXPECT_TRUE(streams.next(*stream->mask_source, ids("acde")).ok());
  EXPECT_FALSE(stops->push(ids("c")[0], false));
  EXPECT_FALSE(stops->push(ids("d")[0], false));
  EXPECT_FALSE(stops->push(ids("e")[0], false));
  EXPECT_TRUE(stops->push(ids("f")[0], true));
  // What the grammar does not allow is named.
  const auto refused = streams.next(*stream->mask_source, ids("acx"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kConstraint);
  EXPECT_EQ(refused.error().message,
            "constraint: token " + std::to_string(ids("x")[0]) +
                " (\"x\"), which is generated token 2, is not one that the grammar allows there");
  // And the stream is none the worse for it.
  EXPECT_TRUE(streams.next(*stream->mask_source, ids("ab")).ok());
  const auto resumed = constrain(grammar, ids("abx"), nullptr);
  ASSERT_FALSE(resumed.ok());
  EXPECT_EQ(resumed.error().code, ErrorCode::kInvalid);
  EXPECT_TRUE(resumed.error().message.starts_with("resumed: token ")) << resumed.error().message;
}

TEST(StreamTest, ForksGoTheirOwnWay) {
  Streams streams;
  const auto grammar = streams.grammar(Kind::kJson, "");
  const auto parent = constrain(grammar, {}, nullptr);
  const auto begin = streams.draw(*parent, 1, 12).tokens;
  std::vector<Drawn> alone;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    alone.push_back(streams.draw(*constrain(grammar, begin, nullptr), seed, 60, begin));
  }
  // In turns, a few tokens each.
  std::vector<ConstrainedStream> forks;
  std::vector<Drawn> drawn(alone.size(), Drawn{.tokens = begin});
  for (std::size_t i = 0; i < alone.size(); ++i) {
    forks.push_back({parent->mask_source->forked(), parent->stops->restarted({}, begin)});
  }
  for (std::size_t most = 15; most <= 60; most += 3) {
    for (std::size_t i = 0; i < forks.size(); ++i) {
      if (drawn[i].has_ended || drawn[i].tokens.size() >= most) continue;
      drawn[i] = streams.draw(forks[i], i, most, drawn[i].tokens);
      ASSERT_FALSE(drawn[i].error);
    }
  }
  for (std::size_t i = 0; i < forks.size(); ++i) {
    EXPECT_EQ(drawn[i].tokens, alone[i].tokens);
    EXPECT_EQ(drawn[i].has_ended, alone[i].has_ended);
  }
}

TEST(StreamTest, ThreadsMayAskTheSameSource) {
  Streams streams;
  const auto grammar = streams.grammar(Kind::kJsonSchema, kPerson);
  const auto stream = constrain(grammar, {}, nullptr);
  const auto tokens = streams.draw(*stream, 3, 60).tokens;
  std::vector<std::vector<std::uint32_t>> expected;
  for (std::size_t num = 0; num < tokens.size(); ++num) {
    const auto fresh = constrain(grammar, {}, nullptr);
    expected.push_back(streams.next(*fresh->mask_source, first(tokens, num))->words);
  }
  const auto fork = stream->mask_source->forked();
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const MaskSource& source = t % 2 == 0 ? *stream->mask_source : *fork;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::size_t num = t < 2 ? i : tokens.size() - 1 - i;
        const auto next = streams.next(source, first(tokens, num));
        ASSERT_TRUE(next.ok());
        EXPECT_EQ(next->words, expected[num]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StreamTest, WhatBecomesTooComplexIsAnErrorOfThatStream) {
  Streams streams;
  // All that is begun ends with the last letter.
  const auto grammar =
      streams.grammar(Kind::kLark, "start: s\ns: \"a\" s | \"a\" s \"x\" | \"a\" s \"y\" | \"a\"");
  ASSERT_NE(grammar, nullptr);
  const auto stream = constrain(grammar, {}, nullptr);
  const std::vector<TokenId> letters(800, streams.tokenizer().encode_continuation("a")->front());
  EXPECT_TRUE(streams.next(*stream->mask_source, first(letters, 10)).ok());
  const auto next = streams.next(*stream->mask_source, letters);
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, ErrorCode::kConstraint);
  EXPECT_TRUE(next.error().message.starts_with("constraint: ")) << next.error().message;
}

}  // namespace
}  // namespace lmtp::constraint
