#include "archs/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "decoder_lm.h"
#include "layers/load.h"
#include "layers/rotary.h"

namespace lmtp::model {

using kernels::LinearPrologue;
using kernels::Matrix;

namespace {

// Whether a layer has a second matrix as wide as x besides the normalised one.
bool needs_second(const LayerSpec& layer) {
  return layer.parallel || layer.norms == NormPlaces::kAfter || layer.norms == NormPlaces::kAround;
}

}  // namespace

Matrix<const float> Attention::operator()(const StepContext& step, const kernels::KvLayer& cache,
                                          Matrix<const float> x,
                                          const LinearPrologue& prologue) const {
  const std::int64_t query_width = shape.query_width();
  const std::int64_t kv_width = shape.kv.width();
  const auto projected = step.workspace.take(x.rows, query_width + 2 * kv_width);  // [m, q | k | v]
  const auto attended = step.workspace.take(x.rows, query_width);
  const auto queries = projected.slice_columns(0, query_width);
  const auto keys = projected.slice_columns(query_width, kv_width);
  const auto values = projected.slice_columns(query_width + kv_width, kv_width);
  qkv(step, x, projected, {.prologue = prologue});
  const auto both = projected.slice_columns(0, query_width + kv_width);
  if (norms == QueryKeyNorm::kTurnedHead) turn(step, both);
  if (norms != QueryKeyNorm::kNone) normalise(step, queries, keys);
  if (norms != QueryKeyNorm::kTurnedHead) turn(step, both);
  attend(step, shape, cache, queries, keys, values, sinks.data.get(), attended);
  return attended;
}

void Attention::turn(const StepContext& step, Matrix<float> both) const {
  const int head_dim = shape.kv.head_dim;
  if (query_rotary != rotary) {
    rotate(step, query_rotary, head_dim, both.slice_columns(0, shape.query_width()));
    rotate(step, rotary, head_dim, both.slice_columns(shape.query_width(), shape.kv.width()));
  } else if (rotary >= 0) {
    rotate(step, rotary, head_dim, both);
  }
}

void Attention::normalise(const StepContext& step, Matrix<float> queries,
                          Matrix<float> keys) const {
  if (norms != QueryKeyNorm::kWhole) {
    query_norm(step.stream, queries, queries, shape.num_heads);
    key_norm(step.stream, keys, keys, shape.kv.num_heads);
    return;
  }
  const Shard shard = step.communicator.shard();
  const auto norm_all = [&](const Norm& norm, Matrix<float> own) {
    if (shard.count == 1) return norm(step.stream, own, own);
    // Every rank normalises the heads of all.
    const std::int64_t mark = step.workspace.mark();
    const auto all = step.workspace.take(own.rows, own.columns * shard.count);
    const auto share = all.slice_columns(own.columns * shard.rank, own.columns);
    kernels::gather_rows(step.stream, {.x = own, .y = share});
    step.communicator.gather(step.stream, all);
    norm(step.stream, all, all);
    kernels::gather_rows(step.stream, {.x = share, .y = own});
    step.workspace.rewind(mark);
  };
  norm_all(query_norm, queries);
  norm_all(key_norm, keys);
}

std::int64_t DecoderLayer::floats_per_token(const ModelConfig& config, Shard shard) {
  const bool has_second = std::ranges::any_of(config.layers, needs_second);
  const bool has_gate =
      std::ranges::any_of(config.layers, [](const LayerSpec& layer) { return layer.gated; });
  const std::int64_t whole =
      normalises_all_heads(config) && shard.count > 1 ? shard.count * query_width(config) : 0;
  return (has_second ? 2 : 1) * std::int64_t{config.hidden_size} + 2 * query_width(config) +
         2 * kv_width(config) + whole +
         std::max((has_gate ? 2 : 1) * std::int64_t{config.mlp_size},
                  config.experts.floats_per_token(config.hidden_size));
}

void DecoderLayer::forward(const StepContext& step, const kernels::KvLayer& cache,
                           Matrix<float> x) const {
  if (spec.parallel) return forward_parallel(step, cache, x);
  const bool is_first = attention_norm.loaded();
  const auto normed = is_first ? step.workspace.take(x.rows, x.columns) : x;  // [m, hidden]
  const auto before = [&](const Norm& norm) {
    return is_first ? norm.of(x, normed) : LinearPrologue();
  };
  const auto attended = attention(step, cache, normed, before(attention_norm));
  add(step, attention_out, attended, {}, attention_result_norm, x);
  run_mlp(step, normed, before(mlp_norm), x);
}

void DecoderLayer::forward_parallel(const StepContext& step, const kernels::KvLayer& cache,
                                    Matrix<float> x) const {
  const auto normed = step.workspace.take(x.rows, x.columns);  // [m, hidden]
  auto mlp_input = normed;
  LinearPrologue prologue;
  if (mlp_norm.loaded()) {
    mlp_input = step.workspace.take(x.rows, x.columns);
    mlp_norm(step.stream, x, mlp_input);
    prologue = attention_norm.of(x, normed);
  } else {  // both read it
    attention_norm(step.stream, x, normed);
  }
  add(step, attention_out, attention(step, cache, normed, prologue), {}, {}, x);
  run_mlp(step, mlp_input, {}, x);
}

void DecoderLayer::run_mlp(const StepContext& step, Matrix<const float> input,
                           const LinearPrologue& prologue, Matrix<float> x) const {
  if (spec.sparse) {
    kernels::run_prologue(step.stream, prologue);  // which several read
    return experts(step, input, x);
  }
  const std::int64_t width = up.num_outputs();
  const auto widened = step.workspace.take(x.rows, width);  // [m, mlp_size], or [m, gate | up]
  if (!spec.gated) {
    up(step, input, widened, {.activation = spec.activation, .prologue = prologue});
    return add(step, down, widened, {}, mlp_result_norm, x);
  }
  up(step, input, widened, {.prologue = prologue});
  const kernels::GatedActivationArgs gate{
      .x = widened, .activation = spec.activation, .y = widened.slice_columns(0, width / 2)};
  add(step, down, gate.y, gate, mlp_result_norm, x);
}

void DecoderLayer::add(const StepContext& step, const Linear& linear, Matrix<const float> input,
                       const LinearPrologue& prologue, const Norm& result_norm,
                       Matrix<float> x) const {
  if (!result_norm.loaded() || spec.norms == NormPlaces::kAfterSum) {
    linear(step, input, x, {.residual = x, .prologue = prologue});
    if (result_norm.loaded()) result_norm(step.stream, x, x);
    return;
  }
  const std::int64_t mark = step.workspace.mark();
  const auto result = step.workspace.take(x.rows, x.columns);  // [m, hidden]
  linear(step, input, result, {.prologue = prologue});
  result_norm.add_to(step.stream, result, x);
  step.workspace.rewind(mark);
}

namespace {

// Which output of a matrix of qkv_parts is output i of [q | k | v].
std::vector<std::int64_t> order_of_parts(const ModelConfig& config, bool values_first) {
  const std::int64_t queries = query_width(config) / config.qkv_parts;
  const std::int64_t keys = kv_width(config) / config.qkv_parts;
  std::vector<std::int64_t> order;
  const auto append = [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t part = 0; part < config.qkv_parts; ++part) {
      for (std::int64_t i = 0; i < count; ++i) {
        order.push_back(part * (queries + 2 * keys) + first + i);
      }
    }
  };
  append(0, queries);
  append(values_first ? queries + keys : queries, keys);
  append(values_first ? queries : queries + keys, keys);
  return order;
}

// Loads one model's layers.
class Loader {
 public:
  Loader(WeightLoader& in, const ModelConfig& config, const DecoderForm& form)
      : in_(in), config_(config), form_(form) {}

  DecoderLayer layer(int index) {
    name_ = form_.layer + std::to_string(index) + ".";
    const LayerSpec& spec = config_.layers[static_cast<std::size_t>(index)];
    DecoderLayer layer;
    layer.spec = spec;
    const bool has_before = spec.norms == NormPlaces::kBefore || spec.norms == NormPlaces::kAround;
    const bool has_after = spec.norms != NormPlaces::kBefore;
    if (has_before) layer.attention_norm = norm(form_.attention_norm);
    layer.attention.qkv =
        linear(qkv_parts(), config_.hidden_size, Split::kOutputs, spec.qkv_bias, qkv_order(spec));
    load_query_key_norms(spec, layer.attention);
    layer.attention_out = sum({{name_ + form_.attention_out, {config_.hidden_size}}},
                              query_width(config_), spec.attention_out_bias);
    if (has_after) layer.attention_result_norm = norm(form_.attention_result_norm);
    if (has_before && !spec.one_norm) layer.mlp_norm = norm(form_.mlp_norm);
    if (spec.sparse) {
      layer.experts = load_experts(in_, config_, spec, form_.experts, name_);
    } else {
      layer.up = linear(up_parts(spec), config_.hidden_size, Split::kOutputs, spec.mlp_bias, {});
      layer.down =
          sum({{name_ + form_.down, {config_.hidden_size}}}, config_.mlp_size, spec.mlp_bias);
    }
    if (spec.sinks) {
      layer.attention.sinks = in_.plain({.parts = {{name_ + form_.sinks, {config_.num_heads}}},
                                         .init = kNormal,
                                         .split = Split::kOutputs});
    }
    if (has_after) layer.mlp_result_norm = norm(form_.mlp_result_norm);
    if (spec.activation.kind == kernels::Activation::kXielu) {
      layer.spec.activation = load_xielu(in_, name_ + form_.activation);
    }
    layer.attention.rotary = rotary_of(spec);
    layer.attention.query_rotary =
        spec.query_rotary >= 0 ? spec.query_rotary : layer.attention.rotary;
    layer.attention.shape = attention_shape(config_, index);
    return layer;
  }

  Norm final_norm() {
    name_.clear();
    return norm(form_.final_norm);
  }

 private:
  Norm norm(const std::string& name) {
    const float epsilon = config_.norm_epsilon;
    if (form_.norm == NormKind::kRms) {
      return load_rms_norm(in_, name_ + name, config_.hidden_size, epsilon, form_.norm_shift);
    }
    if (form_.norm == NormKind::kLayerWithoutWeights) {
      const std::vector<float> ones(static_cast<std::size_t>(config_.hidden_size), 1.0F);
      return {in_.store().keep(ones), PlainWeight(), epsilon};
    }
    return load_layer_norm(in_, name_ + name, config_.hidden_size, epsilon, form_.norm_shift,
                           form_.norm == NormKind::kLayer);
  }

  void load_query_key_norms(const LayerSpec& spec, Attention& attention) {
    if (spec.query_key_norm == QueryKeyNorm::kNone) return;
    attention.norms = spec.query_key_norm;
    const bool is_whole = attention.norms == QueryKeyNorm::kWhole;
    const auto load = [&](const std::string& name, std::int64_t own_width) {
      const std::int64_t width = is_whole ? own_width * in_.shard().count : config_.head_dim;
      return load_rms_norm(in_, name_ + name, width, config_.norm_epsilon, form_.norm_shift);
    };
    attention.query_norm = load(form_.query_norm, query_width(config_));
    attention.key_norm = load(form_.key_norm, kv_width(config_));
  }

  std::vector<WeightPart> qkv_parts() const {
    const std::int64_t queries = query_width(config_);
    const std::int64_t keys = kv_width(config_);
    const int copies = config_.kv_copies;
    if (config_.qkv_parts > 0) return {{name_ + form_.qkv[0], {queries + 2 * keys}}};
    if (form_.qkv.size() == 1) {
      return {{name_ + form_.qkv[0], {queries, keys, keys}, {1, copies, copies}}};
    }
    return {{name_ + form_.qkv[0], {queries}},
            {name_ + form_.qkv[1], {keys}, {copies}},
            {name_ + form_.qkv[2], {keys}, {copies}}};
  }

  std::vector<WeightPart> up_parts(const LayerSpec& spec) const {
    const int size = config_.mlp_size;
    if (!spec.gated) return {{name_ + form_.up[0], {size}}};
    if (form_.up.size() == 1) return {{name_ + form_.up[0], {size, size}}};
    return {{name_ + form_.up[0], {size}}, {name_ + form_.up[1], {size}}};
  }

  // -1: nothing turns, as in a model without tables.
  int rotary_of(const LayerSpec& spec) const {
    return spec.rotary < static_cast<int>(config_.rotaries.size()) ? spec.rotary : -1;
  }

  std::vector<std::int64_t> qkv_order(const LayerSpec& spec) const {
    std::vector<std::int64_t> order;
    if (config_.qkv_parts > 0) order = order_of_parts(config_, form_.values_first);
    if (!form_.turns_neighbours || rotary_of(spec) < 0) return order;
    // Rows of which halves turn together, of those of which neighbours do.
    const auto half = static_cast<std::int64_t>(
        config_.rotaries[static_cast<std::size_t>(spec.rotary)].inverse_periods.size());
    const std::int64_t turned = query_width(config_) + kv_width(config_);
    std::vector<std::int64_t> halves;
    for (std::int64_t i = 0; i < turned + kv_width(config_); ++i) {
      const std::int64_t d = i % config_.head_dim;
      const std::int64_t from = i >= turned || d >= 2 * half ? d
                                : d < half                   ? 2 * d
                                                             : 2 * (d - half) + 1;
      halves.push_back(i - d + from);
    }
    if (order.empty()) return halves;
    for (std::int64_t& i : halves) i = order[static_cast<std::size_t>(i)];
    return halves;
  }

  Linear linear(std::vector<WeightPart> parts, std::int64_t k, Split split, bool with_bias,
                std::vector<std::int64_t> permutation, float scale = 1.0F) {
    const bool is_sum = split == Split::kInputs;
    const float small = 0.02F / std::sqrt(2.0F * static_cast<float>(config_.num_layers));
    WeightStack stack{
        .parts = std::move(parts),
        .k = k,
        .init = is_sum && form_.begins_small ? TensorInit{.deviation = small} : kNormal,
        .split = split,
        .permutation = std::move(permutation),
        .scale = scale};
    if (form_.is_inputs_by_outputs) stack.order = kernels::WeightOrder::kInputsByOutputs;
    return load_linear(in_, stack, with_bias);
  }
  // What is added to x.
  Linear sum(std::vector<WeightPart> parts, std::int64_t k, bool with_bias) {
    return linear(std::move(parts), k, Split::kInputs, with_bias, {}, config_.residual_scale);
  }

  WeightLoader& in_;
  const ModelConfig& config_;
  const DecoderForm& form_;
  std::string name_;  // of the layer, in front of what it holds
};

}  // namespace

std::unique_ptr<CausalLM> make_decoder(const ModelConfig& config, WeightLoader& in,
                                       const ModelSetup& setup, const DecoderForm& form) {
  const int hidden = config.hidden_size;
  const int width = config.embedding_size > 0 ? config.embedding_size : hidden;
  DecoderLM::Parts parts;
  in.find_prefix(form.embedding + ".weight", form.prefix);
  parts.token_embedding = load_embedding(in, form.embedding, config.vocab_size, width);
  if (!form.positions.empty()) {
    parts.position_embedding =
        in.plain(form.positions + ".weight", {config.context_length + form.position_offset, hidden},
                 kNormal);
    parts.position_offset = form.position_offset;
  }
  if (width != hidden) {
    parts.project_in = load_linear(in, {{"project_in", {hidden}}}, width, Split::kNone, false);
    parts.project_out = load_linear(in, {{"project_out", {width}}}, hidden, Split::kNone, false);
  }
  Loader loader(in, config, form);
  for (int index = 0; index < config.num_layers; ++index) {
    parts.layers.push_back(loader.layer(index));
  }
  if (config.final_norm) parts.final_norm = loader.final_norm();
  if (!config.tied_embeddings) {
    const auto found = std::ranges::find_if(
        form.heads, [&](const std::string& name) { return in.find_prefix(name + ".weight", ""); });
    const std::string& head = found == form.heads.end() ? form.heads.front() : *found;
    parts.head = load_embedding(in, head, config.vocab_size, width, form.has_head_bias);
  } else if (form.has_head_bias && config.has_head) {
    in.find_prefix(form.heads.front() + ".bias", "");
    parts.head = load_tied_head(in, form.heads.front(), config.vocab_size, parts.token_embedding);
  }
  return std::make_unique<DecoderLM>(config, std::move(parts), in, setup);
}

}  // namespace lmtp::model
