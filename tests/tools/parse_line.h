// What lmtp-serve makes of a command line.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp-serve/serve_options.h"

namespace lmtp::tools {

inline std::variant<ServeOptions, int> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "lmtp-serve");
  return parse_serve_options(static_cast<int>(arguments.size()), arguments.data());
}

inline ServeOptions options_of(std::vector<const char*> arguments) {
  const auto parsed = parse(std::move(arguments));
  EXPECT_TRUE(std::holds_alternative<ServeOptions>(parsed));
  const auto* options = std::get_if<ServeOptions>(&parsed);
  return options == nullptr ? ServeOptions() : *options;
}

// The line on stderr.
inline std::string mistake_of(std::vector<const char*> arguments) {
  ::testing::internal::CaptureStderr();
  const auto parsed = parse(std::move(arguments));
  std::string line = ::testing::internal::GetCapturedStderr();
  const int* exit_code = std::get_if<int>(&parsed);
  EXPECT_NE(exit_code, nullptr) << "was accepted";
  if (exit_code != nullptr) {
    EXPECT_EQ(*exit_code, 2);
  }
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  return line;
}

}  // namespace lmtp::tools
