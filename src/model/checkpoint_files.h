// What the files of a checkpoint hold: tensors by name, in mapped files.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmtp/base/result.h"
#include "mapped_file.h"

namespace lmtp::model {

struct TensorEntry {
  const MappedFile* file = nullptr;
  std::string path;  // of the file, for errors
  std::string type;  // as safetensors calls it: "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in the file
  std::uint64_t size = 0;   // bytes
};

using TensorEntries = std::unordered_map<std::string, TensorEntry>;

// Each adds the tensors of one file, which must outlive the entries. Every entry lies within its
// file; the error names the file and what is wrong with it.

// The safetensors format: https://github.com/huggingface/safetensors
Result<void> add_safetensors(const MappedFile& file, const std::string& path,
                             TensorEntries& entries);

// A state dict that torch.save wrote (zip format, PyTorch 1.6 and later), through libtorch's own
// unpickler, which makes tensors and containers alone: a file that asks for any other class or
// function is refused.
Result<void> add_pickled(const MappedFile& file, const std::string& path, TensorEntries& entries);

}  // namespace lmtp::model
