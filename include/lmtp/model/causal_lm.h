// CausalLM: a loaded model. It calls nothing but the ops of kernels/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/stream.h"
#include "lmtp/base/result.h"
#include "lmtp/model/communicator.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/model_input.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {

// Owner: the model agent; all calls from one thread, all with the same stream.
class CausalLM {
 public:
  virtual ~CausalLM() = default;

  virtual const ModelConfig& config() const = 0;  // a rank's rank_config
  virtual std::int64_t num_parameters() const = 0;

  // Writes the tokens' keys and values to the cache and returns the last layer's output
  // [m, hidden_size] f32, valid until the next call. All pointers are memory of the weights'
  // device. REQUIRES: m <= ModelSetup::max_tokens. Throws RankError, as logits().
  virtual kernels::Matrix<const float> forward(kernels::Stream& stream, const InputArrays& input,
                                               const KvCache& cache) = 0;

  // to[i] = logits of hidden's row rows[i]. rows: [to.rows]; to: [to.rows, vocab_size] f32.
  // REQUIRES: to.rows <= BatchLimits::kSequencesMax; hidden is what the last forward returned.
  virtual void logits(kernels::Stream& stream, kernels::Matrix<const float> hidden,
                      const std::int32_t* rows, kernels::Matrix<float> to) = 0;

  // to[i] = what the head reads of hidden's row rows[i]: after the final norm and, where the head
  // has another width, the projection to it. rows: [to.rows]; to: [to.rows, state_size()] f32.
  // REQUIRES: as logits(), but for to.rows, which is at most max_tokens.
  virtual void states(kernels::Stream& stream, kernels::Matrix<const float> hidden,
                      const std::int32_t* rows, kernels::Matrix<float> to) = 0;
  virtual int state_size() const = 0;
};

struct ModelSetup {
  int max_tokens = 0;          // of a step
  Communicator& communicator;  // of the loader's shard; outlives the model
};

// Makes the model of config.model_type from the tensors of `weights`, or a rank's share of it.
// The error names a tensor that is missing or of the wrong shape, or says that the model cannot be
// divided so.
Result<std::unique_ptr<CausalLM>> make_causal_lm(const ModelConfig& config, WeightLoader& weights,
                                                 const ModelSetup& setup);

// The tensors that make_causal_lm requests, in order, without loading any.
Result<std::vector<TensorSpec>> describe_tensors(const ModelConfig& config);

// The linear layers that adapters may add to, by their numbers: WeightLoader::linears().
Result<std::vector<WeightStack>> describe_linears(const ModelConfig& config);

// All matrices of layers that ranks divide, with the names of their tensors.
Result<std::vector<WeightStack>> describe_divided(const ModelConfig& config);

// Requests the same tensors from a source without data; returns its first error, if any.
Result<void> request_tensors(const ModelConfig& config, TensorSource& source);

// Decides config.tied_embeddings as transformers 5 does, where config.settles_head: a head in the
// weights whose values, widened, differ from the embedding's is used, with a note where config.json
// ties them; an equal one is the embedding's, and so is a missing one. Reads both tensors up to the
// first difference; without `can_read` (open_headers) they are taken for equal. The error is that
// of the weights. Before check_tensors.
Result<void> settle_head(TensorSource& weights, bool can_read, ModelConfig& config);

// Compares a checkpoint's tensors with those of its model, before any data are read. The error
// names tensors that are missing or of the wrong shape or type, and, without `force`, unused
// tensors; those of a larger model around this one are allowed. Returns notes for the user about
// the rest.
Result<std::vector<std::string>> check_tensors(const ModelConfig& config, TensorSource& checkpoint,
                                               bool force);

}  // namespace lmtp::model
