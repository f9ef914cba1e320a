// The numerics contract through an engine: what ends some streams, and where a stream was cut and
// continued, changes no bit of the others or of the rest. On a CPU, and on a device that runs
// ahead.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stream_bits.h"

namespace lmtp {
namespace {

using testing::expect_same;
using testing::expect_tail;
using testing::kContext;
using testing::Outcome;
using testing::OutcomeSink;
using testing::prompt_of;
using testing::Where;

class StreamBitsTest : public testing::StreamBits {};

INSTANTIATE_TEST_SUITE_P(Agents, StreamBitsTest, ::testing::Values(Where::kCpu, Where::kDevice),
                         testing::name_of);

// Ends a stream at any of so many pairs of tokens, as text may end in the middle of one.
class PairStops : public StopChecker {
 public:
  using Pair = std::pair<TokenId, TokenId>;
  explicit PairStops(std::vector<Pair> pairs) : pairs_(std::move(pairs)) {}

  bool push(TokenId token, bool may_stop) override {
    const Pair pair{std::exchange(last_, token), token};
    return may_stop && std::ranges::find(pairs_, pair) != pairs_.end();
  }
  std::unique_ptr<StopChecker> restarted(std::span<const TokenId> /*before*/,
                                         std::span<const TokenId> generated) const override {
    auto made = std::make_unique<PairStops>(pairs_);
    for (const TokenId token : generated) made->push(token, false);
    return made;
  }

 private:
  std::vector<Pair> pairs_;
  TokenId last_ = -1;
};

// Decodes with and without penalties, a prompt in pieces and a SCORE are in one step, and on a
// device the step behind it is queued already.
TEST_P(StreamBitsTest, EachKindOfRowHasItsBitsInAStepAhead) {
  scheduler::DebugOptions one_by_one;
  one_by_one.run_ahead = false;
  const auto plain = make_engine(0, one_by_one);
  std::vector<Request> mixed = {request(2), request(5), request(3)};
  mixed[2].prompt = prompt_of(9, 90);
  mixed[2].params.max_tokens = 4;
  Request& score = mixed.emplace_back();
  score.kind = RequestKind::kScore;
  score.prompt = prompt_of(7, 20);
  score.scored = prompt_of(8, 40);
  const auto wanted = run_alone(*plain, mixed);
  EXPECT_EQ(plain->stats().num_steps_ahead, 0);
  scheduler::DebugOptions in_pieces;
  in_pieces.max_chunk_tokens = 8;
  const auto engine = make_engine(0, in_pieces);
  const auto got = run(*engine, mixed);
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    SCOPED_TRACE(i);
    expect_tail(got[i], wanted[i]);
  }
  const engine::EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_steps_ahead >= stats.num_steps - 3, GetParam() == Where::kDevice)
      << stats.num_steps_ahead << " of " << stats.num_steps;
}

// Streams set back for lack of blocks, and prompts that come again. In one group, where a block
// from the host costs less than its tokens on a CPU, too; group_bits_test has several.
TEST_P(StreamBitsTest, WhatComesBackFromTheHostHasItsBits) {
  constexpr int kBlocks = kContext / kBlockSize + 2;
  const auto plain = make_engine();
  std::vector<Request> requests = make_requests(1, 6);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = prompt_of(static_cast<int>(i) + 20, 60);
    requests[i].params.max_tokens = 12;
  }
  const auto wanted = run_alone(*plain, requests);
  scheduler::DebugOptions one_group;
  one_group.kv_groups = false;
  const auto engine = make_engine(kBlocks, one_group, 60);
  for (int round = 0; round < 2; ++round) {
    const auto got = run(*engine, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      expect_tail(got[i], wanted[i]);
    }
  }
  const engine::EngineStats stats = engine->stats();
  EXPECT_EQ(stats.agent.num_host_blocks, 60);
  EXPECT_GT(stats.num_swapped_out, 0);
  EXPECT_GE(stats.num_swapped_in, 3) << "a prompt's full blocks";
  EXPECT_GE(stats.num_cached_tokens, 3 * kBlockSize);
}

// As it waits, in its prefill, scoring and decoding.
TEST_P(StreamBitsTest, ACancelFreesWithinAStepAndChangesNoOther) {
  constexpr StreamId kVictim = 2;
  scheduler::DebugOptions in_pieces;
  in_pieces.max_chunk_tokens = 8;
  const auto engine = make_engine(0, in_pieces);
  const std::vector<Request> others = {request(2), request(5)};
  const auto wanted = run_alone(*engine, others);
  Request prompt = request(0);
  prompt.prompt = prompt_of(9, 100);
  Request score = prompt;
  score.kind = RequestKind::kScore;
  score.params = {};
  score.scored = prompt_of(8, 20);
  struct Case {
    Request victim;
    StreamId when_has = 0;  // this stream so many tokens, it is cancelled
    std::size_t num_tokens = 0;
  };
  for (const Case& one :
       {Case{prompt, 0, 0}, Case{prompt, 0, 3}, Case{score, 0, 5}, Case{request(1), kVictim, 3}}) {
    SCOPED_TRACE(one.num_tokens);
    std::vector<Request> requests = others;
    requests.push_back(one.victim);
    const auto sink = std::make_shared<OutcomeSink>();
    std::int64_t cancelled_at = 0;
    std::int64_t freed_at = -1;
    sink->watch(
        [&](StreamId id, std::size_t num_tokens) {
          if (id != one.when_has || num_tokens != one.num_tokens) return;
          cancelled_at = engine->stats().num_steps;
          EXPECT_TRUE(engine->instance().cancel({1, kVictim}));
        },
        [&] { freed_at = engine->stats().num_steps; });
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].key = {1, static_cast<StreamId>(i)};
      requests[i].sink = sink;
    }
    EXPECT_TRUE(engine->instance().submit_all(requests));
    const bool is_at_once = one.num_tokens == 0;
    if (is_at_once) {
      EXPECT_TRUE(engine->instance().cancel({1, kVictim}));
    }
    EXPECT_EQ(sink->wait(kVictim).error, "cancelled");
    for (std::size_t i = 0; i < others.size(); ++i) {
      expect_tail(sink->wait(static_cast<StreamId>(i)), wanted[i]);
    }
    if (is_at_once) continue;
    // The step under way, and on a device the one that is queued behind it.
    EXPECT_LE(freed_at - cancelled_at, GetParam() == Where::kDevice ? 2 : 1);
  }
  EXPECT_EQ(engine->stats().num_blocks_pinned, 0);
}

TEST_P(StreamBitsTest, StopsDoNotChangeOthers) {
  const auto alone = make_engine();
  const std::vector<Request> others = make_requests(0, 8);
  const auto expected = run_alone(*alone, others);
  std::vector<Request> stopped = make_requests(8, 8);
  const auto unstopped = run_alone(*alone, stopped);
  // Sixteen stops each, one of which comes true at the token of that number.
  for (std::size_t i = 0; i < stopped.size(); ++i) {
    const auto& entries = unstopped[i].entries;
    const std::size_t last = 3 + 2 * i;
    if (i % 2 == 0) {
      stopped[i].params.stop_token_ids.assign(15, vocab_size_ - 1);
      stopped[i].params.stop_token_ids.push_back(entries[last].token);
    } else {
      std::vector<PairStops::Pair> pairs(15, {0, 0});
      pairs.emplace_back(entries[last - 1].token, entries[last].token);
      stopped[i].stops = std::make_shared<PairStops>(pairs);
    }
  }
  std::vector<Request> all = others;
  all.insert(all.begin() + 3, stopped.begin(), stopped.end());
  const auto batched = make_engine();
  const auto together = run(*batched, all);
  EXPECT_EQ(batched->stats().num_steps_ahead > 0, GetParam() == Where::kDevice);
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    if (i < 3 || i >= 3 + stopped.size()) {
      expect_tail(together[i], expected[i < 3 ? i : i - stopped.size()]);
      continue;
    }
    const auto& got = together[i].entries;
    const auto& wanted = unstopped[i - 3].entries;
    ASSERT_LE(got.size(), 4 + 2 * (i - 3));
    for (std::size_t at = 0; at < got.size(); ++at) expect_same(got[at], wanted[at]);
    EXPECT_EQ(got.back().finish_reason, FinishReason::kStop);
  }
}

// The youngest are set back for want of blocks, and what ends them has seen their tokens before.
TEST_P(StreamBitsTest, AStopBehindAPreemptionEndsTheSameStream) {
  if (GetParam() == Where::kDevice) return;  // the scheduler's matter; a device only takes longer
  const auto alone = make_engine();
  std::vector<Request> requests;
  for (int number = 0; number < 8; ++number) {
    requests.push_back(request(number));
    requests.back().prompt.resize(5);
    requests.back().params.max_tokens = 100;
    requests.back().wants_notices = true;
  }
  const auto unstopped = run_alone(*alone, requests);
  const auto with_stops = [&] {  // one each, that comes true at a token of the second half
    std::vector<Request> stopped = requests;
    for (std::size_t i = 0; i < stopped.size(); ++i) {
      const auto& entries = unstopped[i].entries;
      stopped[i].stops = std::make_shared<PairStops>(
          std::vector<PairStops::Pair>{{entries[70 + i].token, entries[71 + i].token}});
    }
    return stopped;
  };
  const auto expected = run_alone(*alone, with_stops());
  const auto scarce = make_engine(24);
  const auto got = run(*scarce, with_stops());
  std::size_t num_stopped_behind = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(i);
    expect_tail(got[i], expected[i]);
    const bool is_stopped = got[i].entries.back().finish_reason == FinishReason::kStop;
    num_stopped_behind += is_stopped && got[i].num_preemptions > 0 ? 1 : 0;
  }
  EXPECT_GT(num_stopped_behind, 0U);
}

// The first tokens that come without min_tokens are what ends the stream, so that without it, or
// where resumed tokens did not count, another stream would come of it.
std::vector<Request> ended_requests(const std::vector<Request>& requests,
                                    const std::vector<Outcome>& outcomes) {
  std::vector<Request> ended = requests;
  for (std::size_t i = 0; i < ended.size(); ++i) {
    ended[i].params.min_tokens = 9;
    for (std::size_t at = 0; at < 3; ++at) {
      ended[i].params.stop_token_ids.push_back(outcomes[i].entries[2 * at].token);
    }
  }
  return ended;
}

// All that come of one stream, cut behind each of its tokens.
std::vector<Request> continuations(const Request& request, const Outcome& outcome) {
  std::vector<Request> made;
  Request next = request;
  for (std::size_t cut = 1; cut < outcome.entries.size(); ++cut) {
    next.prompt.push_back(outcome.entries[cut - 1].token);
    ++next.num_resumed;
    --next.params.max_tokens;
    made.push_back(next);
  }
  return made;
}

TEST_P(StreamBitsTest, AStreamContinuesFromAnyCut) {
  const auto engine = make_engine();
  const std::vector<Request> plain = make_requests(0, 8);
  const auto ended = ended_requests(plain, run_alone(*engine, plain));
  const auto whole = run_alone(*engine, ended);
  std::vector<Request> cuts;
  for (std::size_t i = 0; i < ended.size(); ++i) {
    ASSERT_GT(whole[i].entries.size(), 9U) << "min_tokens";
    const auto made = continuations(ended[i], whole[i]);
    cuts.insert(cuts.end(), made.begin(), made.end());
  }
  // From a cache that knows nothing; and where streams are preempted, for want of blocks.
  constexpr std::size_t kHogs = 3;  // older than the others, and longer: they grow
  for (int number = 0; number < static_cast<int>(kHogs); ++number) {
    cuts.insert(cuts.begin(), request(20 + number));
    cuts.front().prompt.resize(5);
    cuts.front().params.max_tokens = GetParam() == Where::kDevice ? 1 : 110;
  }
  for (const int num_blocks : {0, 24}) {
    if (GetParam() == Where::kDevice && num_blocks > 0) break;
    SCOPED_TRACE(num_blocks);
    const auto other = make_engine(num_blocks);
    const auto rests = run(*other, cuts);
    EXPECT_EQ(other->stats().num_preemptions > 0, num_blocks > 0);
    EXPECT_EQ(other->stats().num_steps_ahead > 0, GetParam() == Where::kDevice);
    std::size_t at = kHogs;
    for (std::size_t i = 0; i < ended.size(); ++i) {
      for (std::size_t cut = 1; cut < whole[i].entries.size(); ++cut, ++at) {
        SCOPED_TRACE(std::to_string(i) + " cut behind " + std::to_string(cut));
        expect_tail(rests[at], whole[i], cut);
      }
    }
  }
}

}  // namespace
}  // namespace lmtp
