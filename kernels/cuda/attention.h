// Attention over the paged cache on a device (kv_store.h), with one order of sums for decode,
// prefill and any chunks.
//
// As in FlashAttention-2 (Dao 2023): the 16 rows of a tile are queries times the heads that share a
// head of the cache. Every 256 tokens are a split; a split is an online softmax over steps of 64
// tokens from its first, in order; splits are merged in order from token 0. What a row does not see
// (steps, splits, other rows of its tile) multiplies by one and adds zero. Few queries: a block a
// split, a warp a step, and the block that is done last merges (attention_decode.cuh). Many: a
// block takes 64 rows through all they see (attention_prefill.cuh). The same operations on the same
// numbers: the same bits.
// Rounded to the cache's type are queries and the softmax's powers, to bf16 where it is e4m3, which
// is widened in registers; all sums are f32. f32, for checks: the same order with fused
// multiply-adds, a warp a row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/backend.h"
#include "kernels/device_types.h"

namespace lmtp::kernels::cuda {

// kPrefill, for tests: for any number of queries.
enum class AttentionKernel { kBest, kPrefill };

// Blocks that decode launches: about one a split and head of the cache, also where one sequence is
// much longer than others.
std::int64_t num_decode_blocks(const AttentionArgs& args);

struct AttentionSizes {
  std::size_t scratch_bytes = 0;
  std::size_t counter_bytes = 0;
};
AttentionSizes attention_sizes(const AttentionArgs& args);
// The most that a step within the limits takes.
AttentionSizes attention_sizes_max(const OpLimits& limits);

struct AttentionMemory {
  void* scratch = nullptr;            // 16-byte aligned
  std::uint32_t* counters = nullptr;  // zeros, and zeros again when the op has run
};

// All pointers are in the device's memory; `memory`: attention_sizes(). chunk_max, context_max and
// num_table_blocks only set how many blocks are launched and how much memory is used. REQUIRES:
// head_dim <= kDeviceHeadDimMax.
void paged_attention(const AttentionArgs& args, const AttentionMemory& memory, StreamHandle stream,
                     AttentionKernel kernel = AttentionKernel::kBest);

}  // namespace lmtp::kernels::cuda
