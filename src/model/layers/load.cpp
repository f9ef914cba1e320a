#include "layers/load.h"

#include <cmath>
#include <utility>

namespace lmtp::model {

Linear load_linear(WeightLoader& in, const std::vector<WeightPart>& parts, std::int64_t k,
                   Split split, bool with_bias, const std::vector<std::int64_t>& permutation) {
  const WeightStack stack{
      .parts = parts, .k = k, .init = kNormal, .split = split, .permutation = permutation};
  return load_linear(in, stack, with_bias);
}

Linear load_linear(WeightLoader& in, const WeightStack& stack, bool with_bias) {
  WeightStack weights = stack;
  WeightStack biases = stack;
  biases.k = 0;
  biases.init = kZeros;
  for (std::size_t i = 0; i < stack.parts.size(); ++i) {
    weights.parts[i].name += ".weight";
    biases.parts[i].name += ".bias";
  }
  PackedWeight weight = in.packed(weights);
  // Of a sum over ranks, the first one adds the bias.
  const bool has_bias = with_bias && (stack.split != Split::kInputs || in.shard().rank == 0);
  PlainWeight bias = has_bias ? in.plain(biases) : PlainWeight();
  // Those outside of the layers have rows of their own.
  const int number = stack.split == Split::kNone ? -1 : in.add_linear(stack);
  return {std::move(weight), std::move(bias), stack.n(), stack.k, stack.split, number, stack.scale};
}

Norm load_layer_norm(WeightLoader& in, const std::string& name, std::int64_t width, float epsilon,
                     float shift, bool with_bias) {
  PlainWeight weight = in.plain(name + ".weight", {width}, {.mean = 1.0F - shift}, shift);
  PlainWeight bias = with_bias ? in.plain(name + ".bias", {width}, kZeros) : PlainWeight();
  return {std::move(weight), std::move(bias), epsilon};
}

Norm load_rms_norm(WeightLoader& in, const std::string& name, std::int64_t width, float epsilon,
                   float shift) {
  PlainWeight weight = in.plain(name + ".weight", {width}, {.mean = 1.0F - shift}, shift);
  return {std::move(weight), epsilon};
}

kernels::Activation load_xielu(WeightLoader& in, const std::string& name) {
  const auto number = [&](const char* of, std::vector<std::int64_t> shape, float mean) {
    const auto values = in.numbers(name + of, std::move(shape), {.mean = mean});
    return values.empty() ? 0.0F : values.front();
  };
  const auto softplus = [](float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); };  // torch's
  kernels::Activation activation = kernels::Activation::kXielu;
  activation.above = softplus(number(".alpha_p", {1}, 0.2F));
  const float below = softplus(number(".alpha_n", {1}, -1.0F));
  activation.slope = number(".beta", {}, 0.5F);
  activation.below = activation.slope + below;
  activation.near = number(".eps", {}, -1e-6F);
  return activation;
}

namespace {

// This rank's vocab_share() of NAME.bias.
PlainWeight load_table_bias(WeightLoader& in, const std::string& name, std::int64_t vocab_size) {
  const VocabShare share = vocab_share(vocab_size, in.shard());
  PlainWeight bias = in.plain(name + ".bias", {vocab_size}, kZeros);
  if (bias.data != nullptr) bias.data = {bias.data, bias.data.get() + share.first};
  bias.count = share.count;
  return bias;
}

}  // namespace

Linear load_embedding(WeightLoader& in, const std::string& name, std::int64_t vocab_size,
                      std::int64_t width, bool with_bias) {
  const VocabShare share = vocab_share(vocab_size, in.shard());
  PlainWeight bias = with_bias ? load_table_bias(in, name, vocab_size) : PlainWeight();
  PackedWeight weight = in.packed({.parts = {{name + ".weight", {share.count}}},
                                   .k = width,
                                   .init = kNormal,
                                   .is_table = true,
                                   .first_row = share.first,
                                   .num_rows = vocab_size});
  return {std::move(weight), std::move(bias), share.count, width, Split::kNone};
}

Linear load_tied_head(WeightLoader& in, const std::string& name, std::int64_t vocab_size,
                      const Linear& embedding) {
  return embedding.with_bias(load_table_bias(in, name, vocab_size));
}

}  // namespace lmtp::model
