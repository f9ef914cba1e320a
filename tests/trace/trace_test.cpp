// A trace's file: always an array of whole events, bounded, and honest about what is missing.
#include "lmtp/trace/trace.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eventually.h"
#include "lmtp/base/json.h"
#include "temp_folder.h"

namespace lmtp::trace {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Json events_of(const std::string& text) {
  auto events = parse_json(text, "trace");
  EXPECT_TRUE(events) << (events ? "" : events.error().message) << "\n" << text;
  return events ? *events : Json::array();
}

std::vector<Json> named(const Json& events, const std::string& name) {
  std::vector<Json> found;
  for (const Json& event : events) {
    if (event["name"] == name) found.push_back(event);
  }
  return found;
}

class TraceTest : public ::testing::Test {
 protected:
  std::shared_ptr<Trace> open(std::int64_t max_bytes = 1 << 20,
                              std::size_t num_queued_max = 1024) const {
    auto trace = Trace::open({path_, max_bytes, num_queued_max});
    EXPECT_TRUE(trace) << (trace ? "" : trace.error().message);
    return trace ? *trace : nullptr;
  }
  static Record slice(Clock::time_point begin, std::chrono::nanoseconds time) {
    return {.process = 2, .name = "step", .begin = begin, .end = begin + time};
  }
  static void wait_until_off(const Trace& trace) {
    EXPECT_TRUE(testing::eventually([&] { return !trace.is_on(); }));
  }

  const testing::TempFolder folder_;
  const std::string path_ = folder_.path() + "/trace.json";
};

TEST_F(TraceTest, HasProcessesSlicesAndTracks) {
  auto trace = open();
  const int process = trace->add_process("a \"model\"\n\xFF", "engine");
  EXPECT_EQ(process, 2);
  const std::uint64_t track = trace->next_track();
  EXPECT_NE(trace->next_track(), track);
  const Clock::time_point now = Clock::now();
  Record of_track{.process = process, .track = track, .category = "request", .name = "request"};
  of_track.begin = now;
  std::vector<Record> records(4, of_track);
  records[0].kind = Record::Kind::kOpen;
  records[1].kind = Record::Kind::kSpan;
  records[1].name = "queue";
  records[1].end = now + std::chrono::nanoseconds(1'234'567);
  records[2].kind = Record::Kind::kMark;
  records[2].name = "match";
  records[2].with("cached", -3).with("missing", std::int64_t{1} << 60);
  records[3].kind = Record::Kind::kClose;
  records[3].begin = records[1].end;
  records[3].text_name = "outcome";
  records[3].text = "stop";
  trace->add(records);
  trace->add(std::vector{slice(now, std::chrono::nanoseconds(1'000'001)).with("rows", 7)});
  trace.reset();

  const Json events = events_of(text_of(path_));
  const auto names = named(events, "process_name");
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[0]["args"]["name"], "lmtp-serve");
  EXPECT_EQ(names[1]["args"]["name"], "a \"model\"\n\xEF\xBF\xBD");
  EXPECT_EQ(names[1]["pid"], 2);
  const auto request = named(events, "request");
  ASSERT_EQ(request.size(), 2U);
  EXPECT_EQ(request[0]["ph"], "b");
  EXPECT_EQ(request[1]["ph"], "e");
  EXPECT_EQ(request[1]["args"]["outcome"], "stop");
  const auto queue = named(events, "queue");
  ASSERT_EQ(queue.size(), 2U);
  EXPECT_EQ(queue[0]["ts"], request[0]["ts"]);
  EXPECT_EQ(queue[1]["ts"], request[1]["ts"]);
  EXPECT_EQ(queue[0]["id"], request[0]["id"]);
  EXPECT_NEAR(queue[1]["ts"].get<double>() - queue[0]["ts"].get<double>(), 1234.567, 1e-4);
  EXPECT_EQ(named(events, "match").at(0)["args"]["missing"], std::int64_t{1} << 60);
  const auto step = named(events, "step");
  ASSERT_EQ(step.size(), 1U);
  EXPECT_EQ(step[0]["ph"], "X");
  EXPECT_EQ(step[0]["dur"], 1000.001);
  EXPECT_EQ(step[0]["args"], (Json{{"rows", 7}}));
  EXPECT_EQ(named(events, "trace ends").at(0)["args"]["why"], "the server has stopped");
}

TEST_F(TraceTest, WithoutItsEndItIsWholeAtAnyTime) {
  const auto trace = open();
  trace->add(std::vector{slice(Clock::now(), std::chrono::milliseconds(1))});
  std::string text;
  EXPECT_TRUE(testing::eventually([&] {
    text = text_of(path_);
    return text.find("\"step\"") != std::string::npos;
  }));
  EXPECT_EQ(named(events_of(text + "]"), "step").size(), 1U);
}

// SIGKILL ends a write at the end of a page of the file.
TEST_F(TraceTest, EachPageEndsWithAWholeEvent) {
  constexpr std::size_t kPage = 4096;
  auto trace = open();
  trace->add(std::vector(1000, slice(Clock::now(), std::chrono::milliseconds(1))));
  trace.reset();
  const std::string text = text_of(path_);
  ASSERT_GT(text.size(), 10 * kPage);
  for (std::size_t end = kPage; end < text.size(); end += kPage) {
    EXPECT_GE(events_of(text.substr(0, end) + "]").size(), 20 * end / kPage);
  }
}

// What ends but has not begun there, since that was dropped, has no end.
TEST_F(TraceTest, WhatFindsNoPlaceIsCounted) {
  auto trace = open(1 << 20, 4);
  std::vector<Record> records(10, slice(Clock::now(), std::chrono::milliseconds(1)));
  records.insert(records.begin(),
                 Record{.kind = Record::Kind::kClose, .category = "request", .name = "request"});
  ::testing::internal::CaptureStderr();
  trace->add(records);
  trace->add_dropped(2);
  trace.reset();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("events are missing"), std::string::npos);
  const Json events = events_of(text_of(path_));
  EXPECT_EQ(named(events, "step").size(), 3U);
  EXPECT_TRUE(named(events, "request").empty());
  int num_dropped = 0;  // the thread may have looked in between
  for (const Json& dropped : named(events, "events dropped")) {
    num_dropped += dropped["args"]["count"].get<int>();
  }
  EXPECT_EQ(num_dropped, 9);
  EXPECT_EQ(named(events, "events dropped in all").at(0)["args"]["count"], 9);
}

TEST_F(TraceTest, EndsAtItsLimit) {
  constexpr std::int64_t kLimit = 8192;
  const auto trace = open(kLimit);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(testing::eventually([&] {
    trace->add(std::vector(100, slice(Clock::now(), std::chrono::milliseconds(1))));
    return !trace->is_on();
  }));
  trace->add(std::vector{slice(Clock::now(), std::chrono::milliseconds(1))});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("has reached --trace-limit"),
            std::string::npos);
  const std::string text = text_of(path_);
  EXPECT_LE(static_cast<std::int64_t>(text.size()), kLimit);
  EXPECT_GT(static_cast<std::int64_t>(text.size()), kLimit / 2);
  EXPECT_EQ(named(events_of(text), "trace ends").at(0)["args"]["why"], "--trace-limit is reached");
}

// As a full disk does: the part of an event that was written goes.
TEST_F(TraceTest, EndsWhereTheFileCannotGrow) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto trace = open();
  ::testing::internal::CaptureStderr();
  const rlimit small = {.rlim_cur = 4001, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  trace->add(std::vector(200, slice(Clock::now(), std::chrono::milliseconds(1))));
  wait_until_off(*trace);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(trace->is_on());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("File too large; tracing has ended, serving goes on"), std::string::npos)
      << log;
  const std::string text = text_of(path_);
  EXPECT_LE(text.size(), 4001U);
  EXPECT_GT(named(events_of(text), "step").size(), 10U);
}

// Of ",\n" and an event the comma alone finds room.
TEST_F(TraceTest, EndsWhereTheFileCanGrowByAByte) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto trace = open();
  const std::string begun = text_of(path_);
  ::testing::internal::CaptureStderr();
  const rlimit small = {.rlim_cur = begun.size() + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  trace->add(std::vector{slice(Clock::now(), std::chrono::milliseconds(1))});
  wait_until_off(*trace);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(trace->is_on());
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(events_of(text_of(path_) + "]"), events_of(begun + "]"));
}

TEST_F(TraceTest, AFileThatCannotBeWrittenIsAnError) {
  const auto error_of = [](const std::string& path) {
    const auto trace = Trace::open({.path = path});
    return trace ? "none" : trace.error().message;
  };
  EXPECT_NE(error_of("/dev/full").find("No space left on device"), std::string::npos);
  EXPECT_NE(error_of(folder_.path()).find("Is a directory"), std::string::npos);
  EXPECT_NE(error_of(folder_.path() + "/no/trace").find("No such file"), std::string::npos);
  const std::string pipe = folder_.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(error_of(pipe).find("cannot be written"), std::string::npos);
}

TEST_F(TraceTest, OnlyItsOwnerMayReadIt) {
  using std::filesystem::perms;
  for (const bool was_there : {false, true}) {
    if (was_there) std::filesystem::permissions(path_, perms::all);
    open();
    EXPECT_EQ(std::filesystem::status(path_).permissions(), perms::owner_read | perms::owner_write)
        << was_there;
  }
}

TEST_F(TraceTest, AFileIsOfOneTrace) {
  auto trace = open();
  trace->add(std::vector{slice(Clock::now(), std::chrono::milliseconds(1))});
  const auto other = Trace::open({.path = path_});
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("another process writes to it; give each server a file"),
            std::string::npos);
  trace.reset();
  EXPECT_EQ(named(events_of(text_of(path_)), "step").size(), 1U) << "what it had is there";
  EXPECT_EQ(named(events_of(text_of(path_)), "trace ends").size(), 1U);
  open();
  EXPECT_TRUE(named(events_of(text_of(path_)), "step").empty()) << "and goes for the next one";
}

TEST_F(TraceTest, TakesRecordsOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  auto trace = open(std::int64_t{1} << 28, std::size_t{1} << 14);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&trace] {
      trace->add_process("model", "engine");
      for (int i = 0; i < kRounds; ++i) {
        trace->add(std::vector(10, slice(Clock::now(), std::chrono::milliseconds(1))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  trace.reset();
  const Json events = events_of(text_of(path_));
  EXPECT_EQ(named(events, "step").size(), std::size_t{10} * kThreads * kRounds);
  EXPECT_EQ(named(events, "process_name").size(), std::size_t{kThreads} + 1);
}

}  // namespace
}  // namespace lmtp::trace
