// KvLayout: which blocks of the KV cache a sequence keeps. Scheduler, agent and memory plan get the
// same one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "lmtp/base/ids.h"

namespace lmtp {

// Layers are in groups, and a block is a run of kBlockSize tokens in the layers of one group: so a
// sequence has a table of blocks for each group. Blocks of all groups have the same size, and come
// from one pool. Group 0 keeps all tokens; a group with a window keeps those that the next token
// sees, itself included, and a few before them; it gives back the blocks before these. Several
// groups may have the same window (vLLM's hybrid cache; Gemma 3 has five layers with a window for
// each one without).
struct KvLayout {
  static constexpr int kGroupsMax = 8;
  // Tokens before the window that a stream keeps, so that a step back of as many finds all groups.
  static constexpr int kKeptBefore = 2 * kBlockSize;
  // There is a checkpoint at each multiple of so many of the largest window: where all else that
  // was passed is gone, a stream goes on from there.
  static constexpr int kCheckpointWindows = 4;

  int num_groups = 1;  // [1, kGroupsMax]
  std::array<std::int32_t, kGroupsMax> windows =
      {};  // in tokens, >= 1; 0: all are kept. Group 0: 0
  // Tokens of one sequence that steps may write which are not committed yet.
  std::int32_t num_written_max = 0;

  bool operator==(const KvLayout&) const = default;

  std::int32_t window(int group) const { return windows[static_cast<std::size_t>(group)]; }

  // The first block of the group that is needed where num_computed tokens are in the cache.
  int first_block(int group, int num_computed) const {
    const std::int32_t size = window(group);
    return size == 0 ? 0 : std::max(0, num_computed + 1 - size) / kBlockSize;
  }
  // The first one that a stream keeps which has computed so many.
  int first_kept(int group, int num_computed) const {
    return first_block(group, std::max(0, num_computed - kKeptBefore));
  }

  // Whether a stream that begins at the checkpoint after a block needs it of that group.
  // REQUIRES: the group has a window.
  bool is_before_checkpoint(int group, int block) const {
    const std::int64_t largest = *std::max_element(windows.begin(), windows.end());
    const std::int64_t distance = (kCheckpointWindows * largest + kBlockSize - 1) / kBlockSize;
    const std::int64_t num_needed = (window(group) - 1 + kBlockSize - 1) / kBlockSize;
    return distance - block % distance <= num_needed;
  }

  // The most blocks of the group that a sequence of num_blocks runs of tokens holds at a time,
  // where num_written tokens are not committed: they, and those before them that are kept.
  int num_held_max(int group, int num_blocks, int num_written) const {
    const std::int64_t size = window(group);
    if (size == 0) return num_blocks;
    const std::int64_t num_tokens = kKeptBefore + size - 1 + num_written;
    const std::int64_t most = (num_tokens + kBlockSize - 2) / kBlockSize + 1;
    return static_cast<int>(std::min<std::int64_t>(num_blocks, most));
  }

  // As much of all groups, of a sequence that comes to have num_tokens.
  std::int64_t num_held_max(int num_tokens) const {
    const int num_blocks = (num_tokens + kBlockSize - 1) / kBlockSize;
    std::int64_t sum = 0;
    for (int group = 0; group < num_groups; ++group) {
      sum += num_held_max(group, num_blocks, std::min(num_tokens, num_written_max));
    }
    return sum;
  }
};

}  // namespace lmtp
