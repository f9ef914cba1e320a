// gpu-bench: the sampler and the small ops of a layer.
#pragma once

#include "kernels/stream.h"

namespace lmtp::bench {

// A line for each way of choosing: greedy with 0 to 1,024 alternatives, and draws. Logits are
// spread as those of GPT-2: mean -100, deviation 10.
void sample_op(kernels::Stream& stream, int rows, int vocabulary);

struct LayerShape {
  int rows;
  int hidden;
  int inner;  // of the feed-forward layer
  int num_heads;
  int num_kv_heads;
  int head_dim;
};

// A line for each op of a decoder's layer that is no product: both norms, rotary, the gated
// activation, kv_store.
void small_ops(kernels::Stream& stream, const LayerShape& shape);

}  // namespace lmtp::bench
