#include "layers/experts.h"

#include <algorithm>
#include <utility>

#include "kernels/gather.h"
#include "layers/load.h"

namespace lmtp::model {

using kernels::Matrix;

namespace {

std::int32_t* take_integers(const StepContext& step, std::int64_t count) {
  return reinterpret_cast<std::int32_t*>(step.workspace.take(1, count).data);
}

}  // namespace

kernels::GatedActivationArgs Experts::gate(Matrix<float> both, bool is_shared) const {
  kernels::GatedActivationArgs args{
      .x = both, .activation = activation_, .y = both.slice_columns(0, both.columns / 2)};
  if (!is_shared) {
    args.interleaved = config_.interleaved;
    args.limit = config_.limit;
    args.up_added = config_.up_added;
  }
  return args;
}

void Experts::share(const StepContext& step, Matrix<const float> x,
                    kernels::CombineArgs& to) const {
  if (!shared_up_.loaded()) return;
  const auto both = step.workspace.take(x.rows, shared_up_.num_outputs());  // [m, gate | up]
  const auto given = step.workspace.take(x.rows, x.columns);
  shared_up_(step, x, both);
  const auto gated = gate(both, true);
  shared_down_(step, gated.y, given, {.prologue = gated, .is_part = true});
  to.shared = given;
  if (!shared_gate_.loaded()) return;
  const auto score = step.workspace.take(x.rows, 1);
  shared_gate_(step, x, score);
  to.shared_gate = score;
}

void Experts::operator()(const StepContext& step, Matrix<const float> x, Matrix<float> y) const {
  kernels::Stream& stream = step.stream;
  const std::int64_t m = x.rows;
  const int top_k = config_.routing.top_k;
  const std::int64_t num_slots = m * top_k;
  const std::int64_t mark = step.workspace.mark();
  const auto logits = step.workspace.take(m, config_.count);
  const auto weights = step.workspace.take(m, top_k);
  std::int32_t* const experts = take_integers(step, num_slots);
  std::int32_t* const rows = take_integers(step, num_slots);
  std::int32_t* const slots = take_integers(step, num_slots);
  std::int32_t* const offsets = take_integers(step, config_.count + 1);
  router_(step, x, logits);
  kernels::route(stream, {.logits = logits,
                          .routing = config_.routing,
                          .choice_bias = choice_bias_.data.get(),
                          .experts = experts,
                          .weights = weights});
  kernels::expert_rows(stream, {.experts = experts,
                                .m = m,
                                .top_k = top_k,
                                .num_experts = config_.count,
                                .offsets = offsets,
                                .rows = rows,
                                .slots = slots});
  const auto sorted = step.workspace.take(num_slots, x.columns);  // of x, then what experts give
  const auto both = step.workspace.take(num_slots, 2 * std::int64_t{config_.size});
  const auto apply = [&](const Matrices& matrices, Matrix<const float> from, Matrix<float> to) {
    kernels::expert_linear(stream, {.x = from,
                                    .offsets = offsets,
                                    .experts = matrices.data(),
                                    .num_experts = config_.count,
                                    .y = to});
  };
  kernels::gather_rows(stream, {.x = x, .rows = rows, .y = sorted});
  apply(up_, sorted, both);
  const auto gated = gate(both, false);
  kernels::gated_activation(stream, gated);
  apply(down_, gated.y, sorted);
  kernels::CombineArgs sum{
      .x = sorted, .slots = slots, .weights = weights, .scale = scale_, .y = y};
  share(step, x, sum);
  if (step.communicator.shard().rank == 0) sum.residual = y;
  kernels::combine(stream, sum);
  step.workspace.rewind(mark);
  step.communicator.sum(stream, y);
}

class ExpertsLoading {
 public:
  ExpertsLoading(WeightLoader& in, const ModelConfig& config, const ExpertForm& form,
                 std::string layer)
      : in_(in), config_(config), form_(form), layer_(std::move(layer)) {}

  Experts load(const LayerSpec& spec) {
    const ExpertsConfig& own = config_.experts;
    const int hidden = config_.hidden_size;
    to_.config_ = own;
    to_.activation_ = spec.activation;
    to_.scale_ = config_.residual_scale;
    to_.router_ = load_linear(in_,
                              {.parts = {{layer_ + form_.router, {own.count}}},
                               .k = hidden,
                               .init = kNormal,
                               .is_router = true},
                              own.router_bias);
    if (own.choice_bias) {
      std::vector<std::int64_t> shape = {own.count};
      if (form_.choice_bias_rows > 0) shape.insert(shape.begin(), form_.choice_bias_rows);
      to_.choice_bias_ = in_.plain(layer_ + form_.choice_bias, shape, kZeros);
    }
    // A GGUF file has a tensor an expert of every family, as its source shows it.
    const bool has_each = in_.has(named(0, form_.up.front()) + ".weight");
    is_stacked_ = !has_each && (form_.is_stacked || in_.has(layer_ + form_.all_up));
    if (has_each) to_.config_.interleaved = false;
    for (int e = 0; e < own.count; ++e) to_.up_.push_back(up(e));
    for (int e = 0; e < own.count; ++e) to_.down_.push_back(down(e));
    if (own.shared_size > 0) load_shared(spec);
    return std::move(to_);
  }

 private:
  kernels::ExpertLinear up(int expert) {
    const int size = config_.experts.size;
    WeightStack stack{
        .parts = {}, .k = config_.hidden_size, .init = kNormal, .split = Split::kOutputs};
    if (is_stacked_) {
      // In turn: a rank has pairs that follow one another.
      stack.parts = {{layer_ + form_.all_up, config_.experts.interleaved
                                                 ? std::vector<std::int64_t>{2 * size}
                                                 : std::vector<std::int64_t>{size, size}}};
      return matrix(std::move(stack), expert, true);
    }
    for (const std::string& name : form_.up) stack.parts.push_back({named(expert, name), {size}});
    return matrix(std::move(stack), expert, true);
  }

  kernels::ExpertLinear down(int expert) {
    WeightStack stack{
        .parts = {}, .k = config_.experts.size, .init = kNormal, .split = Split::kInputs};
    stack.parts = {
        {is_stacked_ ? layer_ + form_.all_down : named(expert, form_.down), {config_.hidden_size}}};
    return matrix(std::move(stack), expert, in_.shard().rank == 0);
  }

  std::string named(int expert, const std::string& name) const {
    return layer_ + form_.experts + "." + std::to_string(expert) + "." + name;
  }

  kernels::ExpertLinear matrix(WeightStack stack, int expert, bool has_bias) {
    stack.in_order = true;
    if (is_stacked_) {
      for (WeightPart& part : stack.parts) {
        part.num_slices = config_.experts.count;
        part.slice = expert;
      }
    }
    WeightStack biases = stack;
    biases.k = 0;
    biases.init = kZeros;
    for (std::size_t i = 0; i < stack.parts.size(); ++i) {
      biases.parts[i].name += is_stacked_ ? "_bias" : ".bias";
      if (!is_stacked_) stack.parts[i].name += ".weight";
    }
    if (is_stacked_ && form_.is_inputs_by_outputs) {
      stack.order = kernels::WeightOrder::kInputsByOutputs;
    }
    in_.add_expert(stack);
    const PackedWeight weight = in_.packed(stack);
    PlainWeight bias;
    if (config_.experts.biases && has_bias) bias = in_.plain(biases);
    to_.weights_.push_back(weight);
    to_.biases_.push_back(bias);
    return {.weight = {.panels = weight.panels.get(),
                       .n = stack.n(),
                       .k = stack.k,
                       .type = weight.type,
                       .scales = weight.scales.get(),
                       .sums = weight.sums.get(),
                       .grouping = weight.grouping},
            .bias = bias.data.get()};
  }

  void load_shared(const LayerSpec& spec) {
    const int size = config_.experts.shared_size;
    const std::string name = layer_ + form_.shared + ".";
    to_.shared_up_ = load_linear(in_, {{name + form_.up[0], {size}}, {name + form_.up[1], {size}}},
                                 config_.hidden_size, Split::kOutputs, spec.mlp_bias);
    to_.shared_down_ = load_linear(in_, {{name + form_.down, {config_.hidden_size}}}, size,
                                   Split::kInputs, spec.mlp_bias);
    if (config_.experts.shared_is_gated) {
      to_.shared_gate_ = load_linear(in_,
                                     {.parts = {{layer_ + form_.shared_gate, {1}}},
                                      .k = config_.hidden_size,
                                      .init = kNormal,
                                      .is_router = true},
                                     false);
    }
  }

  WeightLoader& in_;
  const ModelConfig& config_;
  const ExpertForm& form_;
  const std::string layer_;
  bool is_stacked_ = false;
  Experts to_;
};

Experts load_experts(WeightLoader& in, const ModelConfig& config, const LayerSpec& spec,
                     const std::vector<ExpertForm>& forms, const std::string& layer) {
  const auto has_order = [&](const ExpertForm& form) {
    const auto has_width = [&](const std::string& name, std::size_t axis) {
      const auto all = in.stored(layer + name);
      return !all || all->shape.size() <= axis || all->shape[axis] == config.hidden_size;
    };
    const std::size_t inputs = form.is_inputs_by_outputs ? 1 : 2;
    return has_width(form.all_up, inputs) && has_width(form.all_down, 3 - inputs);
  };
  // As published, or as transformers 5 has them in memory.
  const auto found = std::ranges::find_if(forms, [&](const ExpertForm& form) {
    return in.has(layer + form.router + ".weight") && has_order(form) &&
           (!config.experts.choice_bias || in.has(layer + form.choice_bias));
  });
  const ExpertForm& form = found == forms.end() ? forms.front() : *found;
  return ExpertsLoading(in, config, form, layer).load(spec);
}

}  // namespace lmtp::model
