#include "lmtp/request/event.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "failing_allocations.h"

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

// Else what was taken before the failure is told, and told again as lost.
TEST(EventTest, EventsAreTakenTogetherOrNotAtAll) {
  const std::string why(100, 'x');  // which tells whether it was moved
  std::vector<StreamEvent> events;
  for (StreamId id = 1; id <= 5; ++id) {
    events.push_back(StreamError{id, {ErrorCode::kInternal, why}});
  }
  std::vector<StreamEvent> to;
  int num_failures = 0;
  for (int failing = 1; to.size() < events.size(); ++failing) {
    testing::allocations_left = failing;
    try {
      take_events(events, to);
    } catch (const std::bad_alloc&) {
      ++num_failures;
      EXPECT_TRUE(to.empty()) << failing;
      for (const StreamEvent& event : events) {
        EXPECT_EQ(std::get<StreamError>(event).error.message, why) << failing;
      }
    }
  }
  testing::allocations_left = 0;
  EXPECT_GT(num_failures, 0);
  EXPECT_EQ(to.size(), events.size());
  for (const StreamEvent& event : to) EXPECT_EQ(std::get<StreamError>(event).error.message, why);
}

}  // namespace
}  // namespace lmtp
