// LoRA adapters in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors
// (or .bin). https://github.com/huggingface/peft
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/lora.h"
#include "lmtp/base/result.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

// Weights as kernels::LoraAdapter describes them, in one piece on the host.
struct LoraWeights {
  kernels::ElementType type = kernels::ElementType::kF32;
  std::vector<std::byte> elements;
  std::vector<kernels::LoraDelta> deltas;  // in the order of linear layers
  std::vector<std::int32_t> first_delta;   // [linear layers + 1]

  std::int64_t num_elements() const {
    return static_cast<std::int64_t>(elements.size()) / kernels::element_size(type);
  }
};

inline constexpr int kLoraRankMax = 512;

struct LoraOptions {
  int rank_max = 64;                                       // [1, kLoraRankMax]
  kernels::ElementType type = kernels::ElementType::kF32;  // or kBF16
  std::int64_t bytes_max = INT64_MAX;                      // of LoraWeights::elements
  // Asked between tensors, unless it is empty: where it says no, reading ends with kStopping.
  std::function<bool()> goes_on = {};
};

// Reads an adapter of that model. The headers are checked before memory is taken; the error names
// the file, the tensor or key, and what is wrong: an adapter of another model, a rank beyond the
// limit, a target that the model does not have, a missing tensor, a kind that is not supported, a
// number that is not finite. Seconds; any thread.
Result<LoraWeights> read_lora(const std::string& folder, const ModelConfig& config,
                              const LoraOptions& options);

}  // namespace lmtp::model
