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
//
// Where all layers have windows group 0 has no layers: its blocks are stubs, ids without memory, by
// which the blocks of the other groups are found.
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
  bool has_stubs = false;  // in group 0

  bool operator==(const KvLayout&) const = default;

  std::int32_t window(int group) const { return windows[static_cast<std::size_t>(group)]; }
  std::int32_t largest_window() const { return *std::max_element(windows.begin(), windows.end()); }
  // The first group that has layers, and how many have.
  int first_group() const { return has_stubs ? 1 : 0; }
  int num_with_layers() const { return num_groups - first_group(); }

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
    const std::int64_t distance =
        (kCheckpointWindows * std::int64_t{largest_window()} + kBlockSize - 1) / kBlockSize;
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

  // As much of all groups with layers, of a sequence that comes to have num_tokens.
  std::int64_t num_held_max(int num_tokens) const {
    const int num_blocks = (num_tokens + kBlockSize - 1) / kBlockSize;
    std::int64_t sum = 0;
    for (int group = first_group(); group < num_groups; ++group) {
      sum += num_held_max(group, num_blocks, std::min(num_tokens, num_written_max));
    }
    return sum;
  }

  // So many stubs that none of num_sequences lacks one where there are num_blocks with memory: one
  // for each of these, and the runs that sequences have passed. What was passed is a tree of texts,
  // and after each of its leaves a sequence holds a whole window (of 16m tokens at least m blocks),
  // which no other leaf has: so it has no more leaves than there are windows in num_blocks, nor
  // than sequences. The numbers of tokens in blocks, by which agents know them, have 32 bits.
  int num_stubs(int num_blocks, int num_sequences, int context_length) const {
    if (!has_stubs) return 0;
    const std::int64_t of_each = (context_length + kBlockSize - 1) / kBlockSize;
    const std::int64_t num_windows =
        num_blocks / ((largest_window() + kBlockSize - 1) / kBlockSize) + 1;
    const std::int64_t passed = of_each * std::min<std::int64_t>(num_windows, num_sequences);
    return static_cast<int>(
        std::min<std::int64_t>(num_blocks + passed, INT32_MAX / kBlockSize - num_blocks));
  }
};

}  // namespace lmtp
