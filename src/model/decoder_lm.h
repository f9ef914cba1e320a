// DecoderLM: embedding, layers, final norm, head. What differs between architectures is the Layer.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/embedding.h"
#include "layers/linear.h"
#include "lmtp/model/causal_lm.h"
#include "step_context.h"

namespace lmtp::model {

// Layer: void forward(const StepContext&, const kernels::KvLayer&, kernels::Matrix<float> x) const,
//        x [m, hidden_size] in place; floats_per_token(config) it takes from the workspace.
// Norm:  void operator()(stream, x, y) const.
template <typename Layer, typename Norm>
class DecoderLM : public CausalLM {
 public:
  struct Parts {
    Linear token_embedding;         // [vocab_size, hidden_size]; the head too, where head is unset
    at::Tensor position_embedding;  // [context_length, hidden_size] f32, or undefined
    std::vector<Layer> layers;
    Norm final_norm;
    Linear head;  // [vocab_size, hidden_size], or unset: tied
    std::int64_t num_parameters = 0;
  };

  DecoderLM(ModelConfig config, Parts parts, int max_tokens)
      : config_(std::move(config)),
        parts_(std::move(parts)),
        max_tokens_(max_tokens),
        workspace_(max_tokens * (config_.hidden_size + Layer::floats_per_token(config_)) +
                   kLogitRowsMax * config_.hidden_size + kSlackFloats) {}

  const ModelConfig& config() const override { return config_; }
  std::int64_t num_parameters() const override { return parts_.num_parameters; }

  kernels::Matrix<const float> forward(kernels::Stream& stream, const ModelInput& input,
                                       const KvCache& cache) override {
    LMTP_CHECK(input.num_tokens() >= 1 && input.num_tokens() <= max_tokens_, input.num_tokens());
    cache.copy_blocks(stream, input.copies);
    workspace_.back_to(0);
    const auto x = workspace_.take(input.num_tokens(), config_.hidden_size);
    kernels::embedding(stream, {.ids = input.ids.data(),
                                .table = parts_.token_embedding.weight(),
                                .positions = input.positions.data(),
                                .position_table = position_table(),
                                .y = x});
    const StepContext step{stream, input, workspace_};
    const std::int64_t mark = workspace_.mark();
    for (std::size_t i = 0; i < parts_.layers.size(); ++i) {
      parts_.layers[i].forward(step, cache.layer(static_cast<int>(i)), x);
      workspace_.back_to(mark);
    }
    return x;
  }

  void logits(kernels::Stream& stream, kernels::Matrix<const float> hidden,
              std::span<const std::int32_t> rows, kernels::Matrix<float> to) override {
    const auto count = static_cast<std::int64_t>(rows.size());
    LMTP_CHECK(count <= kLogitRowsMax && count == to.rows, count, to.rows);
    const std::int64_t mark = workspace_.mark();
    const auto normed = workspace_.take(count, config_.hidden_size);
    for (std::int64_t i = 0; i < count; ++i) {
      parts_.final_norm(stream, hidden.slice_rows(rows[static_cast<std::size_t>(i)], 1),
                        normed.slice_rows(i, 1));
    }
    const Linear& head = parts_.head.num_outputs() == 0 ? parts_.token_embedding : parts_.head;
    head(stream, normed, to);
    workspace_.back_to(mark);
  }

 private:
  // What rounding every matrix up to whole cache lines may take.
  static constexpr std::int64_t kSlackFloats = 1024;

  kernels::Matrix<const float> position_table() const {
    const at::Tensor& table = parts_.position_embedding;
    if (!table.defined()) {
      return {};
    }
    return kernels::make_matrix(table.const_data_ptr<float>(), table.size(0), table.size(1));
  }

  ModelConfig config_;
  Parts parts_;
  int max_tokens_;
  Workspace workspace_;
};

}  // namespace lmtp::model
