// CausalLM: a loaded model. It calls nothing but the ops of kernels/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/stream.h"
#include "lmtp/base/result.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/model_input.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {

// Owner: the model agent; all calls from one thread, all with the same stream.
class CausalLM {
 public:
  virtual ~CausalLM() = default;

  virtual const ModelConfig& config() const = 0;
  virtual std::int64_t num_parameters() const = 0;

  // Writes the tokens' keys and values to the cache and returns the last layer's output
  // [m, hidden_size] f32, valid until the next call. Everything lies where the weights were put.
  // REQUIRES: m <= max_tokens of make_causal_lm.
  virtual kernels::Matrix<const float> forward(kernels::Stream& stream, const InputArrays& input,
                                               const KvCache& cache) = 0;

  // to[i] = logits of hidden's row rows[i]. rows: [to.rows]; to: [to.rows, vocab_size] f32.
  // REQUIRES: to.rows <= BatchLimits::kSequencesMax; hidden is what the last forward returned.
  virtual void logits(kernels::Stream& stream, kernels::Matrix<const float> hidden,
                      const std::int32_t* rows, kernels::Matrix<float> to) = 0;
};

// Makes the model of config.model_type from the tensors of `weights`; the workspace is for steps of
// up to max_tokens. The error names the tensor that is missing or of another shape.
Result<std::unique_ptr<CausalLM>> make_causal_lm(const ModelConfig& config, WeightLoader& weights,
                                                 int max_tokens);

// The tensors that make_causal_lm asks for, in order, without loading any.
Result<std::vector<TensorSpec>> describe_tensors(const ModelConfig& config);

// Asks for the same, of a source that gives nothing to read: its first error, if any.
Result<void> ask_for_tensors(const ModelConfig& config, TensorSource& source);

// Compares what a checkpoint holds with what its model asks for, before anything is read. The error
// names what is missing or of another shape or type, and, without `force`, tensors that nobody asks
// for but a larger model around this one. What a user should know of them otherwise is returned.
Result<std::vector<std::string>> check_tensors(const ModelConfig& config, TensorSource& checkpoint,
                                               bool force);

}  // namespace lmtp::model
