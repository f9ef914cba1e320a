// DecoderLM: embedding, layers, final norm, head.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "archs/decoder.h"
#include "kernels/activation.h"
#include "kernels/embedding.h"
#include "kernels/gather.h"
#include "kernels/rotary.h"
#include "layers/linear.h"
#include "lmtp/base/batch_limits.h"
#include "lmtp/model/causal_lm.h"
#include "step_context.h"

namespace lmtp::model {

class DecoderLM : public CausalLM {
 public:
  struct Parts {
    // [vocab_size, embedding_size], or of a rank some rows; also the head if head is unset
    Linear token_embedding;
    PlainWeight position_embedding;  // [positions, hidden_size], or none
    int position_offset = 0;         // row of position 0 in it
    Linear project_in;               // [hidden_size, embedding_size], or unset: equal sizes
    std::vector<DecoderLayer> layers;
    Norm final_norm;     // or not loaded: none
    Linear project_out;  // [embedding_size, hidden_size], or unset
    Linear head;         // [vocab_size, embedding_size], or unset: tied, without a bias
  };

  // REQUIRES: the parts were loaded by `weights`.
  DecoderLM(ModelConfig config, Parts parts, WeightLoader& weights, const ModelSetup& setup)
      : config_(std::move(config)),
        parts_(std::move(parts)),
        num_parameters_(weights.num_elements()),
        max_tokens_(setup.max_tokens),
        communicator_(setup.communicator),
        workspace_(weights.store().backend(),
                   max_tokens_ * floats_per_token() +
                       std::int64_t{BatchLimits::kSequencesMax} *
                           (config_.hidden_size + width() + ordered_inputs()) +
                       kSlackFloats) {
    for (const RotaryConfig& rotary : config_.rotaries) {
      inverse_periods_.push_back(weights.store().keep(rotary.inverse_periods));
    }
    rotaries_.resize(config_.rotaries.size());
  }

  const ModelConfig& config() const override { return config_; }
  std::int64_t num_parameters() const override { return num_parameters_; }

  kernels::Matrix<const float> forward(kernels::Stream& stream, const InputArrays& input,
                                       const KvCache& cache) override {
    const std::int64_t m = input.num_tokens;
    LMTP_CHECK(m >= 1 && m <= max_tokens_, m);
    cache.copy_blocks(stream, input.copies, input.num_copies);
    workspace_.rewind(0);
    StepContext step{stream, workspace_, communicator_, input};
    const auto x = workspace_.take(m, config_.hidden_size);
    embed(step, x);
    for (std::size_t i = 0; i < rotaries_.size(); ++i) {
      const auto cosines = workspace_.take(m, inverse_periods_[i].count);
      const auto sines = workspace_.take(m, inverse_periods_[i].count);
      kernels::rotary_angles(stream, {.positions = input.positions,
                                      .inverse_periods = inverse_periods_[i].data.get(),
                                      .factor = config_.rotaries[i].factor,
                                      .growth = config_.rotaries[i].growth,
                                      .period = config_.rotaries[i].growth_period,
                                      .cosines = cosines,
                                      .sines = sines});
      rotaries_[i] = {cosines, sines};
    }
    step.rotaries = rotaries_;
    const std::int64_t mark = workspace_.mark();
    for (std::size_t i = 0; i < parts_.layers.size(); ++i) {
      const int layer = static_cast<int>(i);
      step.group = cache.group(layer);
      parts_.layers[i].forward(step, cache.layer(layer), x);
      workspace_.rewind(mark);
    }
    return x;
  }

  void logits(kernels::Stream& stream, kernels::Matrix<const float> hidden,
              const std::int32_t* rows, kernels::Matrix<float> to) override {
    const std::int64_t count = to.rows;
    LMTP_CHECK(count <= BatchLimits::kSequencesMax, count);
    const StepContext step{stream, workspace_, communicator_};
    const std::int64_t mark = workspace_.mark();
    auto last = workspace_.take(count, config_.hidden_size);
    kernels::gather_rows(stream, {.x = hidden, .rows = rows, .y = last});
    LinearExtras extras;
    if (parts_.final_norm.loaded()) extras.prologue = parts_.final_norm.of(last, last);
    if (parts_.project_out.loaded()) {
      const auto narrow = workspace_.take(count, width());
      parts_.project_out(step, last, narrow, std::exchange(extras, {}));
      last = narrow;
    }
    const Linear& head = parts_.head.loaded() ? parts_.head : parts_.token_embedding;
    const VocabShare share = vocab_share(config_.vocab_size, communicator_.shard());
    extras.scale = config_.logit_scale;
    head(step, last, to.slice_columns(share.first, share.count), extras);
    communicator_.gather(stream, to);
    if (config_.logit_soft_cap > 0.0F) kernels::soft_cap(stream, to, config_.logit_soft_cap);
    workspace_.rewind(mark);
  }

  int state_size() const override { return static_cast<int>(width()); }

  void states(kernels::Stream& stream, kernels::Matrix<const float> hidden,
              const std::int32_t* rows, kernels::Matrix<float> to) override {
    const StepContext step{stream, workspace_, communicator_};
    for (std::int64_t first = 0; first < to.rows; first += BatchLimits::kSequencesMax) {
      const std::int64_t count =
          std::min<std::int64_t>(BatchLimits::kSequencesMax, to.rows - first);
      const std::int64_t mark = workspace_.mark();
      const auto states = workspace_.take(count, config_.hidden_size);
      kernels::gather_rows(stream, {.x = hidden, .rows = rows + first, .y = states});
      const kernels::Matrix<float> part{to.row(first), count, to.columns, to.stride};
      const bool projects = parts_.project_out.loaded();
      if (parts_.final_norm.loaded()) parts_.final_norm(stream, states, projects ? states : part);
      if (projects) parts_.project_out(step, states, part);
      if (!projects && !parts_.final_norm.loaded()) {
        kernels::gather_rows(stream, {.x = hidden, .rows = rows + first, .y = part});
      }
      workspace_.rewind(mark);
    }
  }

 private:
  // For rounding every matrix up to whole cache lines.
  static constexpr std::int64_t kSlackFloats = 1024;

  // Floats of a token's embedding.
  std::int64_t width() const {
    return config_.embedding_size > 0 ? config_.embedding_size : config_.hidden_size;
  }
  std::int64_t floats_per_token() const {
    std::int64_t angles = 0;
    for (const RotaryConfig& rotary : config_.rotaries) {
      angles += 2 * static_cast<std::int64_t>(rotary.inverse_periods.size());
    }
    return config_.hidden_size + angles +
           std::max(width(), DecoderLayer::floats_per_token(config_, communicator_.shard())) +
           ordered_inputs();
  }
  // What a Linear takes for inputs that it puts in another order.
  std::int64_t ordered_inputs() const {
    if (!config_.quantization.ordered) return 0;
    return std::max({config_.hidden_size, config_.mlp_size, config_.experts.shared_size,
                     config_.num_heads * config_.head_dim});
  }

  kernels::Matrix<const float> position_table() const {
    const PlainWeight& table = parts_.position_embedding;
    if (table.data == nullptr) return {};
    return kernels::make_matrix(table.data.get(), table.count / config_.hidden_size,
                                std::int64_t{config_.hidden_size});
  }

  void embed(const StepContext& step, kernels::Matrix<float> x) {
    kernels::Stream& stream = step.stream;
    const Shard shard = communicator_.shard();
    kernels::EmbeddingArgs args{
        .ids = step.input.ids,
        .first_id = static_cast<std::int32_t>(vocab_share(config_.vocab_size, shard).first),
        .is_part = shard.count > 1,
        .table = parts_.token_embedding.weight(),
        .positions = step.input.positions,
        .position_table = position_table(),
        .position_offset = parts_.position_offset,
        .scale = config_.embedding_scale,
        .y = x};
    if (!parts_.project_in.loaded()) {
      kernels::embedding(stream, args);
      communicator_.sum(stream, x);  // of one rank's row, and zeros
      return;
    }
    // Tokens are projected first; then positions are added.
    const std::int64_t mark = workspace_.mark();
    const auto narrow = workspace_.take(x.rows, width());
    args.position_table = {};
    args.y = narrow;
    kernels::embedding(stream, args);
    communicator_.sum(stream, narrow);
    args.table = {};
    args.is_part = false;
    args.position_table = position_table();
    args.y = x;
    kernels::embedding(stream, args);
    parts_.project_in(step, narrow, x, {.residual = x});
    workspace_.rewind(mark);
  }

  ModelConfig config_;
  Parts parts_;
  std::int64_t num_parameters_;
  int max_tokens_;
  Communicator& communicator_;
  std::vector<PlainWeight> inverse_periods_;  // of config_.rotaries, as all below
  std::vector<RotaryTable> rotaries_;         // of the running step
  Workspace workspace_;
};

}  // namespace lmtp::model
