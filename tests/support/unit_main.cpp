// main() of a program with the tests of several units: --unit=NAME runs those of NAME_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace {

// A gtest filter of the tests that this file defines; empty where there are none.
std::string tests_of(const std::string& file) {
  std::string filter;
  const testing::UnitTest& program = *testing::UnitTest::GetInstance();
  for (int i = 0; i < program.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *program.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (!std::string_view(test.file()).ends_with("/" + file)) continue;
      filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kUnit = "--unit=";
  if (argc == 2 && std::string_view(argv[1]).starts_with(kUnit)) {
    const std::string file = argv[1] + kUnit.size() + std::string("_test.cpp");
    const std::string filter = tests_of(file);
    if (filter.empty()) {
      std::fprintf(stderr, "no test of %s is in this program\n", file.c_str());
      return 1;
    }
    GTEST_FLAG_SET(filter, filter);
  } else if (argc > 1) {
    std::fprintf(stderr, "unknown argument %s: only --unit=NAME and GoogleTest's\n", argv[1]);
    return 1;
  }
  return RUN_ALL_TESTS();
}
