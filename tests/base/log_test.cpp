// The log's lines, as text and as JSON.
#include "lmtp/base/log.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lmtp/base/json.h"

namespace lmtp::log {
namespace {

std::string written(Format format, std::string_view message, std::span<const Field> fields = {}) {
  set_format(format);
  ::testing::internal::CaptureStderr();
  write(Level::kError, message, fields);
  std::string line = ::testing::internal::GetCapturedStderr();
  set_format(Format::kText);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  return line;
}

TEST(Log, TextIsOneLine) {
  EXPECT_TRUE(written(Format::kText, "a\nb\x1b[2J").ends_with(" error a\\nb\\x1b[2J\n"));
}

TEST(Log, ASinkTakesThePlaceOfStderr) {
  std::vector<std::string> lines;
  set_sink([&lines](Level level, std::string_view message) {
    if (level == Level::kError) lines.emplace_back(message);
  });
  ::testing::internal::CaptureStderr();
  error("a");
  debug("not at this level");
  set_sink({});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(lines, std::vector<std::string>{"a"});
}

TEST(Log, JsonIsValidWhateverTheBytes) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every.push_back(static_cast<char>(byte));
  const std::string hostile[] = {"",
                                 "\"}, {\"level\": \"x",
                                 "\\",
                                 "%v %l %",
                                 "\xff\xc0\x80",
                                 every,
                                 "\xe2\x80\xa8\r\n",
                                 std::string(100'000, '"')};
  for (const std::string& text : hostile) {
    const std::array<Field, 4> fields = {
        {{"client", text}, {"tokens", std::int64_t{-5}}, {"ms", 0.25}, {"none", std::nan("")}}};
    const auto line = parse_json_object(written(Format::kJson, text, fields), "line");
    ASSERT_TRUE(line.ok()) << line.error().message;
    EXPECT_EQ(line->size(), 7U);
    EXPECT_EQ(line->at("level"), "error");
    EXPECT_EQ(line->at("client"), line->at("message"));
    EXPECT_EQ(line->at("tokens"), -5);
    EXPECT_EQ(line->at("ms"), 0.25);
    EXPECT_TRUE(line->at("none").is_null());
    const auto time = line->at("time").get<std::string>();
    EXPECT_EQ(time.size(), std::string("2026-01-31T12:00:00.000+00:00").size()) << time;
  }
}

}  // namespace
}  // namespace lmtp::log
