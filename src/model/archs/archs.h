// The supported architectures: one file each, and an entry in this list.
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
  const char* architecture;  // the class in transformers
  // Fills everything but model_type, architecture and eos_ids; errors are kept in the reader.
  void (*read_config)(ConfigReader& json, ModelConfig& config);
  // Loads all its tensors from `weights`; errors are kept there. The sizes in config are those of
  // the loader's rank.
  std::unique_ptr<CausalLM> (*make)(const ModelConfig& config, WeightLoader& weights,
                                    const ModelSetup& setup);
  // Its published checkpoints name in auto_map the code that transformers has adopted.
  bool published_with_code = false;
};

extern const Architecture kGpt2, kGptNeox, kOpt, kLlama, kMistral, kQwen2, kQwen3, kPhi3, kGemma2;

inline constexpr const Architecture* kArchitectures[] = {
    &kGpt2, &kGptNeox, &kOpt, &kLlama, &kMistral, &kQwen2, &kQwen3, &kPhi3, &kGemma2,
};

// The architecture of that model_type, or an error that lists the supported ones.
Result<const Architecture*> find_architecture(const std::string& model_type);

// The sliding windows of Qwen 2 and 3.
void read_qwen_windows(ConfigReader& json, ModelConfig& config);

}  // namespace lmtp::model
