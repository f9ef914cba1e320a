// Tiny models of every family, which 2 and 4 ranks can divide, with random weights.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <utility>

#include "kernels/element_type.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"
#include "temp_folder.h"

namespace lmtp::testing {

struct TinyFamily {
  const char* name;
  const char* config_json;

  friend void PrintTo(const TinyFamily& family, std::ostream* out) { *out << family.name; }
};

// 8 heads, 4 KV heads where there may be fewer; an MLP of 100, so that a share is no whole number
// of panels; biases, windows, soft caps and matrices in one tensor wherever a family has them.
inline constexpr TinyFamily kTinyFamilies[] = {
    {"gpt2", R"({"model_type": "gpt2", "vocab_size": 97, "n_positions": 64, "n_embd": 64,
      "n_layer": 2, "n_head": 8, "n_inner": 100})"},
    {"llama", R"({"model_type": "llama", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4})"},
    {"llama_biased", R"({"model_type": "llama", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "attention_bias": true,
      "mlp_bias": true, "tie_word_embeddings": true})"},
    {"mistral", R"({"model_type": "mistral", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 12})"},
    {"gemma2", R"({"model_type": "gemma2", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 60, "intermediate_size": 100, "num_hidden_layers": 3,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 20,
      "query_pre_attn_scalar": 20, "sliding_window": 12})"},
    {"qwen2", R"({"model_type": "qwen2", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4})"},
    {"qwen3", R"({"model_type": "qwen3", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16})"},
    {"phi3", R"({"model_type": "phi3", "vocab_size": 97, "max_position_embeddings": 64,
      "original_max_position_embeddings": 64, "hidden_size": 64, "intermediate_size": 100,
      "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4})"},
    {"opt", R"({"model_type": "opt", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "ffn_dim": 100, "num_hidden_layers": 2, "num_attention_heads": 8,
      "word_embed_proj_dim": 32, "do_layer_norm_before": false})"},
    {"gpt_neox", R"({"model_type": "gpt_neox", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8})"},
    // Norms over all heads, of results alone; scales; neighbours that turn, one norm for attention
    // and MLP.
    {"olmo2", R"({"model_type": "olmo2", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "attention_bias": true})"},
    {"granite", R"({"model_type": "granite", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "attention_bias": true,
      "residual_multiplier": 0.4, "embedding_multiplier": 3.0, "logits_scaling": 0.7})"},
    {"gptj", R"({"model_type": "gptj", "vocab_size": 97, "n_positions": 64, "n_embd": 64,
      "n_layer": 2, "n_head": 8, "n_inner": 100, "rotary_dim": 4})"},
    // Layer norms without weights.
    {"olmo", R"({"model_type": "olmo", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "attention_bias": true})"},
    // Numbers of an activation; norms of what has turned; queries, keys and values by parts.
    {"apertus", R"({"model_type": "apertus", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4,
      "rope_scaling": {"rope_type": "linear", "factor": 2.0}})"},
    {"hunyuan", R"({"model_type": "hunyuan_v1_dense", "vocab_size": 97,
      "max_position_embeddings": 64, "hidden_size": 64, "intermediate_size": 100,
      "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
      "rope_scaling": {"type": "dynamic", "alpha": 20.0}})"},
    {"codegen", R"({"model_type": "codegen", "vocab_size": 97, "n_positions": 64, "n_embd": 64,
      "n_layer": 2, "n_head": 8, "n_inner": 100, "rotary_dim": 4, "tie_word_embeddings": true})"},
    {"falcon", R"({"model_type": "falcon", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "ffn_hidden_size": 100, "num_hidden_layers": 2, "bias": true,
      "num_attention_heads": 8, "num_kv_heads": 4, "new_decoder_architecture": true})"},
    // Experts: beside a dense layer; with a shared one and its gate; out of groups by a bias; as
    // one tensor with gate and up in turn, biases and sinks; as one tensor, and a scale.
    {"qwen3_moe", R"({"model_type": "qwen3_moe", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 3,
      "num_attention_heads": 8, "num_key_value_heads": 4, "num_experts": 6,
      "num_experts_per_tok": 2, "moe_intermediate_size": 36, "mlp_only_layers": [1]})"},
    {"qwen2_moe", R"({"model_type": "qwen2_moe", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8,
      "num_key_value_heads": 4, "num_experts": 5, "num_experts_per_tok": 2,
      "moe_intermediate_size": 36, "shared_expert_intermediate_size": 100})"},
    {"glm4_moe", R"({"model_type": "glm4_moe", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 3, "head_dim": 8,
      "num_attention_heads": 8, "num_key_value_heads": 4, "n_routed_experts": 8,
      "num_experts_per_tok": 3, "moe_intermediate_size": 36, "n_group": 4, "topk_group": 2,
      "routed_scaling_factor": 1.5})"},
    {"gpt_oss", R"({"model_type": "gpt_oss", "vocab_size": 97, "max_position_embeddings": 64,
      "hidden_size": 64, "intermediate_size": 36, "num_hidden_layers": 2, "head_dim": 8,
      "num_attention_heads": 8, "num_key_value_heads": 4, "num_local_experts": 5,
      "num_experts_per_tok": 3, "sliding_window": 12,
      "rope_scaling": {"rope_type": "linear", "factor": 2.0}})"},
    {"granitemoe", R"({"model_type": "granitemoe", "vocab_size": 97,
      "max_position_embeddings": 64, "hidden_size": 64, "intermediate_size": 36,
      "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
      "num_local_experts": 5, "residual_multiplier": 0.4})"},
};

inline model::ModelConfig config_of(const TinyFamily& family) {
  const TempFolder folder;
  folder.write("config.json", family.config_json);
  auto config = model::read_model_config(folder.path());
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return std::move(*config);
}

// Random tensors in which biases are not zeros and norms not ones. Counts what is read of each.
class TinySource : public model::TensorSource {
 public:
  Result<model::SourceTensor> tensor(const model::TensorSpec& spec) override {
    model::TensorSpec spread = spec;
    spread.init.deviation = 0.1F;
    auto tensor = random_->tensor(spread);
    if (tensor.ok()) {
      whole_bytes[spec.name] = spec.num_elements() * kernels::element_size(tensor->type);
      tensor->read = [this, name = spec.name, read = tensor->read](std::uint64_t first,
                                                                   std::size_t count, void* to) {
        {
          const std::lock_guard lock(mutex_);
          bytes_read[name] += static_cast<std::int64_t>(count);
        }
        return read(first, count, to);
      };
    }
    return tensor;
  }

  std::map<std::string, std::int64_t> whole_bytes;
  std::map<std::string, std::int64_t> bytes_read;

 private:
  std::unique_ptr<model::TensorSource> random_ =
      model::make_random_source(11, kernels::ElementType::kF32);
  std::mutex mutex_;
};

}  // namespace lmtp::testing
