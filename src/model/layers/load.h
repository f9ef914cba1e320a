// Loads the parts of a layer from a checkpoint. Random models are initialised as in transformers.
#pragma once

#include <string>
#include <vector>

#include "layers/linear.h"
#include "layers/norm.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {

inline constexpr TensorInit kZeros{};
inline constexpr TensorInit kOnes{.mean = 1.0F};
inline constexpr TensorInit kNormal{.deviation = 0.02F};

// NAME.weight [n, k] of each part, stacked, and NAME.bias if `with_bias`. Sizes are those of this
// rank. If `permutation` is not empty, output i is the stack's output permutation[i].
Linear load_linear(WeightLoader& in, const std::vector<WeightPart>& parts, std::int64_t k,
                   Split split, bool with_bias, const std::vector<std::int64_t>& permutation = {});

// The same; the parts' names are without .weight.
Linear load_linear(WeightLoader& in, const WeightStack& stack, bool with_bias);

// NAME.weight and NAME.bias, [width]. `shift` is added to the weight, which some families store
// around 0 instead of 1.
Norm load_layer_norm(WeightLoader& in, const std::string& name, std::int64_t width, float epsilon,
                     float shift = 0.0F, bool with_bias = true);

// NAME.weight [width].
Norm load_rms_norm(WeightLoader& in, const std::string& name, std::int64_t width, float epsilon,
                   float shift = 0.0F);

// NAME.alpha_p and .alpha_n [1], NAME.beta and .eps []: the numbers of an xIELU, as transformers'
// XIELUActivation has them.
kernels::Activation load_xielu(WeightLoader& in, const std::string& name);

// NAME.weight [vocab_size, width]: an embedding, or the output head, then NAME.bias if `with_bias`;
// of a rank its vocab_share() of rows.
Linear load_embedding(WeightLoader& in, const std::string& name, std::int64_t vocab_size,
                      std::int64_t width, bool with_bias = false);

// A head that is the embedding, with NAME.bias.
Linear load_tied_head(WeightLoader& in, const std::string& name, std::int64_t vocab_size,
                      const Linear& embedding);

}  // namespace lmtp::model
