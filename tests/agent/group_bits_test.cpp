// Groups of layers with windows through an engine: what is given back, found again, copied and
// overwritten changes no bit. On a CPU, and on a device that runs ahead.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "stream_bits.h"

namespace lmtp {
namespace {

using testing::expect_tail;
using testing::kContext;
using testing::prompt_of;
using testing::Where;

class GroupBitsTest : public testing::StreamBits {
 protected:
  ~GroupBitsTest() override {
    checkpoint_ = "checkpoints/five-heads-f16";
    window_ = 0;
  }
};

INSTANTIATE_TEST_SUITE_P(Agents, GroupBitsTest, ::testing::Values(Where::kCpu, Where::kDevice),
                         testing::name_of);

// Prompts that share their beginning, far before the windows of their ends, on a cache that holds
// little more than one stream; on a device beside blocks of the host.
TEST_P(GroupBitsTest, WhatGroupsKeepHasTheBitsOfOneGroup) {
  struct Case {
    const char* checkpoint;
    int window;  // one token, a block, two and a few tokens
    int num_groups;
    bool has_stubs = false;  // beside the groups with layers; on a device there are none
  };
  for (const Case& one : {Case{"families/gemma2", 16, 3}, Case{"families/gemma3", 1, 2},
                          Case{"families/cohere2", 35, 4}, Case{"families/mistral", 16, 2, true},
                          Case{"families/phi3", 1, 2, true}, Case{"families/phi3", 35, 2, true}}) {
    SCOPED_TRACE(one.checkpoint);
    if (GetParam() == Where::kDevice && (one.window != 16 || one.has_stubs)) continue;
    checkpoint_ = one.checkpoint;
    window_ = one.window;
    scheduler::DebugOptions dense;
    dense.kv_groups = false;
    const auto plain = make_engine(0, dense);
    EXPECT_EQ(plain->stats().agent.kv_layout.num_groups, 1);
    std::vector<Request> requests = make_requests(1, 6);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt = prompt_of(20, 50);
      const auto own = prompt_of(static_cast<int>(i) + 30, 20 + static_cast<int>(i));
      requests[i].prompt.insert(requests[i].prompt.end(), own.begin(), own.end());
      requests[i].params.max_tokens = 12;
    }
    const auto wanted = run_alone(*plain, requests);
    const bool has_host = GetParam() == Where::kDevice;
    const auto engine = make_engine(kContext / kBlockSize + 2, {}, has_host ? 60 : 0);
    EXPECT_EQ(engine->stats().agent.kv_layout.num_groups, one.num_groups);
    for (int round = 0; round < 2; ++round) {
      const auto got = run(*engine, requests);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(i);
        expect_tail(got[i], wanted[i]);
      }
    }
    EXPECT_GE(engine->stats().num_cached_tokens, 3 * kBlockSize);
    EXPECT_EQ(engine->stats().num_swapped_out > 0, has_host);
    EXPECT_EQ(engine->stats().num_swapped_in > 0, has_host);
  }
}

}  // namespace
}  // namespace lmtp
