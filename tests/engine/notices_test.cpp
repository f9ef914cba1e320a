// What streams that ask for notices are told, and others are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "fake_agent.h"
#include "lmtp/engine/engine.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using testing::FakeAgentOptions;
using testing::kEndless;
using testing::RecordingSink;
using Kind = StreamNotice::Kind;

std::unique_ptr<scheduler::ModelAgent> agent_of(int num_blocks = testing::kEndlessBlocks) {
  FakeAgentOptions options;
  options.num_blocks = num_blocks;
  return testing::make_fake_agent(options);
}

Request generate(const std::shared_ptr<EventSink>& sink, StreamId id, int max_tokens,
                 bool wants_notices, int num_prompt = 5) {
  Request request;
  request.key = {1, id};
  request.sink = sink;
  request.prompt.resize(static_cast<std::size_t>(num_prompt));
  std::iota(request.prompt.begin(), request.prompt.end(), static_cast<TokenId>(id) * 100);
  request.params.max_tokens = max_tokens;
  request.wants_notices = wants_notices;
  return request;
}

ModelLimits notices_limits(int context_length = testing::kEndlessContext) {
  return {.vocab_size = 1000, .context_length = context_length, .eos_ids = {}};
}

std::vector<StreamNotice> of_kind(const RecordingSink::Stream& stream, Kind kind) {
  std::vector<StreamNotice> notices;
  std::ranges::copy_if(stream.notices, std::back_inserter(notices),
                       [kind](const StreamNotice& n) { return n.kind == kind; });
  return notices;
}

TEST(Notices, StreamsThatWaitLearnTheirPlaceAndTheOthersNothing) {
  EngineOptions options;
  options.batch.max_sequences = 1;
  Engine engine(agent_of(), notices_limits(), options);
  const auto sink = std::make_shared<RecordingSink>();
  std::vector<Request> requests;
  requests.push_back(generate(sink, 1, kEndless, true));
  requests.push_back(generate(sink, 2, 2, true));
  requests.push_back(generate(sink, 3, 2, false));
  requests.push_back(generate(sink, 4, 2, true));
  ASSERT_TRUE(engine.instance().submit_all(requests));
  for (const StreamId id : {2, 4}) sink->wait_notice(id);
  EXPECT_TRUE(engine.instance().cancel({1, 1}));
  for (StreamId id = 1; id <= 4; ++id) {
    const auto stream = sink->wait_done(id);
    EXPECT_EQ(stream.error, id == 1 ? "cancelled" : "");
    const auto queued = of_kind(stream, Kind::kQueued);
    EXPECT_EQ(queued.size(), stream.notices.size());
    EXPECT_EQ(queued.empty(), id == 1 || id == 3) << id;
    const int first_position = id == 2 ? 1 : 3;
    if (!queued.empty()) {
      EXPECT_EQ(queued.front().position, first_position);
    }
    for (const StreamNotice& notice : queued) {
      EXPECT_LE(notice.position, first_position);  // others may have ended
      EXPECT_GT(notice.wait_ms, 0);
    }
  }
}

TEST(Notices, AStopWithGraceIsToldOnce) {
  Engine engine(agent_of(), notices_limits(), {});
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, kEndless, true)));
  ASSERT_TRUE(engine.instance().submit(generate(sink, 2, kEndless, false)));
  sink->wait_tokens(2, 1);
  std::thread stop([&] { engine.stop(60'000); });
  const auto notices = sink->wait_notice(1).notices;
  for (const StreamId id : {1, 2}) EXPECT_TRUE(engine.instance().cancel({1, id}));
  stop.join();
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices[0].kind, Kind::kDraining);
  EXPECT_GT(notices[0].wait_ms, 0);
  EXPECT_LE(notices[0].wait_ms, 60'000);
  EXPECT_EQ(sink->wait_done(1).notices.size(), 1U);
  EXPECT_TRUE(sink->wait_done(2).notices.empty());
}

TEST(Notices, AStopWithoutGraceIsTheEndAlone) {
  Engine engine(agent_of(), notices_limits(), {});
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, kEndless, true)));
  sink->wait_tokens(1, 1);
  engine.stop(0);
  EXPECT_TRUE(sink->wait_done(1).notices.empty());
}

TEST(Notices, PreemptedStreamsAreToldSoAndWhenTheyGoOn) {
  Engine engine(agent_of(14), notices_limits(200), {});
  const auto sink = std::make_shared<RecordingSink>();
  std::vector<Request> requests;
  for (StreamId id = 1; id <= 6; ++id) requests.push_back(generate(sink, id, 60, id != 2, 10));
  ASSERT_TRUE(engine.instance().submit_all(requests));
  std::size_t num_preempted = 0;
  for (StreamId id = 1; id <= 6; ++id) {
    const auto stream = sink->wait_done(id);
    EXPECT_EQ(stream.tokens.size(), 60U);
    const auto preempted = of_kind(stream, Kind::kPreempted);
    EXPECT_EQ(of_kind(stream, Kind::kResumed).size(), preempted.size());
    EXPECT_TRUE(id != 2 || stream.notices.empty());
    num_preempted += preempted.size();
    bool is_out = false;
    for (const StreamNotice& notice : stream.notices) {
      if (notice.kind == Kind::kQueued) continue;
      EXPECT_EQ(notice.kind == Kind::kPreempted, !is_out);
      is_out = !is_out;
    }
  }
  EXPECT_GT(num_preempted, 0U);
}

}  // namespace
}  // namespace lmtp::engine
