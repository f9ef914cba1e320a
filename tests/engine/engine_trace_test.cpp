// What an engine writes to a trace: slices that nest, and sums that are those of its counters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "counting.h"
#include "fake_agent.h"
#include "lmtp/base/json.h"
#include "lmtp/engine/engine.h"
#include "recording_sink.h"
#include "temp_folder.h"

namespace lmtp::engine {
namespace {

using testing::counting;
using testing::RecordingSink;
using testing::StepGate;

constexpr int kTracedVocab = 1000;

// With an agent that runs ahead, and with one that does not.
class EngineTraceTest : public ::testing::TestWithParam<bool> {
 protected:
  void start(scheduler::DebugOptions debug = {}) {
    auto trace = trace::Trace::open({.path = path_});
    ASSERT_TRUE(trace);
    testing::FakeAgentOptions agent;
    agent.vocab_size = kTracedVocab;
    agent.num_blocks = 128;
    agent.runs_ahead = GetParam();
    agent.steps = steps_;
    EngineOptions options;
    options.debug = debug;
    options.debug.check_invariants = true;
    options.trace = *trace;
    options.name = "null";
    engine_ = std::make_unique<Engine>(
        testing::make_fake_agent(agent),
        ModelLimits{.vocab_size = kTracedVocab, .context_length = 512, .eos_ids = {}}, options);
  }

  void submit(ConnectionId connection, StreamId id, std::vector<TokenId> prompt,
              std::vector<TokenId> scored, int max_tokens) {
    Request request;
    request.key = {connection, id};
    request.sink = sink_;
    request.kind = scored.empty() ? RequestKind::kGenerate : RequestKind::kScore;
    request.prompt = std::move(prompt);
    request.scored = std::move(scored);
    request.params.max_tokens = max_tokens;
    EXPECT_TRUE(engine_->instance().submit(std::move(request)));
  }

  // Ends the engine, whose counters are returned.
  EngineStats read() {
    engine_->stop(0);
    const EngineStats stats = engine_->stats();
    engine_.reset();
    auto events = read_json_file(path_);
    EXPECT_TRUE(events);
    if (events) events_ = *std::move(events);
    return stats;
  }

  std::int64_t sum(const std::string& name, const std::string& argument) const {
    std::int64_t total = 0;
    for (const Json& event : events_) {
      if (event["name"] == name && event["ph"] != "e") {
        total += event["args"][argument].get<std::int64_t>();
      }
    }
    return total;
  }
  std::int64_t count(const std::string& name) const {
    return std::ranges::count_if(
        events_, [&](const Json& event) { return event["name"] == name && event["ph"] != "e"; });
  }

  // Of each track begins and ends match, in the order of time.
  void expect_that_tracks_nest() const {
    std::vector<Json> sorted;
    std::ranges::copy_if(events_, std::back_inserter(sorted),
                         [](const Json& event) { return event.contains("id"); });
    std::ranges::stable_sort(sorted, {}, [](const Json& e) { return e["ts"].get<double>(); });
    std::map<std::string, std::vector<std::string>> tracks;
    for (const Json& event : sorted) {
      std::vector<std::string>& open = tracks[event["id"]];
      const std::string name = event["name"];
      if (event["ph"] == "b") {
        EXPECT_EQ(open.empty(), name == "request") << event.dump();
        open.push_back(name);
      } else if (event["ph"] == "e") {
        ASSERT_FALSE(open.empty());
        EXPECT_EQ(open.back(), name);
        open.pop_back();
      } else {
        EXPECT_EQ(event["ph"], "n");
        EXPECT_FALSE(open.empty()) << event.dump();
      }
    }
    for (const auto& [id, open] : tracks) EXPECT_TRUE(open.empty()) << id;
  }

  const testing::TempFolder folder_;
  const std::string path_ = folder_.path() + "/trace.json";
  const std::shared_ptr<RecordingSink> sink_ = std::make_shared<RecordingSink>();
  const std::shared_ptr<testing::StepLock> steps_ = std::make_shared<testing::StepLock>();
  std::unique_ptr<Engine> engine_;
  Json events_ = Json::array();
};

INSTANTIATE_TEST_SUITE_P(Agents, EngineTraceTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Ahead" : "StepByStep"; });

TEST_P(EngineTraceTest, SumsAreThoseOfItsCounters) {
  start({.max_chunk_tokens = 32});
  for (StreamId id = 1; id <= 4; ++id) {
    submit(1, id, counting(static_cast<int>(id) * 100, 80), {}, 20);
  }
  submit(1, 5, counting(700, 20), counting(50, 30), 0);
  for (StreamId id = 1; id <= 5; ++id) sink_->wait_done(id);
  submit(1, 6, counting(100, 80), {}, 3);  // its prompt is cached
  sink_->wait_done(6);
  const EngineStats stats = read();

  expect_that_tracks_nest();
  EXPECT_EQ(count("step"), stats.num_steps);
  EXPECT_EQ(sum("step", "ahead"), stats.num_steps_ahead);
  EXPECT_EQ(sum("step", "tokens"), stats.num_tokens_computed);
  EXPECT_EQ(sum("prefill", "tokens") + sum("decode", "tokens") + sum("score", "tokens"),
            stats.num_tokens_computed);
  EXPECT_EQ(count("request"), 6);
  EXPECT_EQ(count("queue"), 6);
  EXPECT_EQ(sum("match", "cached_tokens"), stats.num_cached_tokens);
  EXPECT_GT(stats.num_cached_tokens, 0);
  EXPECT_EQ(sum("send", "tokens"), stats.num_generated_tokens + stats.num_scored_tokens);
  EXPECT_EQ(sum("request", "prompt_tokens"), 5 * 80 + 20);
  // 80 tokens by 32, or less where that takes long: three chunks of each prompt that was not
  // cached.
  EXPECT_GE(count("prefill"), 4 * 3 + 1);
  EXPECT_LE(count("prefill"), 4 * 80 / kBlockSize + 1);
  EXPECT_EQ(sum("step", "drawn"), stats.num_generated_tokens);
  for (const char* name : {"forward", "choose", "collect", "commit"}) {
    EXPECT_EQ(count(name), stats.num_steps) << name;
  }
}

// Slices of the engine's thread are inside one another, or apart.
TEST_P(EngineTraceTest, SlicesOfItsThreadNest) {
  start();
  for (StreamId id = 1; id <= 3; ++id) {
    submit(1, id, counting(static_cast<int>(id) * 100, 40), {}, 30);
  }
  for (StreamId id = 1; id <= 3; ++id) sink_->wait_done(id);
  read();
  struct Span {
    double begin = 0.0;
    double end = 0.0;
  };
  std::vector<Span> slices;
  for (const Json& event : events_) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    slices.push_back({begin, begin + event["dur"].get<double>()});
  }
  ASSERT_GT(slices.size(), 100U);
  std::ranges::sort(slices, [](const Span& a, const Span& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  constexpr double kDigit = 0.0005;  // of microseconds
  std::vector<Span> open;
  for (const Span& slice : slices) {
    while (!open.empty() && open.back().end <= slice.begin + kDigit) open.pop_back();
    EXPECT_LE(slice.end, (open.empty() ? slice.end : open.back().end) + kDigit);
    open.push_back(slice);
  }
}

TEST_P(EngineTraceTest, HasNeitherTokensNorWhatIsNotItsModels) {
  start();
  submit(1, 1, {901, 902, 903}, {}, 4);
  sink_->wait_done(1);
  read();
  std::vector<std::string> names;
  for (const Json& event : events_) {
    if (event["name"] == "process_name") names.push_back(event["args"]["name"]);
    for (const Json& value : event.value("args", Json::object())) {
      if (!value.is_number()) continue;
      for (const int token : {901, 902, 903}) EXPECT_NE(value, token) << event.dump();
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"lmtp-serve", "null"}));
}

TEST_P(EngineTraceTest, ACancelledStreamEndsInTheTraceToo) {
  start();
  StepGate gate(steps_);
  submit(1, 1, counting(0, 16), {}, 400);
  gate.let(5);
  sink_->wait_tokens(1, 3);
  engine_->instance().cancel({1, 1});
  gate.open();
  sink_->wait_done(1);
  read();
  expect_that_tracks_nest();
  std::string outcome;
  for (const Json& event : events_) {
    if (event["name"] == "request" && event["ph"] == "e") outcome = event["args"]["outcome"];
  }
  EXPECT_EQ(outcome, "cancelled");
}

}  // namespace
}  // namespace lmtp::engine
