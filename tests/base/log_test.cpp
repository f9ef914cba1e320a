// The log's lines, as text and as JSON.
#include "lmtp/base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lmtp/base/json.h"
#include "log_output.h"

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

// Standard error as a pipe, until it goes.
class PipedStderr {
 public:
  PipedStderr() : before_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe(ends_.data()), 0);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  ~PipedStderr() { restore(); }
  void restore() {
    if (before_ >= 0) dup2(before_, STDERR_FILENO);
    if (before_ >= 0) close(std::exchange(before_, -1));
  }
  // What comes up to `part`, or to the end where it is empty.
  std::string read_to(const std::string& part) {
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t num = 1; num > 0 && (part.empty() || text.find(part) == std::string::npos);) {
      num = read(ends_[0], piece.data(), piece.size());
      text.append(piece.data(), static_cast<std::size_t>(std::max<ssize_t>(num, 0)));
    }
    return text;
  }

 private:
  int before_;
  std::array<int, 2> ends_{};
};

int num_lines_with(const std::string& text, const std::string& part) {
  int num = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++num;
  }
  return num;
}

// 1 MiB, while the pipe holds 64 KiB: none of the writes waits for a reader.
TEST(Log, LinesThatNobodyReadsAreDroppedAndCounted) {
  constexpr int kLines = 10'000;
  PipedStderr piped;
  const std::string line = "said " + std::string(100, 'x');
  for (int i = 0; i < kLines; ++i) error(line);
  const std::string dropped = " lines of the log are missing here";
  std::string text = piped.read_to(dropped);
  const std::size_t at = text.rfind(dropped);
  ASSERT_NE(at, std::string::npos);
  const std::size_t number = text.rfind(' ', at - 1) + 1;
  const int num_dropped = std::stoi(text.substr(number, at - number));
  EXPECT_EQ(num_lines_with(text, line + "\n") + num_dropped, kLines) << "each is whole, or counted";
  EXPECT_GT(num_dropped, kLines / 2);
  EXPECT_LT(num_dropped, kLines - 2'000) << "so many fit";
  error("and it goes on");
  EXPECT_NE(piped.read_to("goes on").find("and it goes on"), std::string::npos);
}

TEST(Log, WhatWaitsIsWrittenAtTheEnd) {
  PipedStderr piped;
  std::string text;
  std::thread reader;
  const std::string line = std::string(999, 'x') + "\n";
  {
    LogOutput output([](std::size_t) { return std::string("dropped\n"); });
    for (int i = 0; i < 200; ++i) output.write(line);
    reader = std::thread([&] { text = piped.read_to(""); });
  }
  piped.restore();
  reader.join();
  EXPECT_EQ(num_lines_with(text, line), 200);
  EXPECT_EQ(text.size(), 200 * line.size());
}

}  // namespace
}  // namespace lmtp::log
