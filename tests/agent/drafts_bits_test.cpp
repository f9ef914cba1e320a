// Speculation through an engine: text, log probabilities and alternatives of every kind of stream
// are to the bit those without. On a CPU, and on a device, where no option asks for it yet.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "stream_bits.h"

namespace lmtp {
namespace {

using testing::expect_tail;
using testing::Outcome;
using testing::Where;

class DraftsBitsTest : public testing::StreamBits {
 protected:
  static std::unique_ptr<engine::Engine> make_drafting(int max_drafts, int num_blocks = 0) {
    scheduler::DebugOptions debug;
    debug.eager_drafts = true;
    return make_engine(num_blocks, debug, 0, max_drafts);
  }

  static void expect_equal(const std::vector<Outcome>& got, const std::vector<Outcome>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(i);
      expect_tail(got[i], wanted[i]);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Agents, DraftsBitsTest, ::testing::Values(Where::kCpu, Where::kDevice),
                         testing::name_of);

// With seeds, penalties, biases, masks, alternatives; alone and together.
TEST_P(DraftsBitsTest, EveryKindOfStreamHasItsBits) {
  const auto plain = make_engine();
  const std::vector<Request> requests = make_requests(0, 12);
  const auto wanted = run_alone(*plain, requests);
  for (const int max_drafts : {1, 5, 16}) {
    SCOPED_TRACE(max_drafts);
    const auto engine = make_drafting(max_drafts);
    expect_equal(run(*engine, requests), wanted);
    const engine::EngineStats first = engine->stats();
    EXPECT_GT(first.num_refused_drafts, 0);
    EXPECT_EQ(first.num_steps_ahead, 0);
    // Again: what the cache has of each is what it draws.
    expect_equal(run(*engine, requests), wanted);
    const engine::EngineStats second = engine->stats();
    EXPECT_GT(second.num_accepted_drafts - first.num_accepted_drafts,
              static_cast<std::int64_t>(requests.size()) * num_tokens() / 3);
    expect_equal(run_alone(*engine, requests), wanted);
  }
}

// Where streams are set back, too.
TEST_P(DraftsBitsTest, AndInASmallCache) {
  if (GetParam() == Where::kDevice) return;  // the scheduler's matter; a device only takes longer
  const auto plain = make_engine();
  std::vector<Request> requests = make_requests(0, 8);
  for (Request& request : requests) request.params.max_tokens = 60;
  const auto wanted = run_alone(*plain, requests);
  const auto engine = make_drafting(4, testing::kContext / kBlockSize + 2);
  expect_equal(run(*engine, requests), wanted);
  EXPECT_GT(engine->stats().num_preemptions, 0);
  EXPECT_GT(engine->stats().num_accepted_drafts, 0);
}

// As the reply of a chat with tools is: free at first, and then under a grammar.
class FreeUpTo : public MaskSource {
 public:
  explicit FreeUpTo(std::size_t num) : num_(num) {}
  Result<void> compute(std::span<const TokenId> /*before*/, std::span<const TokenId> generated,
                       NextTokens& next) const override {
    const std::uint32_t word = generated.size() < num_ ? ~std::uint32_t{0} : 0x5A5AA5A5U;
    std::ranges::fill(next.words, word);
    return {};
  }
  std::size_t num_free(std::span<const TokenId> generated,
                       std::span<const TokenId> drafts) const override {
    const std::size_t last = std::min(generated.size() + drafts.size(), num_ - 1);
    return last - std::min(last, generated.size());
  }
  std::shared_ptr<const MaskSource> forked() const override {
    return std::make_shared<FreeUpTo>(num_);
  }

 private:
  const std::size_t num_;
};

TEST_P(DraftsBitsTest, AStreamThatIsFreeUpToItsGrammarHasItsBits) {
  std::vector<Request> requests = make_requests(0, 6);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].mask_source = std::make_shared<FreeUpTo>(8 + i);
  }
  const auto wanted = run_alone(*make_engine(), requests);
  const auto engine = make_drafting(5);
  for (int turn = 0; turn < 2; ++turn) expect_equal(run(*engine, requests), wanted);
  EXPECT_GT(engine->stats().num_accepted_drafts, 0);
}

// The end comes at each of the places among tokens that are computed together.
TEST_P(DraftsBitsTest, AStopEndsTheStreamWhereItDoesWithoutDrafts) {
  const auto plain = make_engine();
  const auto engine = make_drafting(6);
  const auto full = run_alone(*plain, {request(4)})[0].entries;
  (void)run(*engine, {request(4)});
  for (std::size_t last = 4; last < 12; ++last) {
    Request stopped = request(4);
    stopped.params.stop_token_ids = {full[last].token};
    const std::int64_t before = engine->stats().num_accepted_drafts;
    const auto got = run(*engine, {stopped});
    expect_equal(got, run(*plain, {stopped}));
    EXPECT_EQ(got[0].entries.back().finish_reason, FinishReason::kStop);
    EXPECT_LE(got[0].entries.size(), last + 1);
    EXPECT_GT(engine->stats().num_accepted_drafts, before);
  }
}

}  // namespace
}  // namespace lmtp
