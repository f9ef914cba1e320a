// What the program gets of libtorch, and when. Of archives that hold something:
// tests/model/pickled_test.cpp and tests/e2e/test_weights.py.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "lmtp/libtorch/library.h"
#include "load.h"

namespace lmtp {
namespace {

bool is_mapped(const std::string& name) {
  const std::ifstream file("/proc/self/maps");
  std::ostringstream maps;
  maps << file.rdbuf();
  return maps.str().find(name) != std::string::npos;
}

class TextSource : public libtorch::ByteSource {
 public:
  explicit TextSource(std::string text) : text_(std::move(text)) {}

  std::uint64_t size() const override { return text_.size(); }

  bool read(std::uint64_t first, std::size_t count, void* to) override {
    if (first > text_.size() || count > text_.size() - first) return false;
    std::memcpy(to, text_.data() + first, count);
    return true;
  }

 private:
  std::string text_;
};

TEST(LibtorchTest, ItIsLoadedWhenItIsFirstAskedFor) {
  EXPECT_FALSE(is_mapped("libtorch_cpu.so"));
  const auto library = libtorch::load();
  ASSERT_TRUE(library.ok()) << library.error().message;
  EXPECT_TRUE(is_mapped("libtorch_cpu.so"));
  EXPECT_EQ(*libtorch::load(), *library);
}

TEST(LibtorchTest, ALibraryOfAnotherBuildIsNotUsed) {
  const auto library = libtorch::load_from(LMTP_OTHER_BUILD);
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(library.error().message.find("is of build 0.0.0/7"), std::string::npos)
      << library.error().message;
  EXPECT_TRUE(library.error().message.ends_with(": restart the server"));
}

TEST(LibtorchTest, WhatIsNoArchiveIsAnErrorOfOurs) {
  const auto library = libtorch::load();
  ASSERT_TRUE(library.ok()) << library.error().message;
  for (const char* text : {"", "PK", "not a zip file, whatever its name says"}) {
    TextSource source(text);
    const auto zip = (*library)->open_zip(source);
    ASSERT_FALSE(zip.ok()) << text;
    EXPECT_EQ(zip.error().message, libtorch::kUnreadableZip);
  }
}

}  // namespace
}  // namespace lmtp
