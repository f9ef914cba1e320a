#include "lmtp/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace lmtp {
namespace {

TEST(Result, HoldsAValueOrAReason) {
  const Result<int> good = 3;
  ASSERT_TRUE(good);
  EXPECT_EQ(*good, 3);
  const Result<int> bad = Error{ErrorCode::kInternal, "no such file"};
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "no such file");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = std::move(*made);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, MayHoldNothingButSuccess) {
  EXPECT_TRUE(Result<void>());
  EXPECT_EQ(Result<void>(Error{ErrorCode::kInternal, "why"}).error().message, "why");
}

TEST(ResultDeath, AskingForAValueThatIsNotThereIsOurBug) {
  const Result<int> bad = Error{ErrorCode::kInternal, "the reason"};
  EXPECT_DEATH(static_cast<void>(bad.value()), "the reason");
}

TEST(ErrorCode, OfWhatTheSystemSays) {
  EXPECT_EQ(errno_code(ENOENT), ErrorCode::kNotFound);
  EXPECT_EQ(errno_code(ENOTDIR), ErrorCode::kNotFound);
  EXPECT_EQ(errno_code(EIO), ErrorCode::kUnavailable);
  EXPECT_EQ(exception_code(std::bad_alloc()), ErrorCode::kUnavailable);
  EXPECT_EQ(exception_code(std::runtime_error("")), ErrorCode::kInternal);
}

}  // namespace
}  // namespace lmtp
