// An engine takes blocks from the host where that is faster than its steps are.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "counting.h"
#include "fake_agent.h"
#include "lmtp/engine/engine.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using namespace std::chrono_literals;

// Blocks that came back for a prompt that came again, behind others that took its place.
std::int64_t num_fetched(std::chrono::nanoseconds fetch_time) {
  constexpr int kLongest = 128;
  testing::FakeAgentOptions agent;
  agent.num_blocks = kLongest / kBlockSize + 1;
  agent.num_host_blocks = 60;
  agent.fetch_time = fetch_time;
  Engine engine(testing::make_fake_agent(agent),
                {.vocab_size = agent.vocab_size, .context_length = kLongest, .eos_ids = {}}, {});
  const auto sink = std::make_shared<testing::RecordingSink>();
  StreamId id = 0;
  for (const int prompt : {0, 1, 2, 3, 0}) {
    Request request;
    request.key = {1, ++id};
    request.sink = sink;
    request.prompt = testing::counting(prompt * 200, 100);
    request.params.max_tokens = 1;
    EXPECT_TRUE(engine.instance().submit(std::move(request)));
    EXPECT_EQ(sink->wait_done(id).error, "");
  }
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.agent.num_host_blocks, 60);
  engine.stop(0);
  return stats.num_swapped_in;
}

TEST(HostPace, BlocksComeBackOnlyWhereThatIsFasterThanComputingThem) {
  EXPECT_EQ(num_fetched(1ns), 6);
  EXPECT_EQ(num_fetched(1h), 0);
}

}  // namespace
}  // namespace lmtp::engine
