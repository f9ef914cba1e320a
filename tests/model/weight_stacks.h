// The matrices of a checkpoint's first layer, as its architecture asks for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"

namespace lmtp::testing {

inline std::vector<model::WeightStack> stacks_of(const model::ModelConfig& config) {
  const std::int64_t queries = config.num_heads * config.head_dim;
  const std::int64_t keys = config.num_kv_heads * config.head_dim;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t mlp = config.mlp_size;
  const std::string layer = "model.layers.0.";
  const auto attention = [&](const char* name) { return layer + "self_attn." + name + ".weight"; };
  const auto part = [&](const char* name) { return layer + "mlp." + name + ".weight"; };
  std::vector<model::WeightStack> stacks = {
      {.parts = {{attention("o_proj"), {hidden}}}, .k = queries},
      {.parts = {{part("down_proj"), {hidden}}}, .k = mlp},
  };
  if (config.model_type == "phi3") {
    stacks.push_back({.parts = {{attention("qkv_proj"), {queries, keys, keys}}}, .k = hidden});
  } else {
    stacks.push_back({.parts = {{attention("q_proj"), {queries}},
                                {attention("k_proj"), {keys}},
                                {attention("v_proj"), {keys}}},
                      .k = hidden});
    stacks.push_back(
        {.parts = {{part("gate_proj"), {mlp}}, {part("up_proj"), {mlp}}}, .k = hidden});
  }
  return stacks;
}

}  // namespace lmtp::testing
