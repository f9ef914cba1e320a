// TestData: the suite of those tests in a program that need files from outside the repository.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace lmtp::testing {

// TEST_F(TestData, Case) is skipped where LMTP_TEST_DATA does not name the folder of larger test
// data. By the suite's name CMake keeps these cases out of the program's own ctest entry and gives
// them one (lmtp_test's TEST_DATA), so that ctest says by name what was skipped.
class TestData : public ::testing::Test {
 protected:
  void SetUp() override {
    if (root().empty()) GTEST_SKIP() << "LMTP_TEST_DATA is not set";
  }

  // A path in its folder data/.
  static std::string data(const std::string& path) { return root() + "/data/" + path; }

 private:
  static std::string root() {
    const char* folder = std::getenv("LMTP_TEST_DATA");
    return folder == nullptr ? "" : folder;
  }
};

}  // namespace lmtp::testing
