// The numerics contract of constrained streams, through an engine: alone and in company, with
// tokens that are put in and with the same ones drawn, their bits are the same; and free streams
// have theirs beside them. On a CPU, and on a device that runs ahead.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lmtp/request/mask_source.h"
#include "stream_bits.h"

namespace lmtp {
namespace {

using testing::expect_tail;
using testing::Where;

// Five tokens of which one in three is allowed, five that are certain, and so on.
class Turns : public MaskSource {
 public:
  explicit Turns(bool forces) : forces_(forces) {}

  Result<void> compute(std::span<const TokenId> /*before*/, std::span<const TokenId> generated,
                       NextTokens& next) const override {
    const std::size_t position = generated.size();
    const auto certain = [](std::size_t at) { return static_cast<TokenId>(at * 7 % 60 + 1); };
    if (position % 10 < 5) {
      for (std::uint32_t& word : next.words.first(2)) {
        word = position % 2 == 0 ? 0x4924'9249U : 0x9249'2492U;
      }
      return {};
    }
    const TokenId token = certain(position);
    next.words[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
    if (position % 10 == 9) return {};  // behind what is put in, one is drawn
    for (std::size_t i = position + 1; forces_ && i % 10 < 9; ++i) {
      next.forced.push_back(certain(i));
    }
    return {};
  }
  std::shared_ptr<const MaskSource> forked() const override {
    return std::make_shared<Turns>(forces_);
  }

 private:
  const bool forces_;
};

class ConstrainedBitsTest : public testing::StreamBits {
 protected:
  static std::vector<Request> constrained(int first, int count, bool forces) {
    std::vector<Request> made = make_requests(first, count);
    for (Request& one : made) {
      one.params.mask = nullptr;  // a request has one or the other
      one.mask_source = std::make_shared<Turns>(forces);
    }
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(Agents, ConstrainedBitsTest,
                         ::testing::Values(Where::kCpu, Where::kDevice), testing::name_of);

TEST_P(ConstrainedBitsTest, AloneOrInCompanyForcedOrDrawn) {
  const auto engine = make_engine();
  const int num_each = GetParam() == Where::kDevice ? 2 : 8;
  const std::vector<Request> free = make_requests(1, num_each);
  const std::vector<Request> drawn = constrained(8, num_each, false);
  const std::vector<Request> forced = constrained(8, num_each, true);
  const auto expected_free = run_alone(*engine, free);
  const auto expected = run_alone(*engine, drawn);
  EXPECT_EQ(engine->stats().num_forced_tokens, 0);
  const auto forced_alone = run_alone(*engine, {forced[0]});
  EXPECT_GT(engine->stats().num_forced_tokens, 0);
  expect_tail(forced_alone[0], expected[0]);

  std::vector<Request> all = free;
  all.insert(all.begin() + 2, drawn.begin(), drawn.end());
  all.insert(all.end(), forced.begin(), forced.end());
  const auto together = run(*engine, all);
  const std::size_t num = drawn.size();
  for (std::size_t i = 0; i < num; ++i) {
    SCOPED_TRACE(i);
    expect_tail(together[2 + i], expected[i]);
    expect_tail(together[free.size() + num + i], expected[i]);
  }
  for (std::size_t i = 0; i < free.size(); ++i) {
    SCOPED_TRACE(i);
    expect_tail(together[i < 2 ? i : i + num], expected_free[i]);
  }
}

}  // namespace
}  // namespace lmtp
