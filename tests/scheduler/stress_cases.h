// Of the random operations: their shapes, and a stream of the naive model.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "lmtp/request/request.h"
#include "lmtp/scheduler/sequence.h"

namespace lmtp::scheduler {

inline int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

struct Case {
  int num_blocks;
  int max_batched_tokens;
  int context_length;
  bool runs_ahead = false;
  int adapter_blocks = 0;  // of each adapter; 0: none is used
  int num_host_blocks = 0;
  int max_drafts = 0;
  std::array<int, 2> windows = {};  // of groups of layers beside one without; 0: none
  bool has_stubs = false;           // there is none without
};

inline constexpr std::array kCases = {
    Case{500, 64, 128}, Case{12, 64, 128}, Case{10, 16, 128}, Case{9, 8, 128}, Case{30, 512, 256},
    Case{18, 33, 256}, Case{60, 1, 64}, Case{500, 64, 128, true}, Case{12, 64, 128, true},
    Case{18, 33, 256, true},
    // Beside a stream of the whole context there is a place for four of the adapters.
    Case{21, 64, 128, false, 3}, Case{21, 64, 128, true, 3}, Case{60, 16, 128, false, 3},
    // With blocks of the host: one, fewer than a stream may need, more than the pool has.
    Case{12, 64, 128, false, 0, 1}, Case{10, 16, 128, true, 0, 5}, Case{18, 33, 256, true, 0, 40},
    Case{12, 64, 128, false, 0, 200}, Case{21, 64, 128, true, 3, 12},
    // With drafts.
    Case{500, 64, 128, false, 0, 0, 4}, Case{12, 64, 128, false, 0, 0, 7},
    Case{18, 33, 256, false, 0, 0, 16}, Case{21, 64, 128, false, 3, 0, 3},
    Case{12, 64, 128, false, 0, 5, 5},
    // With groups: windows of one token, within a block, of blocks, of more than the context; with
    // room for little more than one stream, and for all.
    Case{500, 64, 128, false, 0, 0, 0, {40}}, Case{15, 8, 128, false, 0, 0, 0, {16}},
    Case{60, 16, 128, true, 0, 0, 0, {16, 48}}, Case{26, 33, 128, false, 0, 0, 0, {1, 20}},
    Case{22, 8, 128, true, 0, 0, 0, {1, 33}}, Case{40, 16, 256, false, 0, 0, 4, {17}},
    Case{60, 8, 256, true, 3, 0, 0, {9, 100}}, Case{30, 64, 128, false, 3, 0, 3, {500}},
    // The same where no layer sees all.
    Case{500, 64, 128, false, 0, 0, 0, {40}, true}, Case{7, 8, 128, false, 0, 0, 0, {16}, true},
    Case{20, 33, 128, false, 0, 0, 0, {1, 20}, true}, Case{12, 8, 256, true, 0, 0, 0, {1}, true},
    Case{40, 16, 256, false, 0, 0, 4, {17}, true}, Case{30, 16, 256, true, 3, 0, 0, {48, 16}, true},
    Case{30, 64, 128, false, 3, 0, 3, {500}, true},
    // With groups and blocks of the host.
    Case{15, 8, 128, false, 0, 40, 0, {16}}, Case{30, 16, 128, true, 0, 7, 0, {16, 48}},
    Case{26, 33, 128, false, 0, 200, 0, {1, 20}}, Case{46, 8, 256, true, 3, 30, 0, {9, 100}},
    Case{40, 16, 256, false, 0, 20, 4, {17}}, Case{7, 8, 128, false, 0, 3, 0, {16}, true},
    Case{20, 33, 128, true, 0, 50, 0, {1, 20}, true}};

// By the number of the case: none are kept, a few, some, all.
inline constexpr std::array<std::int64_t, 4> kScoreCacheBytes = {0, 20'000, 200'000, 64 << 20};

// A stream as one would write it down: a text, of which so much has been reported.
struct NaiveStream {
  RequestKind kind = RequestKind::kGenerate;
  std::vector<TokenId> text;  // prompt; then what was reported; then what is scored or appended
  int num_prompt = 0;
  int num_reported = 0;
  int max_tokens = 0;
  int num_generated_max = 0;         // max_tokens, clamped to the context
  std::vector<TokenId> forced = {};  // comes behind the token that is drawn next
  std::size_t forced_end = 0;        // of the text: what is not reported and before it was forced
  int num_backtracked = 0;           // of what was reported and of the prompt, since the last event
  int num_forks = 0;
  bool is_suspended = false;
  bool is_held = false;
  std::shared_ptr<const Adapter> adapter = {};

  int length() const { return static_cast<int>(text.size()); }
  int num_generated() const { return length() - num_prompt; }
};

// By hand: the next token of a sequence, at num_computed, sees that of a window before it and
// itself; what it sees it holds, and of what lies before it no more than what the token 32 before
// it would see. Runs are of 16 tokens.
inline void expect_held(const Sequence& sequence, const Case& shape) {
  const int next = sequence.num_computed;
  int group = 0;
  for (const int window : shape.windows) {
    if (window == 0) continue;
    ++group;
    for (int run = 0; run < sequence.blocks.size(); ++run) {
      const int last = 16 * run + 15;
      const bool is_held = sequence.blocks.in_group(static_cast<std::size_t>(run), group) != 0;
      ASSERT_TRUE(is_held || last <= next - window) << run << " of " << next << ", " << window;
      ASSERT_TRUE(!is_held || last > next - 32 - window) << run << " of " << next << ", " << window;
    }
  }
}

}  // namespace lmtp::scheduler
