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
  const ModelInput& input = step.input;
  kernels::kv_store(step.stream,
                    {.keys = keys, .values = values, .slots = input.slots.data(), .cache = cache});
  kernels::paged_attention(step.stream, {.queries = queries,
                                         .cache = cache,
                                         .num_heads = shape.num_heads,
                                         .scale = shape.scale,
                                         .soft_cap = shape.soft_cap,
                                         .window = shape.window,
                                         .num_sequences = input.num_sequences(),
                                         .cu_seqlens = input.cu_seqlens.data(),
                                         .first_positions = input.first_positions.data(),
                                         .block_offsets = input.block_offsets.data(),
                                         .block_tables = input.block_tables.data(),
                                         .y = y});
}

}  // namespace lmtp::model
