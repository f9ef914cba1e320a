#include "layers/load.h"

namespace lmtp::model {

Linear load_linear(WeightLoader& in, const std::vector<WeightPart>& parts, std::int64_t k,
                   bool with_bias, const std::vector<std::int64_t>& order) {
  std::vector<WeightPart> weights;
  std::vector<WeightPart> biases;
  std::int64_t n = 0;
  for (const WeightPart& part : parts) {
    weights.push_back({part.name + ".weight", part.n});
    biases.push_back({part.name + ".bias", part.n});
    n += part.n;
  }
  PackedWeight weight = in.packed_stack(weights, k, kNormal, order);
  PlainWeight bias = with_bias ? in.plain_stack(biases, kZeros, order) : PlainWeight();
  return {std::move(weight), std::move(bias), n, k};
}

LayerNorm load_layer_norm(WeightLoader& in, const std::string& name, std::int64_t width,
                          float epsilon) {
  PlainWeight weight = in.plain(name + ".weight", {width}, kOnes);
  PlainWeight bias = in.plain(name + ".bias", {width}, kZeros);
  return {std::move(weight), std::move(bias), epsilon};
}

RmsNorm load_rms_norm(WeightLoader& in, const std::string& name, std::int64_t width, float epsilon,
                      float shift) {
  PlainWeight weight = in.plain(name + ".weight", {width}, {.mean = 1.0F - shift}, shift);
  return {std::move(weight), epsilon};
}

Linear load_embedding(WeightLoader& in, const std::string& name, std::int64_t vocab_size,
                      std::int64_t width) {
  return {in.packed_stack({{name, vocab_size}}, width, kNormal), {}, vocab_size, width};
}

}  // namespace lmtp::model
