// The supported architectures: one file each, and an entry in this list.
#pragma once

#include "archs/decoder.h"
#include "config_reader.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

struct Architecture {
  const char* model_type;    // of config.json
  const char* architecture;  // the class in transformers
  // Fills everything but model_type, architecture and eos_ids; errors are kept in the reader.
  void (*read_config)(ConfigReader& json, ModelConfig& config);
  // How its checkpoints store the weights.
  DecoderForm (*form)(const ModelConfig& config);
  // In auto_map published checkpoints name code that transformers has adopted, or that was read for
  // this: modeling_NAME, configuration_NAME or NAME.
  const char* published_code = nullptr;
  // A larger model around it, whose config.json may have the text model's keys among its own.
  const char* flat_outer = nullptr;
  const char* other_architecture = nullptr;  // the class that newer releases have it by
};

extern const Architecture kGpt2, kGptNeox, kOpt, kLlama, kMistral, kMinistral3, kQwen2, kQwen3,
    kPhi3, kGemma2, kGemma, kGemma3, kQwen2Vl, kQwen25Vl, kQwen3Vl, kOlmo2, kOlmo3, kGranite,
    kSmolLM3, kSeedOss, kErnie45, kHelium, kGlm, kGlm4, kCohere, kCohere2, kExaone4, kStarcoder2,
    kPhi, kStableLm, kNemotron, kArcee, kGptJ, kGptBigCode, kGptNeo, kApertus, kHunyuanV1Dense,
    kCodeGen, kFalcon, kInternLM2, kInternLM3, kMixtral, kQwen2Moe, kQwen3Moe, kOlmoe, kGraniteMoe,
    kGptOss, kGlm4Moe, kErnie45Moe, kCwm, kIQuestCoder, kMinistral, kVaultGemma, kJais2, kOlmo,
    kBioGpt, kGpt1, kHyperClovaX, kDots1, kSolarOpen, kMiniMaxM2, kHunyuanV1Moe, kQwen3VlMoe;

inline constexpr const Architecture* kArchitectures[] = {
    &kGpt2,           &kGptNeox,      &kOpt,         &kLlama,       &kMistral,    &kMinistral3,
    &kQwen2,          &kQwen3,        &kPhi3,        &kGemma2,      &kGemma,      &kGemma3,
    &kQwen2Vl,        &kQwen25Vl,     &kQwen3Vl,     &kOlmo2,       &kOlmo3,      &kGranite,
    &kSmolLM3,        &kSeedOss,      &kErnie45,     &kHelium,      &kGlm,        &kGlm4,
    &kCohere,         &kCohere2,      &kExaone4,     &kStarcoder2,  &kPhi,        &kStableLm,
    &kNemotron,       &kArcee,        &kGptJ,        &kGptBigCode,  &kGptNeo,     &kApertus,
    &kHunyuanV1Dense, &kCodeGen,      &kFalcon,      &kInternLM2,   &kInternLM3,  &kMixtral,
    &kQwen2Moe,       &kQwen3Moe,     &kOlmoe,       &kGraniteMoe,  &kGptOss,     &kGlm4Moe,
    &kErnie45Moe,     &kCwm,          &kIQuestCoder, &kMinistral,   &kVaultGemma, &kJais2,
    &kOlmo,           &kBioGpt,       &kGpt1,        &kHyperClovaX, &kDots1,      &kSolarOpen,
    &kMiniMaxM2,      &kHunyuanV1Moe, &kQwen3VlMoe,
};

// The architecture of that model_type, or an error that lists the supported ones.
Result<const Architecture*> find_architecture(const std::string& model_type);
// Whose flat_outer that is; null: none.
const Architecture* find_in_flat(const std::string& outer_model_type);

// Whose checkpoints are named as Llama's.
inline DecoderForm llama_form(const ModelConfig&) { return {}; }

DecoderForm gemma_form(const ModelConfig&);
DecoderForm gpt2_form(const ModelConfig&);

// The sliding windows of Qwen 2 and 3.
void read_qwen_windows(ConfigReader& json, ModelConfig& config, int default_first = 28);

// What Gemma 2 and 3 have alike, besides read_common().
void read_gemma(ConfigReader& json, ModelConfig& config);

// The keys of GPT-2 and its relatives: sizes, activation and epsilon; plain MLPs, biases
// everywhere.
struct Gpt2Defaults {
  int vocab_size = 50257;
  int context_length = 1024;
  int hidden_size = 768;
  int num_layers = 12;
  int num_heads = 12;
  const char* activation = "gelu_new";
};
void read_gpt2_sizes(ConfigReader& json, ModelConfig& config, const Gpt2Defaults& defaults);

}  // namespace lmtp::model
