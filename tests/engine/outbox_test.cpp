#include "outbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::engine {
namespace {

struct CountingWaker : Waker {
  void wake() noexcept override { ++num_wakeups; }
  int num_wakeups = 0;
};

class Sink : public EventSink {
 public:
  explicit Sink(std::shared_ptr<CountingWaker> waker) : waker_(std::move(waker)) {}
  void deliver(std::span<StreamEvent> events) override {
    EXPECT_EQ(waker_->num_wakeups, wakeups_before) << "woken before all has been delivered";
    if (fails) throw std::runtime_error("full");
    ++num_deliveries;
    for (StreamEvent& event : events) {
      if (const auto* token = std::get_if<TokenEvent>(&event)) tokens.push_back(token->token);
      if (const auto* error = std::get_if<StreamError>(&event)) errors.push_back(error->stream_id);
      if (const auto* forked = std::get_if<SampleForked>(&event)) samples.push_back(forked->sample);
      if (const auto* edit = std::get_if<EditRefused>(&event)) refusal = edit->error.message;
    }
  }
  std::shared_ptr<Waker> waker() override { return waker_; }

  std::vector<TokenId> tokens;
  std::vector<StreamId> errors;
  std::vector<int> samples;
  std::string refusal;
  int num_deliveries = 0;
  int wakeups_before = 0;
  bool fails = false;

 private:
  const std::shared_ptr<CountingWaker> waker_;
};

TEST(Outbox, WakesOnceForAllConnectionsAndKeepsTheOrderOfEach) {
  constexpr int kNumConnections = 100;
  Outbox outbox;
  const auto waker = std::make_shared<CountingWaker>();
  std::vector<std::shared_ptr<Sink>> sinks;
  for (int c = 0; c < kNumConnections; ++c) sinks.push_back(std::make_shared<Sink>(waker));
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 2; ++i) {
      for (int c = 0; c < kNumConnections; ++c) {
        outbox.add(static_cast<ConnectionId>(c) << 32, sinks[static_cast<std::size_t>(c)],
                   TokenEvent{1, 2 * step + i});
      }
    }
    EXPECT_FALSE(outbox.empty());
    EXPECT_TRUE(outbox.deliver().empty());
    EXPECT_TRUE(outbox.empty());
    EXPECT_EQ(waker->num_wakeups, step + 1);
    for (const auto& sink : sinks) sink->wakeups_before = step + 1;
  }
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->num_deliveries, 3);
    EXPECT_EQ(sink->tokens, (std::vector<TokenId>{0, 1, 2, 3, 4, 5}));
  }
  outbox.deliver();
  EXPECT_EQ(waker->num_wakeups, 3) << "there was nothing";
}

TEST(Outbox, WhatCannotBeDeliveredIsTheLossOfOneConnection) {
  Outbox outbox;
  const auto waker = std::make_shared<CountingWaker>();
  const auto failing = std::make_shared<Sink>(waker);
  const auto other = std::make_shared<Sink>(waker);
  failing->fails = true;
  outbox.add(1, failing, TokenEvent{1, 5});
  outbox.add(2, other, TokenEvent{1, 6});
  TokenEvent end{2, 7};
  end.finish_reason = FinishReason::kLength;
  outbox.add(1, failing, SampleForked{2, 1});
  outbox.add(1, failing, EditRefused{3, {ErrorCode::kInvalid, "drop: is 70; allowed are 7"}});
  outbox.add(1, failing, end);
  const auto failed = outbox.deliver();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0], 1U);
  EXPECT_EQ(other->tokens, std::vector<TokenId>{6});
  EXPECT_EQ(waker->num_wakeups, 1);
  failing->fails = false;
  failing->wakeups_before = 1;
  EXPECT_FALSE(outbox.empty()) << "the end of stream 2 is left";
  EXPECT_TRUE(outbox.deliver().empty());
  EXPECT_TRUE(failing->tokens.empty());
  EXPECT_EQ(failing->errors, std::vector<StreamId>{2});
  EXPECT_EQ(failing->samples, std::vector<int>{1});
  EXPECT_EQ(failing->refusal, "drop: is 70; allowed are 7");
  EXPECT_EQ(waker->num_wakeups, 2);
  EXPECT_EQ(waker.use_count(), 3) << "no waker is kept";
}

// Those of requests count the ends that pass through them.
TEST(Outbox, TheSinkOfAnEditTakesNothingElse) {
  Outbox outbox;
  const auto waker = std::make_shared<CountingWaker>();
  const auto of_edit = std::make_shared<Sink>(waker);
  const auto of_request = std::make_shared<Sink>(waker);
  const Error error{ErrorCode::kInvalid, "drop: is 70; allowed are 7"};
  outbox.add(1, of_edit, EditRefused{3, error});
  outbox.add(1, of_request, TokenEvent{1, 5});
  outbox.add(1, of_edit, EditRefused{3, error});
  outbox.add(2, of_edit, EditRefused{3, error});
  EXPECT_TRUE(outbox.deliver().empty());
  EXPECT_EQ(of_request->tokens, std::vector<TokenId>{5});
  EXPECT_EQ(of_request->refusal, error.message);
  EXPECT_EQ(of_edit->num_deliveries, 1) << "of the other connection";
  EXPECT_EQ(of_edit->refusal, error.message);
}

}  // namespace
}  // namespace lmtp::engine
