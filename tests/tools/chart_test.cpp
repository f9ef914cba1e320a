#include "lmtp-bench/chart.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace lmtp::tools {
namespace {

using Points = std::vector<std::pair<double, double>>;

// The places of the dots, in order.
Points dots(const std::string& svg) {
  const std::regex dot(R"re(<circle cx="([-0-9.]+)" cy="([-0-9.]+)")re");
  Points places;
  for (std::sregex_iterator at(svg.begin(), svg.end(), dot); at != std::sregex_iterator(); ++at) {
    places.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  }
  return places;
}

std::string svg_of(const Points& points) {
  return charts_svg("heading", {{"title", "x", "y", {{"line", points, 0, false}}, {}}});
}

TEST(Chart, TicksAreRoundAndReachTheHighest) {
  EXPECT_EQ(linear_ticks(10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks(11, 5), (std::vector<double>{0, 5, 10, 15}));
  EXPECT_EQ(linear_ticks(0.07, 5).back(), 0.08);
  EXPECT_EQ(linear_ticks(1, 1), (std::vector<double>{0, 1}));
  for (const double highest : {1e-6, 0.3, 7.0, 999.0, 123456.0}) {
    const auto ticks = linear_ticks(highest, 5);
    EXPECT_GE(ticks.back(), highest * (1 - 1e-9));
    EXPECT_LE(ticks.size(), 7U);
  }
}

TEST(Chart, HigherIsUpAndAxesAreLinearOverASmallRange) {
  const Points places = dots(svg_of({{1, 10}, {2, 20}, {3, 40}}));
  ASSERT_EQ(places.size(), 3U);
  EXPECT_NEAR(places[2].first - places[1].first, places[1].first - places[0].first, 0.2);
  EXPECT_NEAR(places[0].second - places[1].second, (places[1].second - places[2].second) / 2, 0.2);
  EXPECT_GT(places[0].second, places[2].second);
}

TEST(Chart, LargeRangesAreLogarithmic) {
  const std::string svg = svg_of({{1, 1}, {10, 10}, {100, 100}});
  const Points places = dots(svg);
  ASSERT_EQ(places.size(), 3U);
  EXPECT_NEAR(places[2].first - places[1].first, places[1].first - places[0].first, 0.2);
  EXPECT_NEAR(places[0].second - places[1].second, places[1].second - places[2].second, 0.2);
  for (const char* label : {">1<", ">10<", ">100<"}) {
    EXPECT_NE(svg.find(label), std::string::npos) << label;
  }
}

TEST(Chart, APointAloneAndZeroesAreDrawn) {
  EXPECT_EQ(dots(svg_of({{8, 5}})).size(), 1U);
  EXPECT_EQ(dots(svg_of({{8, 0}, {9, 0}})).size(), 2U);
  EXPECT_EQ(dots(svg_of({{8, 0}, {9, 1}, {10, 1000}})).size(), 2U);  // no 0 on a logarithmic axis
  EXPECT_TRUE(dots(svg_of({})).empty());
  for (const auto& [x, y] : dots(svg_of({{8, 5}, {8.5, 5}, {9, 0}}))) {
    EXPECT_GE(x, 0);
    EXPECT_LE(x, 760);
    EXPECT_GE(y, 0);
  }
}

TEST(Chart, NamesAreEscaped) {
  Chart chart{"<title>", "x", "y", {{"a<b", {{1, 1}}, 0, true}}, {{1, "one & only"}}};
  const std::string svg = charts_svg("h", {chart});
  EXPECT_NE(svg.find("&lt;title>"), std::string::npos);
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  EXPECT_NE(svg.find("one &amp; only"), std::string::npos);
  EXPECT_NE(svg.find("stroke-dasharray"), std::string::npos);
}

}  // namespace
}  // namespace lmtp::tools
