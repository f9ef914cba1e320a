// Attention over the paged cache: stores the step's keys and values, then attends.
#pragma once

#include "kernels/attention.h"
#include "step_context.h"

namespace lmtp::model {

struct AttentionShape {
  int num_heads = 0;
  float scale = 1.0F;
  float soft_cap = 0.0F;  // of the scores; 0: none
  int window = 0;         // tokens seen; 0: all before
};

// queries, y: [m, num_heads * head_dim]; keys, values: [m, num_kv_heads * head_dim].
inline void attend(const StepContext& step, const AttentionShape& shape,
                   const kernels::KvLayer& cache, kernels::Matrix<const float> queries,
                   kernels::Matrix<const float> keys, kernels::Matrix<const float> values,
                   kernels::Matrix<float> y) {
  const InputArrays& input = step.input;
  kernels::kv_store(step.stream,
                    {.keys = keys, .values = values, .slots = input.slots, .cache = cache});
  kernels::paged_attention(step.stream, {.queries = queries,
                                         .cache = cache,
                                         .num_heads = shape.num_heads,
                                         .scale = shape.scale,
                                         .soft_cap = shape.soft_cap,
                                         .window = shape.window,
                                         .num_sequences = input.num_sequences,
                                         .chunk_max = input.chunk_max,
                                         .context_max = input.context_max,
                                         .num_table_blocks = input.num_table_blocks,
                                         .cu_seqlens = input.cu_seqlens,
                                         .first_positions = input.first_positions,
                                         .block_offsets = input.block_offsets,
                                         .block_tables = input.block_tables,
                                         .table_starts = input.table_starts,
                                         .y = y});
}

}  // namespace lmtp::model
