// Exceptions as Errors, where there is memory for their text and where there is none.
#include "lmtp/base/guarded.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "failing_allocations.h"

namespace lmtp {
namespace {

TEST(Guarded, MakesErrorsOfExceptions) {
  const Result<int> failed =
      guarded([]() -> Result<int> { throw std::runtime_error("no tokens"); }, "prompt: ");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kInternal);
  EXPECT_EQ(failed.error().message, "prompt: no tokens");
  EXPECT_EQ(guarded([]() -> Result<int> { return 7; }).value(), 7);
}

TEST(Guarded, HasAnErrorWithoutMemoryForItsText) {
  const std::string prefix = "a prefix that is longer than what a string has of its own: ";
  const Result<void> failed = guarded(
      []() -> Result<void> {
        testing::allocations_left = 1;
        throw std::bad_alloc();
      },
      prefix);
  EXPECT_EQ(testing::allocations_left, 0) << "the text has needed memory";
  testing::allocations_left = 0;
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(failed.error().message, "out of memory");
}

TEST(Guarded, CallsTwiceAtMost) {
  for (int failing = 0; failing < 4; ++failing) {
    int num_calls = 0;
    const bool done = guarded_twice([&] {
      if (num_calls++ < failing) throw std::bad_alloc();
    });
    EXPECT_EQ(done, failing < 2) << failing;
    EXPECT_EQ(num_calls, failing == 0 ? 1 : 2) << failing;
  }
}

}  // namespace
}  // namespace lmtp
