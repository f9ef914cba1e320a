// Requests that wait for a model: their notices, their order and their limits.
#include "waiting_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "directory.h"
#include "lmtp/base/log.h"
#include "recording_sink.h"

namespace lmtp::registry {
namespace {

using testing::RecordingSink;

constexpr int kVocab = 1000;
constexpr std::size_t kMaxWaiting = 4;

struct WaitingRequestsTest : ::testing::Test {
  Request make(StreamId id, std::vector<TokenId> prompt = {1, 2}, ConnectionId connection = 1,
               bool others_connected = false) {
    Request request;
    request.key = {connection, id};
    request.others_connected = others_connected;
    request.sink = sink;
    request.model = "m";
    request.prompt = std::move(prompt);
    return request;
  }
  Result<void> add(StreamId id, std::vector<TokenId> prompt = {1, 2}, ConnectionId connection = 1) {
    Request request = make(id, std::move(prompt), connection);
    return waiting.add(request, 0);
  }
  Result<void> add_among_others(StreamId id, ConnectionId connection = 1) {
    Request request = make(id, {1, 2}, connection, true);
    return waiting.add(request, 0);
  }

  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  RefusalCounts refusals;
  WaitingRequests waiting{kMaxWaiting, refusals};
};

TEST_F(WaitingRequestsTest, AreToldAtOnceAndKeptInOrder) {
  EXPECT_TRUE(add(1));
  EXPECT_TRUE(add(2));
  EXPECT_EQ(sink->wait_loading(1).progress, std::vector<int>{0});
  EXPECT_EQ(sink->wait_loading(1).loading_model, "m");
  EXPECT_EQ(waiting.size(), 2U);
  const std::vector<Request> all = waiting.take_all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].key.stream, 1);
  EXPECT_EQ(all[0].prompt, (std::vector<TokenId>{1, 2}));
  EXPECT_TRUE(waiting.empty());
}

TEST_F(WaitingRequestsTest, NoticesAreFewAndProgressNeverGoesBack) {
  LoadState load;
  EXPECT_TRUE(add(1));
  for (int percent = 0; percent <= 100; ++percent) {
    load.raise(percent);
    EXPECT_FALSE(load.raise(7) && percent >= 7);
    waiting.send_progress(load.percent);
  }
  const std::vector<int> progress = sink->wait_loading(1).progress;
  ASSERT_GE(progress.size(), 2U);
  EXPECT_LE(progress.size(), 50U) << "100 changes in a moment";
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(load.percent, 100);
}

TEST_F(WaitingRequestsTest, EachThatEndsHereIsALine) {
  EXPECT_TRUE(add(1));
  EXPECT_TRUE(add(2));
  EXPECT_TRUE(add(3));
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(waiting.cancel({1, 2}));
  waiting.end_all({ErrorCode::kUnavailable, "model: is broken"}, true);
  const std::string lines = ::testing::internal::GetCapturedStderr();
  for (const std::string end : {"1/1 to 'm'", "1/2 to 'm'", "1/3 to 'm'"}) {
    EXPECT_NE(lines.find("request " + end + ": generate, prompt 2 "), std::string::npos) << lines;
  }
  EXPECT_NE(lines.find(": cancelled"), std::string::npos) << lines;
  EXPECT_NE(lines.find(": unavailable"), std::string::npos) << lines;
  EXPECT_EQ(refusals.count(ErrorCode::kUnavailable), 2U);
}

TEST_F(WaitingRequestsTest, AFailureAndAStopEndThem) {
  EXPECT_TRUE(add(1));
  waiting.end_all({ErrorCode::kInvalid, "model: is broken"}, true);
  EXPECT_EQ(sink->wait_done(1).error, "model: is broken");
  EXPECT_TRUE(sink->wait_done(1).model_failed);
  waiting.end_all({ErrorCode::kInvalid, "again"}, true);
  EXPECT_EQ(sink->wait_done(1).num_ends, 1);
  EXPECT_TRUE(add(3));
  waiting.end_all({ErrorCode::kUnavailable, "stop"}, false);
  EXPECT_EQ(sink->wait_done(3).error, "stop");
  EXPECT_FALSE(sink->wait_done(3).model_failed);
  EXPECT_EQ(refusals.count(ErrorCode::kInvalid), 1U);
  EXPECT_EQ(refusals.count(ErrorCode::kUnavailable), 1U);
}

TEST_F(WaitingRequestsTest, MoreThanTheLimitIsRefused) {
  for (StreamId id = 0; id < static_cast<StreamId>(kMaxWaiting); ++id) EXPECT_TRUE(add(id));
  Request more = make(99, {7, 8, 9});
  const Result<void> refused = waiting.add(more, 0);
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_TRUE(refused.error().message.starts_with("overloaded: 4 requests"));
  EXPECT_EQ(more.prompt.size(), 3U) << "as it was";
  EXPECT_TRUE(waiting.cancel({1, 0}));
  EXPECT_TRUE(add(99)) << "a place has become free";
}

TEST_F(WaitingRequestsTest, AmongOthersAConnectionHoldsThreeQuarters) {
  for (StreamId id = 1; id <= 3; ++id) EXPECT_TRUE(add_among_others(id));
  const Result<void> refused = add_among_others(4);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("three quarters of 4"), std::string::npos);
  EXPECT_TRUE(add_among_others(5, 2));
  EXPECT_TRUE(waiting.cancel({2, 5}));
  EXPECT_TRUE(add(6)) << "alone, it may have all";
}

TEST_F(WaitingRequestsTest, TooManyBytesAreRefused) {
  const std::vector<TokenId> half(kWaitingBytesMax / 2 / sizeof(TokenId), 1);
  const std::vector<TokenId> quarter(half.size() / 2, 1);
  EXPECT_TRUE(add(1, half));
  EXPECT_TRUE(add(2, quarter));
  EXPECT_FALSE(add(3)) << "one connection has three quarters";
  EXPECT_FALSE(add(3, quarter, 2)) << "and another three quarters of the rest";
  EXPECT_TRUE(add(3, {1, 2}, 2));
  EXPECT_TRUE(waiting.cancel({1, 1}));
  EXPECT_TRUE(add(4, quarter));
  waiting.end_all({ErrorCode::kUnavailable, "stop"}, false);
  EXPECT_TRUE(add(5, half));
  EXPECT_TRUE(add(6, quarter, 2));
}

TEST_F(WaitingRequestsTest, MasksCountAsBytes) {
  Request request = make(1);
  auto mask = std::make_shared<TokenMask>();
  mask->words.resize(kWaitingBytesMax / sizeof(std::uint64_t));
  request.params.mask = std::move(mask);
  const Result<void> refused = waiting.add(request, 0);
  ASSERT_FALSE(refused) << "the vocabulary, and so its length, is not known yet";
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
}

TEST_F(WaitingRequestsTest, WhatTheModelCannotServeEndsWhenItIsKnown) {
  EXPECT_TRUE(add(1, {1, kVocab}));
  EXPECT_TRUE(add(2));
  waiting.check({.vocab_size = kVocab, .context_length = 64, .eos_ids = {}});
  EXPECT_NE(sink->wait_done(1).error.find("prompt"), std::string::npos);
  EXPECT_FALSE(sink->wait_done(1).model_failed);
  EXPECT_EQ(waiting.size(), 1U);
  EXPECT_EQ(refusals.count(ErrorCode::kInvalid), 1U);
}

TEST_F(WaitingRequestsTest, CancelEndsAStreamOnce) {
  EXPECT_TRUE(add(1));
  EXPECT_TRUE(waiting.cancel({1, 1}));
  EXPECT_EQ(sink->wait_done(1).error, "cancelled");
  EXPECT_FALSE(waiting.cancel({1, 1}));
  EXPECT_EQ(sink->wait_done(1).num_ends, 1);
  EXPECT_EQ(refusals.count(ErrorCode::kCancelled), 1U);
}

}  // namespace
}  // namespace lmtp::registry
