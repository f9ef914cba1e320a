// The architectures there are: a file each, and a place in this list.
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

extern const Architecture kGpt2, kGptNeox, kOpt, kLlama, kMistral, kQwen2, kQwen3, kPhi3, kGemma2;

inline constexpr const Architecture* kArchitectures[] = {
    &kGpt2, &kGptNeox, &kOpt, &kLlama, &kMistral, &kQwen2, &kQwen3, &kPhi3, &kGemma2,
};

// The one of that model_type, or an error that lists those there are.
Result<const Architecture*> find_architecture(const std::string& model_type);

// What Qwen 2 and 3 say of sliding windows.
void read_qwen_windows(ConfigReader& json, ModelConfig& config);

}  // namespace lmtp::model
