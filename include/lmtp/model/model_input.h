// One step's tokens: the chunks of several sequences, packed one after another.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/lora.h"
#include "lmtp/base/kv_layout.h"

namespace lmtp::model {

// Owner: the agent, which reuses it from step to step. m tokens of n sequences. The tables of a
// sequence have the same length in all groups of layers (KvLayout).
struct ModelInput {
  int num_groups = 1;
  std::vector<std::int32_t> ids;        // [m]
  std::vector<std::int32_t> positions;  // [m]
  // By group: [m] block * kBlockSize + offset
  std::array<std::vector<std::int32_t>, KvLayout::kGroupsMax> slots;
  std::vector<std::int32_t> cu_seqlens;       // [n + 1]
  std::vector<std::int32_t> first_positions;  // [n]
  std::vector<std::int32_t> block_offsets;    // [n + 1] into block_tables, of group 0
  // By group, of those after group 0: [n] where in block_tables each sequence's table begins.
  std::array<std::vector<std::int32_t>, KvLayout::kGroupsMax> table_starts;
  std::vector<std::int32_t> block_tables;  // of each group in turn
  std::vector<std::int32_t> logit_rows;  // rows in [0, m) whose logits are wanted; then padding, 0
  std::vector<kernels::KvCopy> copies;   // before the forward pass, in order

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t num_sequences() const { return static_cast<std::int64_t>(first_positions.size()); }
};

// The blocks of a group.
struct GroupBlocks {
  const std::int32_t* slots = nullptr;
  const std::int32_t* tables = nullptr;
  const std::int32_t* table_starts = nullptr;  // in tables; block_offsets, or others
};

// The same as pointers for the ops: into a ModelInput, or to copies in device memory.
struct InputArrays {
  std::int64_t num_tokens = 0;     // m
  std::int64_t num_sequences = 0;  // n
  std::int64_t num_copies = 0;
  std::int32_t chunk_max = 0;    // the most tokens of one sequence
  std::int32_t context_max = 0;  // the largest position, plus 1
  std::int32_t num_table_blocks = 0;
  const std::int32_t* ids = nullptr;
  const std::int32_t* positions = nullptr;
  std::array<GroupBlocks, KvLayout::kGroupsMax> groups = {};
  const std::int32_t* cu_seqlens = nullptr;
  const std::int32_t* first_positions = nullptr;
  const std::int32_t* block_offsets = nullptr;
  const std::int32_t* logit_rows = nullptr;
  const kernels::KvCopy* copies = nullptr;
  kernels::LoraRows lora = {};  // of the m tokens, those with an adapter
};

// Views of host arrays; valid until they are changed.
inline InputArrays arrays_of(const ModelInput& input) {
  InputArrays arrays{.num_tokens = input.num_tokens(),
                     .num_sequences = input.num_sequences(),
                     .num_copies = static_cast<std::int64_t>(input.copies.size()),
                     .num_table_blocks = input.block_offsets.back(),
                     .ids = input.ids.data(),
                     .positions = input.positions.data(),
                     .cu_seqlens = input.cu_seqlens.data(),
                     .first_positions = input.first_positions.data(),
                     .block_offsets = input.block_offsets.data(),
                     .logit_rows = input.logit_rows.data(),
                     .copies = input.copies.data()};
  for (std::size_t group = 0; group < static_cast<std::size_t>(input.num_groups); ++group) {
    arrays.groups[group] = {
        .slots = input.slots[group].data(),
        .tables = input.block_tables.data(),
        .table_starts = group == 0 ? arrays.block_offsets : input.table_starts[group].data()};
  }
  for (std::size_t s = 0; s < input.first_positions.size(); ++s) {
    const std::int32_t chunk = input.cu_seqlens[s + 1] - input.cu_seqlens[s];
    arrays.chunk_max = std::max(arrays.chunk_max, chunk);
    arrays.context_max = std::max(arrays.context_max, input.first_positions[s] + chunk);
  }
  return arrays;
}

}  // namespace lmtp::model
