// An embedding has the bits that its prompt alone gives: in a batch with streams of all kinds, in
// chunks, with a prefix from the cache, and after it was set back. On a CPU, and on a device that
// runs ahead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "stream_bits.h"

namespace lmtp {
namespace {

using testing::kContext;
using testing::Outcome;
using testing::prompt_of;
using testing::Where;

class EmbeddingBitsTest : public testing::StreamBits {
 protected:
  static Request embed(int number, int length, Pooling pooling) {
    Request made;
    made.kind = RequestKind::kEmbed;
    made.prompt = prompt_of(number, length);
    made.params.pooling = pooling;
    return made;
  }
  // All poolings, of prompts of one token, of whole blocks and of neither.
  static std::vector<Request> all_embeds() {
    std::vector<Request> made;
    for (const Pooling pooling : {Pooling::kLast, Pooling::kFirst, Pooling::kMean}) {
      for (const int length : {1, 2 * kBlockSize, 53}) made.push_back(embed(3, length, pooling));
    }
    return made;
  }
  static void expect_same(const std::vector<Outcome>& got, const std::vector<Outcome>& wanted) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_EQ(got[i].entries.size(), 1U);
      const TokenEvent& event = got[i].entries[0];
      EXPECT_EQ(event.token, kNoToken);
      EXPECT_EQ(event.finish_reason, FinishReason::kStop);
      ASSERT_NE(event.embedding, nullptr);
      const auto bits = [](const Embedding& numbers) {
        std::vector<std::uint32_t> all;
        for (const float number : *numbers) all.push_back(testing::bits(number));
        return all;
      };
      EXPECT_EQ(bits(event.embedding), bits(wanted[i].entries[0].embedding));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Agents, EmbeddingBitsTest, ::testing::Values(Where::kCpu, Where::kDevice),
                         testing::name_of);

TEST_P(EmbeddingBitsTest, PoolingsDifferAndAreOfTheirTokens) {
  const auto engine = make_engine();
  const auto of = [&](int length, Pooling pooling) {
    return *run(*engine, {embed(3, length, pooling)})[0].entries[0].embedding;
  };
  const std::vector<float> one = of(1, Pooling::kLast);
  EXPECT_EQ(of(1, Pooling::kFirst), one);
  EXPECT_EQ(of(1, Pooling::kMean), one);
  EXPECT_EQ(of(3, Pooling::kFirst), one) << "no token sees a later one";
  EXPECT_NE(of(3, Pooling::kLast), one);
  // The mean of three prompts' last states is that of the third one's tokens.
  const std::vector<float> two = of(2, Pooling::kLast);
  const std::vector<float> three = of(3, Pooling::kLast);
  const std::vector<float> mean = of(3, Pooling::kMean);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const double sum =
        static_cast<double>(one[i]) + static_cast<double>(two[i]) + static_cast<double>(three[i]);
    EXPECT_EQ(mean[i], static_cast<float>(sum / 3)) << i;
  }
}

TEST_P(EmbeddingBitsTest, CompanyAndChunksChangeNoBit) {
  const auto plain = make_engine();
  const std::vector<Request> embeds = all_embeds();
  const std::vector<Outcome> wanted = run_alone(*plain, embeds);
  scheduler::DebugOptions in_pieces;
  in_pieces.max_chunk_tokens = 8;
  for (const auto& debug : {scheduler::DebugOptions(), in_pieces}) {
    const auto engine = make_engine(0, debug);
    std::vector<Request> mixed = embeds;
    for (const Request& other : make_requests(2, 4)) mixed.push_back(other);
    Request& score = mixed.emplace_back();
    score.kind = RequestKind::kScore;
    score.prompt = prompt_of(7, 20);
    score.scored = prompt_of(8, 40);
    expect_same(run(*engine, mixed), wanted);
    EXPECT_EQ(engine->stats().num_steps_ahead > 0, GetParam() == Where::kDevice);
  }
}

// The last token is computed in any case; of a mean, and of the first one's state, all are.
TEST_P(EmbeddingBitsTest, APrefixFromTheCacheChangesNoBit) {
  const auto engine = make_engine();
  for (const Pooling pooling : {Pooling::kLast, Pooling::kFirst, Pooling::kMean}) {
    const std::vector<Request> request = {embed(11 + static_cast<int>(pooling), 53, pooling)};
    const std::vector<Outcome> wanted = run(*engine, request);
    const std::int64_t before = engine->stats().num_cached_tokens;
    expect_same(run(*engine, request), wanted);
    const int num_cached = pooling == Pooling::kLast ? 52 : 0;
    EXPECT_EQ(engine->stats().num_cached_tokens - before, num_cached);
    EXPECT_EQ(wanted[0].entries[0].num_cached, 0);
  }
}

// An older stream grows beyond what was expected of it.
TEST_P(EmbeddingBitsTest, SetBackForLackOfBlocksItHasItsBits) {
  constexpr int kBlocks = kContext / kBlockSize + 2;
  const auto plain = make_engine();
  Request older = request(0);
  older.prompt = prompt_of(9, 30);
  older.params.max_tokens = 40;
  scheduler::DebugOptions in_pieces;
  in_pieces.max_chunk_tokens = 2;
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    const std::vector<Request> embeds = {embed(30, 84, pooling)};
    const std::vector<Outcome> wanted = run(*plain, embeds);
    const auto engine = make_engine(kBlocks, in_pieces);
    std::vector<Outcome> got = run(*engine, {older, embeds[0]});
    EXPECT_GT(engine->stats().num_preemptions, 0);
    got.erase(got.begin());
    expect_same(got, wanted);
  }
}

}  // namespace
}  // namespace lmtp
