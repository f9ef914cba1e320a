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
  kByPart,       // rows are [q | k | v][head], not [head][q | k | v]
  kTransposed,   // [outputs, inputs], not Conv1D's [inputs, outputs]
  kOneAdded,     // a norm's weight, kept around 1, not 0
};

struct GgufName {
  std::string_view gguf;  // without "blk.N." and ".weight": "attn_q"
  std::string_view ours;  // "self_attn.q_proj"
  GgufChange change = GgufChange::kNone;
};

struct GgufFamily {
  std::string_view architecture;  // general.architecture
  std::string_view model_type;    // config.json's
  std::string_view layers;        // in front of a layer's number: "model.layers."
  std::span<const GgufName> whole;
  std::span<const GgufName> of_layer;
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
