
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmtp/base/utf8.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::tokenizer {
namespace {

using namespace std::string_literals;

// Bytes, and how Python's bytes.decode("utf-8", "replace") reads them; "?" stands for U+FFFD.
struct Case {
  std::string bytes;
  std::string text;
};

std::vector<Case> cases() {
  return {
      {"", ""},
      {"plain", "plain"},
      {"\xC3\xA9", "\xC3\xA9"},
      {"\xE4\xBD\xA0\xE5\xA5\xBD", "\xE4\xBD\xA0\xE5\xA5\xBD"},
      {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
      {"\0a"s, "\0a"s},
      {"\x80", "?"},
      {"\xFF\xFE", "??"},
      {"\xC0\xAF", "??"},            // overlong
      {"\xE0\x80\x80", "???"},       // overlong
      {"\xED\xA0\x80", "???"},       // a surrogate
      {"\xF4\x90\x80\x80", "????"},  // above U+10FFFF
      {"\xF5\x80", "??"},            // never a lead byte
      {"\xE4\xBD", "?"},             // cut: one for all of it
      {"\xF0\x9F\x98", "?"},         // cut
      {"\xE4\xBD"
       "A",
       "?A"},                                             // broken off by a letter
      {"\xF0\x9F\xF0\x9F\x98\x80", "?\xF0\x9F\x98\x80"},  // broken off by a lead byte
      {"a\xC3"
       "b\xC3\xA9\xC3",
       "a?b\xC3\xA9?"},
      {"\xE4\xBD\xA0\xA0", "\xE4\xBD\xA0?"},
  };
}

std::string with_replacements(std::string text) {
  for (std::size_t i = 0; (i = text.find('?', i)) != std::string::npos; i += kReplacement.size()) {
    text.replace(i, 1, kReplacement);
  }
  return text;
}

TEST(AppendValidUtf8, ReplacesAsPythonDoes) {
  for (const Case& c : cases()) {
    std::string text;
    append_valid_utf8(c.bytes, text);
    EXPECT_EQ(text, with_replacements(c.text)) << ::testing::PrintToString(c.bytes);
  }
}

TEST(StreamDecoder, GivesTheSameHoweverTheBytesAreCut) {
  for (const Case& c : cases()) {
    // Every way to cut the bytes into pieces: one bit a gap.
    const std::size_t num_gaps = c.bytes.empty() ? 0 : c.bytes.size() - 1;
    for (std::size_t cuts = 0; cuts < (std::size_t{1} << num_gaps); ++cuts) {
      StreamDecoder decoder;
      std::string text;
      std::size_t begin = 0;
      for (std::size_t i = 0; i < c.bytes.size(); ++i) {
        const bool last = i + 1 == c.bytes.size();
        if (!last && (cuts >> i & 1) == 0) continue;
        text += decoder.push(std::string_view(c.bytes).substr(begin, i + 1 - begin));
        begin = i + 1;
      }
      text += decoder.finish();
      ASSERT_EQ(text, with_replacements(c.text))
          << ::testing::PrintToString(c.bytes) << " cut by " << cuts;
    }
  }
}

TEST(StreamDecoder, HoldsBackOnlyWhatMayStillBecomeACharacter) {
  StreamDecoder decoder;
  EXPECT_EQ(decoder.push("a\xF0\x9F"), "a");
  EXPECT_EQ(decoder.push("\x98"), "");
  EXPECT_EQ(decoder.push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(decoder.push("\xED"), "");
  EXPECT_EQ(decoder.push("\xA0"), std::string(kReplacement) + std::string(kReplacement));
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, IsAsNewAfterFinish) {
  StreamDecoder decoder;
  EXPECT_EQ(decoder.push("\xE4\xBD"), "");
  EXPECT_EQ(decoder.finish(), kReplacement);
  EXPECT_EQ(decoder.push("\xA0"), kReplacement);
  EXPECT_EQ(decoder.finish(), "");
}

}  // namespace
}  // namespace lmtp::tokenizer
