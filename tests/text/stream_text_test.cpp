#include "lmtp/text/stream_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "fake_tokenizer.h"

namespace lmtp::text {
namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t end) {
  return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
}

// Bytes that often make characters, and often do not.
class FewBytes : public lmtp::testing::FakeTokenizer {
 public:
  explicit FewBytes(Random& random) : FakeTokenizer(300) {
    const std::array<std::string, 10> parts = {"a",    "b",    " ",    "\xC3", "\xA9",
                                               "\xE2", "\x82", "\xAC", "\xFF", "\xC3\xA9"};
    for (int id = 0; id < kNumTokens; ++id) {
      std::string& token = bytes_.emplace_back();
      for (std::size_t n = below(random, 4); n > 0; --n) token += parts[below(random, 10)];
    }
  }
  std::string_view token_bytes(TokenId id) const override {
    return is_special(id) ? std::string_view("<s>") : bytes_.at(static_cast<std::size_t>(id));
  }

  static constexpr TokenId kNumTokens = 40;

 private:
  std::vector<std::string> bytes_;
};

struct Case {
  TokenDecoder::Options options;
  std::vector<TokenId> tokens;
  std::vector<std::string> stops;
  bool include_stop = false;
  std::size_t min_tokens = 0;

  std::shared_ptr<const StopStrings> strings() const {
    return std::make_shared<const StopStrings>(stops);
  }
};

Case random_case(Random& random) {
  const std::array<std::string, 6> parts = {"a", "b", " ", "é", "€", "\xEF\xBF\xBD"};
  Case drawn;
  drawn.options.tokenizer = std::make_shared<FewBytes>(random);
  drawn.options.skip_special_tokens = below(random, 2) == 0;
  for (std::size_t n = below(random, 30); n > 0; --n) {
    const bool special = below(random, 10) == 0;
    drawn.tokens.push_back(special ? drawn.options.tokenizer->eos_id()
                                   : static_cast<TokenId>(below(random, FewBytes::kNumTokens)));
  }
  for (std::size_t n = below(random, 5); n > 0; --n) {
    std::string& stop = drawn.stops.emplace_back();
    for (std::size_t length = 1 + below(random, 4); length > 0; --length) {
      stop += parts[below(random, parts.size())];
    }
  }
  if (below(random, 5) == 0) drawn.stops.emplace_back("<s>");  // the special token's text
  drawn.include_stop = below(random, 2) == 0;
  drawn.min_tokens = below(random, 3) == 0 ? below(random, 20) : 0;
  return drawn;
}

// What is certain of the first tokens' text, or all of it.
std::string text_of(const Case& drawn, std::size_t num_tokens, bool to_the_end = false) {
  std::string bytes;
  for (std::size_t i = 0; i < num_tokens; ++i) {
    const TokenId token = drawn.tokens[i];
    const bool skipped =
        drawn.options.skip_special_tokens && drawn.options.tokenizer->is_special(token);
    if (!skipped) bytes += drawn.options.tokenizer->token_bytes(token);
  }
  tokenizer::StreamDecoder decoder;
  std::string text = decoder.push(bytes);
  if (to_the_end) text += decoder.finish();
  return text;
}

// The same by looking at the whole text again and again.
struct Expected {
  std::vector<std::string> pieces;  // of each token up to the end
  std::optional<std::string> stop_text;
};

std::size_t longest_beginning(const std::vector<std::string>& stops, const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t n = 1; n < stop.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

Expected expected_of(const Case& drawn) {
  Expected expected;
  std::size_t num_sent = 0;
  std::string text;
  for (std::size_t i = 0; i < drawn.tokens.size(); ++i) {
    const std::size_t num_seen = text.size();
    const bool counts = i + 1 >= drawn.min_tokens;
    if (drawn.options.skip_special_tokens && drawn.options.tokenizer->is_special(drawn.tokens[i]) &&
        counts && std::ranges::find(drawn.stops, "<s>") != drawn.stops.end()) {
      expected.stop_text = "<s>";
      expected.pieces.push_back(text_of(drawn, i + 1, true).substr(num_sent) +
                                (drawn.include_stop ? "<s>" : ""));
      return expected;
    }
    text = text_of(drawn, i + 1);
    for (std::size_t end = num_seen + 1; end <= text.size() && counts; ++end) {
      for (const std::string& stop : drawn.stops) {
        if (!text.substr(0, end).ends_with(stop)) continue;
        if (!expected.stop_text || stop.size() > expected.stop_text->size()) {
          expected.stop_text = stop;
        }
      }
      if (!expected.stop_text) continue;
      const std::size_t last = end - (drawn.include_stop ? 0 : expected.stop_text->size());
      expected.pieces.push_back(text.substr(num_sent, last - num_sent));
      return expected;
    }
    const std::size_t num_certain = text.size() - longest_beginning(drawn.stops, text);
    expected.pieces.push_back(text.substr(num_sent, num_certain - num_sent));
    num_sent = num_certain;
  }
  return expected;
}

TEST(StreamText, CutsAsALookAtTheWholeTextWould) {
  Random random(1);
  int num_stopped = 0;
  for (int round = 0; round < 4000; ++round) {
    const Case drawn = random_case(random);
    const Expected expected = expected_of(drawn);
    TextStopChecker checker(drawn.options, drawn.strings(), {});
    StreamText stream(drawn.options, drawn.strings(), drawn.include_stop, {});
    num_stopped += expected.stop_text ? 1 : 0;
    for (std::size_t i = 0; i < expected.pieces.size(); ++i) {
      const bool stops = checker.push(drawn.tokens[i], i + 1 >= drawn.min_tokens);
      const bool is_end = expected.stop_text && i + 1 == expected.pieces.size();
      ASSERT_EQ(stops, is_end) << round;
      const StreamText::Piece piece =
          stream.push(drawn.tokens[i], stops ? FinishReason::kStop : FinishReason::kNone);
      ASSERT_EQ(piece.text, expected.pieces[i]) << round << " " << i;
      ASSERT_EQ(piece.stop_text, is_end ? expected.stop_text : std::nullopt) << round;
    }
  }
  EXPECT_GT(num_stopped, 1000) << "stop strings occur";
}

TEST(StreamText, ThePiecesTogetherAreTheDecodedText) {
  Random random(2);
  for (int round = 0; round < 2000; ++round) {
    Case drawn = random_case(random);
    drawn.tokens.push_back(1);
    std::vector<TokenId> shown;
    StreamText stream(drawn.options, drawn.strings(), false, {});
    std::string text;
    for (std::size_t i = 0; i < drawn.tokens.size(); ++i) {
      const TokenId token = drawn.tokens[i];
      const bool skipped =
          drawn.options.skip_special_tokens && drawn.options.tokenizer->is_special(token);
      if (!skipped) shown.push_back(token);
      const bool is_last = i + 1 == drawn.tokens.size();
      text += stream.push(token, is_last ? FinishReason::kLength : FinishReason::kNone).text;
    }
    ASSERT_EQ(text, drawn.options.tokenizer->decode(shown)) << round;
  }
}

TEST(StreamText, AResumedStreamGivesThePiecesOfTheUninterruptedOne) {
  Random random(3);
  for (int round = 0; round < 4000; ++round) {
    const Case drawn = random_case(random);
    const Expected expected = expected_of(drawn);
    const std::size_t num_resumed = below(random, expected.pieces.size() + 1);
    if (expected.stop_text && num_resumed == expected.pieces.size()) continue;  // it has ended
    const std::span<const TokenId> resumed(drawn.tokens.data(), num_resumed);
    TextStopChecker checker(drawn.options, drawn.strings(), resumed);
    StreamText stream(drawn.options, drawn.strings(), drawn.include_stop, resumed);
    for (std::size_t i = num_resumed; i < expected.pieces.size(); ++i) {
      const bool stops = checker.push(drawn.tokens[i], i + 1 >= drawn.min_tokens);
      const StreamText::Piece piece =
          stream.push(drawn.tokens[i], stops ? FinishReason::kStop : FinishReason::kNone);
      ASSERT_EQ(piece.text, expected.pieces[i]) << round << " " << i;
    }
  }
}

TEST(StreamText, TheLastPieceHasWhatWasHeldBack) {
  TokenDecoder::Options options;
  options.tokenizer = std::make_shared<lmtp::testing::FakeTokenizer>(300);
  const auto stops = std::make_shared<const StopStrings>(std::vector<std::string>{"abc"});
  StreamText stream(options, stops, false, {});
  EXPECT_EQ(stream.push('a', FinishReason::kNone).text, "");
  EXPECT_EQ(stream.push('b', FinishReason::kNone).text, "");
  EXPECT_EQ(stream.push(0xC3, FinishReason::kLength).text, "ab\xEF\xBF\xBD");
}

TEST(StreamText, AMarkedTokenIsAStopStringAsAWholeOrNotAtAll) {
  Random random(4);
  TokenDecoder::Options options;
  options.tokenizer = std::make_shared<FewBytes>(random);
  const TokenId special = options.tokenizer->eos_id();
  options.marked = std::make_shared<const std::vector<TokenId>>(1, special);
  for (const std::string stop : {"s>", "s", "<s>"}) {
    const auto stops = std::make_shared<const StopStrings>(std::vector{stop});
    const bool is_whole = stop == "<s>";
    EXPECT_EQ(TextStopChecker(options, stops, {}).push(special, true), is_whole) << stop;
    for (const bool include_stop : {false, true}) {
      StreamText stream(options, stops, include_stop, {});
      const auto piece = stream.push(special, FinishReason::kStop);
      EXPECT_EQ(piece.stop_text.has_value(), is_whole) << stop;
      EXPECT_EQ(piece.text, is_whole && !include_stop ? "" : "\xff<s>\xfe") << stop;
    }
  }
}

// A tokenizer that puts a space in front of every text, which decode() takes away again.
class SpacesInFront : public lmtp::testing::FakeTokenizer {
 public:
  SpacesInFront() : FakeTokenizer(300) {}
  std::size_t spaces_dropped_max() const override { return 1; }
};

TEST(StreamText, OnlyAtTheStartOfATextIsTheSpaceInFrontLeftOut) {
  TokenDecoder::Options options;
  options.tokenizer = std::make_shared<SpacesInFront>();
  const std::vector<TokenId> tokens = {options.tokenizer->bos_id(), ' ', ' ', 'a'};
  for (const bool at_start : {true, false}) {
    options.at_start = at_start;
    StreamText stream(options, nullptr, false, {});
    std::string text;
    for (const TokenId token : tokens) text += stream.push(token, FinishReason::kNone).text;
    EXPECT_EQ(text, at_start ? " a" : "  a");
  }
  EXPECT_TRUE(is_without_text(options, std::vector<TokenId>{options.tokenizer->bos_id()}));
  EXPECT_FALSE(is_without_text(options, std::vector<TokenId>{options.tokenizer->bos_id(), 'a'}));
  options.skip_special_tokens = false;
  EXPECT_FALSE(is_without_text(options, std::vector<TokenId>{options.tokenizer->bos_id()}));
}

}  // namespace
}  // namespace lmtp::text
