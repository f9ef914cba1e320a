// What the program gets of libtorch, and when. Ranks that it connects:
// tests/model/rank_group_test.cpp.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lmtp
