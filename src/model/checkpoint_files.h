// What the files of a checkpoint hold: tensors by name, and where they lie.
#pragma once

#include <cstdint>
#include <string>
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

// Each adds the tensors of one file, which must outlive the entries. Every entry lies within its
// file; the error names the file and what is wrong with it.

// The safetensors format: https://github.com/huggingface/safetensors
Result<void> add_safetensors(const WeightsFile& file, TensorEntries& entries);

// A state dict that torch.save wrote (zip format, PyTorch 1.6 and later). Nothing that the file
// asks for is called.
Result<void> add_pickled(const WeightsFile& file, TensorEntries& entries);

}  // namespace lmtp::model
