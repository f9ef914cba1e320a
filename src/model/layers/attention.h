// Attention over the paged cache: stores the step's keys and values, then attends.
#pragma once

#include "kernels/attention.h"
#include "lmtp/model/kv_cache.h"
#include "step_context.h"

namespace lmtp::model {

// Of a layer, on this rank.
struct AttentionShape {
  int num_heads = 0;  // of the queries
  KvSpec kv;
  float scale = 1.0F;
  float soft_cap = 0.0F;  // of the scores; 0: none

  // Columns of the queries, and of the result.
  std::int64_t query_width() const { return std::int64_t{num_heads} * kv.head_dim; }
};

// queries, y: [m, shape.query_width()]; keys, values: [m, shape.kv.width()]; sinks: [num_heads], or
// null.
inline void attend(const StepContext& step, const AttentionShape& shape,
                   const kernels::KvLayer& cache, kernels::Matrix<const float> queries,
                   kernels::Matrix<const float> keys, kernels::Matrix<const float> values,
                   const float* sinks, kernels::Matrix<float> y) {
  const InputArrays& input = step.input;
  const GroupBlocks& blocks = input.groups[static_cast<std::size_t>(step.group)];
  kernels::kv_store(step.stream,
                    {.keys = keys, .values = values, .slots = blocks.slots, .cache = cache});
  kernels::paged_attention(step.stream, {.queries = queries,
                                         .cache = cache,
                                         .num_heads = shape.num_heads,
                                         .scale = shape.scale,
                                         .soft_cap = shape.soft_cap,
                                         .window = shape.kv.window,
                                         .sinks = sinks,
                                         .num_sequences = input.num_sequences,
                                         .chunk_max = input.chunk_max,
                                         .context_max = input.context_max,
                                         .num_table_blocks = input.num_table_blocks,
                                         .cu_seqlens = input.cu_seqlens,
                                         .first_positions = input.first_positions,
                                         .block_offsets = input.block_offsets,
                                         .block_tables = blocks.tables,
                                         .table_starts = blocks.table_starts,
                                         .y = y});
}

}  // namespace lmtp::model
