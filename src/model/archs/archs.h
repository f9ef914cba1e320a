// The architectures there are. One file each; archs.cpp lists them.
#pragma once

#include <memory>
#include <span>

#include "config_reader.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {

struct Architecture {
  const char* model_type;    // of config.json
  const char* architecture;  // what the transformers library calls it
  // Fills everything but model_type, architecture and eos_ids; what is wrong is kept in the reader.
  void (*read_config)(ConfigReader& json, ModelConfig& config);
  // Loads everything it needs from `weights`, whose error says whether it got it.
  std::unique_ptr<CausalLM> (*make)(const ModelConfig& config, WeightLoader& weights,
                                    int max_tokens);
  // Its checkpoints name, in auto_map, the code that became the transformers library's.
  bool published_with_code = false;
};

std::span<const Architecture> architectures();

// The one of that model_type, or an error that lists those there are.
Result<const Architecture*> find_architecture(const std::string& model_type);

void read_gpt2_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_gpt2(const ModelConfig& config, WeightLoader& weights,
                                    int max_tokens);
void read_gpt_neox_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_gpt_neox(const ModelConfig& config, WeightLoader& weights,
                                        int max_tokens);
void read_opt_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_opt(const ModelConfig& config, WeightLoader& weights,
                                   int max_tokens);
void read_llama_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_llama(const ModelConfig& config, WeightLoader& weights,
                                     int max_tokens);
void read_mistral_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_mistral(const ModelConfig& config, WeightLoader& weights,
                                       int max_tokens);
void read_qwen2_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_qwen2(const ModelConfig& config, WeightLoader& weights,
                                     int max_tokens);
void read_qwen3_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_qwen3(const ModelConfig& config, WeightLoader& weights,
                                     int max_tokens);
void read_phi3_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_phi3(const ModelConfig& config, WeightLoader& weights,
                                    int max_tokens);
void read_gemma2_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_gemma2(const ModelConfig& config, WeightLoader& weights,
                                      int max_tokens);
// What Qwen 2 and 3 say of sliding windows.
void read_qwen_windows(ConfigReader& json, ModelConfig& config);

}  // namespace lmtp::model
