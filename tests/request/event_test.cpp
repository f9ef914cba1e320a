#include "lmtp/request/event.h"

#include <gtest/gtest.h>

namespace lmtp {
namespace {

TEST(EventTest, AStreamEndsByAReasonOrAnErrorAlone) {
  TokenEvent token{.stream_id = 1, .token = 7};
  EXPECT_FALSE(is_last(token));
  token.finish_reason = FinishReason::kLength;
  EXPECT_TRUE(is_last(token));
  token.finish_reason = FinishReason::kStop;
  EXPECT_TRUE(is_last(token));
  EXPECT_TRUE(is_last(StreamError{.stream_id = 1, .error = {ErrorCode::kCancelled, "cancelled"}}));
  EXPECT_FALSE(is_last(LoadingNotice{.stream_id = 1, .model = "m", .progress_percent = 100}));
}

}  // namespace
}  // namespace lmtp
