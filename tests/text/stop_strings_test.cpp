#include "lmtp/text/stop_strings.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace lmtp::text {
namespace {

StopMatcher matcher(std::vector<std::string> strings) {
  return StopMatcher(std::make_shared<const StopStrings>(std::move(strings)));
}

TEST(StopMatcher, FindsAStringAcrossPieces) {
  StopMatcher stops = matcher({"\n\n"});
  EXPECT_FALSE(stops.push("one\n", true));
  EXPECT_EQ(stops.num_held(), 1U);
  EXPECT_FALSE(stops.push("two", true));
  EXPECT_EQ(stops.num_held(), 0U);
  EXPECT_FALSE(stops.push("\n", true));
  const auto match = stops.push("\nthree", true);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->end, 1U);
}

TEST(StopMatcher, GivesWhatEndsFirstAndOfThoseTheLongest) {
  StopMatcher stops = matcher({"abcd", "c", "bc", "zbc"});
  const auto match = stops.push("xabcd", true);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->end, 4U);
  EXPECT_EQ(stops.stops()[match->which], "bc");
}

TEST(StopMatcher, FallsBackToAShorterBeginning) {
  StopMatcher stops = matcher({"aabaaa"});
  EXPECT_FALSE(stops.push("aabaab", true));
  EXPECT_EQ(stops.num_held(), 3U);
  EXPECT_TRUE(stops.push("aaa", true));
}

TEST(StopMatcher, WhatIsFoundTooEarlyDoesNotCountLater) {
  StopMatcher stops = matcher({"aa"});
  EXPECT_FALSE(stops.push("aa", false));
  EXPECT_EQ(stops.num_held(), 1U);
  EXPECT_FALSE(stops.push("b", true));
  EXPECT_FALSE(stops.push("a", true));
  EXPECT_TRUE(stops.push("a", true));
}

TEST(StopMatcher, HoldsNothingWithoutStopStrings) {
  StopMatcher stops = matcher({});
  EXPECT_FALSE(stops.push("text", true));
  EXPECT_EQ(stops.num_held(), 0U);
}

}  // namespace
}  // namespace lmtp::text
