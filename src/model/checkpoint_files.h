// What the files of a checkpoint hold: tensors by name, and where they lie.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmtp/base/result.h"
#include "weights_file.h"

namespace lmtp::model {

struct TensorEntry {
  const WeightsFile* file = nullptr;
  std::string type;  // as safetensors calls it: "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in the file
  std::uint64_t size = 0;   // bytes
};

using TensorEntries = std::unordered_map<std::string, TensorEntry>;

// The tensors of one file, which must outlive the entries. Every entry lies within its file; the
// error names the file and what is wrong with it.

// The safetensors format: https://github.com/huggingface/safetensors
Result<TensorEntries> read_safetensors(const WeightsFile& file);

// A state dict that torch.save wrote (zip format, PyTorch 1.6 and later). Nothing that the file
// asks for is called.
Result<TensorEntries> read_pickled(const WeightsFile& file);

// Whether a checkpoint may have it and nobody ask for it, or name it in its index and not have it.
bool is_harmless(std::string_view name, bool has_tied_head);

// "'a', 'b', 'c', ...".
std::string list_names(const std::vector<std::string>& names);

}  // namespace lmtp::model
