// What GGUF files of the supported families hold: llama.cpp's names of their tensors, and how its
// converter (convert_hf_to_gguf.py) has changed them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"
#include "lmtp/gguf/gguf_file.h"

namespace lmtp::model {

// How a tensor in the file differs from the one in transformers' checkpoint.
enum class GgufChange : std::uint8_t {
  kNone,
  kInterleaved,  // rows of each head: the halves that turn together lie side by side
  kByPart,       // rows are [q | k | v][group], not [group][q | k | v], a group each KV head
  kTransposed,   // [outputs, inputs], not Conv1D's [inputs, outputs]
  kOneAdded,     // a norm's weight, kept around 1, not 0
  kBare,         // there it has no ".weight" or ".bias"
  kExperts,      // [experts, ...]: one there for each, whose number is the * of its name
};

struct GgufName {
  std::string_view gguf;  // without "blk.N." and ".weight": "attn_q"
  std::string_view ours;  // "self_attn.q_proj"
  GgufChange change = GgufChange::kNone;
};

// Which keys a family has besides those of all.
struct GgufKeys {
  bool like_gpt2 = false;         // GPT-2's, and no others
  bool windows = false;           // attention.sliding_window, and its pattern
  int default_window = 0;         // where the file does not say; 0: all is seen
  bool own_sliding_base = false;  // layers with a window turn by a base of their own
  bool multipliers = false;       // Granite's
  bool logit_scale = false;       // Cohere's
  bool soft_caps = false;         // and scores that Gemma divides in its way
  bool parallel = false;          // use_parallel_residual
  bool experts = false;           // sparse layers
  bool sums_to_one = false;       // and the weights of a token's experts do
  bool sigmoid = false;           // they are sigmoids of the experts' scores
  bool dense_first = false;       // the first layers may have no experts
  bool xielu = false;             // "xielu.": an activation's numbers, which are tensors elsewhere
};

// Falcon 40B's, which has two norms in a layer.
inline constexpr std::string_view kSecondFalconNorm = "blk.0.attn_norm_2.weight";

struct GgufFamily {
  std::string_view architecture;  // general.architecture
  std::string_view model_type;    // config.json's
  std::string_view layers;        // in front of a layer's number: "model.layers."
  std::span<const GgufName> whole;
  std::span<const GgufName> of_layer;
  GgufKeys keys = {};
  std::string_view tensor = {};  // which files of this row have, of several with that architecture
  std::string_view windowed_type = {};  // config.json's where the file has windows; empty: the same
  std::span<const GgufName> of_experts = {};  // of sparse layers: its own, before those of all
};

// By the file's general.architecture. The error lists those that are supported.
Result<const GgufFamily*> find_gguf_family(const gguf::GgufFile& file);

// What a tensor of the file is called in transformers' checkpoint; its own name where the family
// has no such tensor.
struct GgufTensorName {
  std::string ours;
  GgufChange change = GgufChange::kNone;
};
GgufTensorName translate_name(const GgufFamily& family, std::string_view name);

// Tables of rotary factors, which belong to the config.
bool is_rotary_table(std::string_view name);

// A whole number under "ARCHITECTURE.", the same in all layers where each has its own; -1: none.
std::int64_t gguf_size(const gguf::GgufFile& file, const GgufFamily& family, std::string_view key);

// Dimensions of a head; 0: the file does not say.
std::int64_t gguf_head_dim(const gguf::GgufFile& file, const GgufFamily& family);

}  // namespace lmtp::model
