// How the matrices of a checkpoint are quantised: config.json's quantization_config, normalised.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmtp::model {

enum class QuantMethod {
  kNone,
  kCompressedTensors,
  kSmoothQuant,
  kFp8,
  kGptq,
  kAwq,
  kMxFp4,
  kModelOpt,
  kGguf
};

// What shares a scale: all of a matrix, an output, some inputs of an output, a rectangle.
enum class QuantStrategy { kTensor, kChannel, kGroup, kBlock };

// One way in which modules are quantised.
struct QuantScheme {
  // Names, "re:" with a pattern, or the class "Linear"; empty: every module.
  std::vector<std::string> targets;
  int num_bits = 8;       // 4 or 8
  bool is_float = false;  // e4m3 of 8 bits, e2m1 of 4
  bool packed = false;    // several codes in a word of 32 bits, or two e2m1 in a byte
  bool symmetric = true;  // there are no zero points
  QuantStrategy strategy = QuantStrategy::kChannel;
  std::int64_t block_outputs = 1;   // kBlock
  std::int64_t block_inputs = 0;    // kBlock, kGroup
  bool rounds_activations = false;  // by their row to 8 bits, for integer products

  bool is_fp4() const { return is_float && num_bits == 4; }
  // "int4 in groups of 128".
  std::string text() const;
};

struct Quantization {
  QuantMethod method = QuantMethod::kNone;
  std::string name;                  // "compressed-tensors", "gptq"
  std::vector<QuantScheme> schemes;  // one at least, unless kNone
  std::vector<std::string> ignored;  // modules, as targets
  bool zeros_minus_one = false;      // GPTQ's first format: so are its zero points stored
  bool scales_kv_cache = false;      // it has scales of keys and values, which are not used
  bool ordered = false;              // groups may be of inputs that do not follow one another
};

// Bytes of a matrix of so many elements as the codes of a scheme, scales and offsets of its groups
// included; on the safe side.
std::int64_t coded_bytes(const QuantScheme& scheme, std::int64_t num_elements);

// The scheme of a module ("model.layers.0.mlp.down_proj"), or null: it is not quantised. Of which
// modules this is true, the file has the last word: its tensors.
const QuantScheme* find_scheme(const Quantization& quantization, const std::string& module);

}  // namespace lmtp::model
