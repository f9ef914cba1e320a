// One step's tokens as the model takes them: rows of many sequences packed one after another.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace lmtp::model {

// Owner: the agent, which reuses it from step to step. m tokens of n sequences.
struct ModelInput {
  std::vector<std::int32_t> ids;              // [m]
  std::vector<std::int32_t> positions;        // [m]
  std::vector<std::int32_t> slots;            // [m] block * kBlockSize + offset
  std::vector<std::int32_t> cu_seqlens;       // [n + 1]
  std::vector<std::int32_t> first_positions;  // [n]
  std::vector<std::int32_t> block_offsets;    // [n + 1] into block_tables
  std::vector<std::int32_t> block_tables;
  std::vector<std::int32_t> logit_rows;  // rows in [0, m) whose logits are wanted, ascending
  std::vector<kernels::KvCopy> copies;   // before the forward pass, in order

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t num_sequences() const { return static_cast<std::int64_t>(first_positions.size()); }
};

}  // namespace lmtp::model
