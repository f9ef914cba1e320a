#include "generation/json_checker.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

namespace lmtp::server {
namespace {

void expect_as_the_library(const std::string& text) {
  JsonChecker checker;
  checker.push(text);
  EXPECT_EQ(checker.is_whole(), nlohmann::json::accept(text)) << text;
}

// The library's parser, which wants all of a text, says what is right: of texts, of what they begin
// with, and of those with a byte that is missing, another one or one too many.
TEST(JsonChecker, AgreesWithTheLibrary) {
  constexpr std::string_view kBytes = "{}[]\",:\\ \n0159.eE+-utrfalsn";
  std::mt19937 random(7);
  for (const std::string text :
       {R"({"a": [1, -0.5e+3, 20, 0, 1E5], "b\"": {"": [[], {}]}, "c": null})",
        R"([true, false, null, "\u00e9\ud83d\ude00\\/\n", "", {"x" : "]}"} ])", R"("a\"b")", "-0.0",
        "12", " null ", "{}", "[0]", R"(["\ud83d\u0041"])", R"(["\ude00"])"}) {
    expect_as_the_library(text);
    for (std::size_t at = 0; at < text.size(); ++at) {
      expect_as_the_library(text.substr(0, at));
      expect_as_the_library(std::string(text).erase(at, 1));
      for (int i = 0; i < 20; ++i) {
        const char byte = kBytes[random() % kBytes.size()];
        expect_as_the_library(std::string(text).insert(at, 1, byte));
        expect_as_the_library(std::string(text).replace(at, 1, 1, byte));
      }
    }
  }
}

TEST(JsonChecker, TakesNothingThatTheLibraryPassesOver) {
  using namespace std::string_literals;
  for (const std::string& text : {"\xef\xbb\xbf{}"s, "1\0junk"s, "\"\xff<a>\xfe\""s}) {
    JsonChecker checker;
    checker.push(text);
    EXPECT_FALSE(checker.is_whole()) << text;
  }
}

TEST(JsonChecker, KnowsWhatIsWithinAText) {
  JsonChecker checker;
  std::string seen;
  for (const char byte : std::string(R"({"a": "x\"y", "b": 1})")) {
    seen += checker.is_within_text() ? '_' : '-';
    checker.push(byte);
  }
  EXPECT_EQ(seen, "--__---_____---__----");
}

}  // namespace
}  // namespace lmtp::server
