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
};

std::span<const Architecture> architectures();

// The one of that model_type, or an error that lists those there are.
Result<const Architecture*> find_architecture(const std::string& model_type);

void read_gpt2_config(ConfigReader& json, ModelConfig& config);
std::unique_ptr<CausalLM> make_gpt2(const ModelConfig& config, WeightLoader& weights,
                                    int max_tokens);

}  // namespace lmtp::model
