// The layer of GPT-2 and OPT; they differ in how the checkpoint stores the weights.
#pragma once

#include "decoder_lm.h"
#include "layers/attention.h"
#include "layers/norm.h"

namespace lmtp::model {

// x += attention(norm(x)); x += down(activation(up(norm(x)))).
struct Gpt2Layer {
  LayerNorm attention_norm;
  Linear qkv;
  Linear attention_out;
  LayerNorm mlp_norm;
  Linear mlp_up;
  Linear mlp_down;
  AttentionShape shape;
  kernels::Activation activation = kernels::Activation::kNone;
  bool norm_first = true;  // false: x = norm(x + attention(x)); x = norm(x + down(...(x)))

  static std::int64_t floats_per_token(const ModelConfig& config);
  // x: [m, hidden_size] f32, in place
  void forward(const StepContext& step, const kernels::KvLayer& cache,
               kernels::Matrix<float> x) const;
};

}  // namespace lmtp::model
