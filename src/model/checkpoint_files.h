// The tensors of a checkpoint's files: names, shapes and offsets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/model/weights.h"
#include "weights_file.h"

namespace lmtp::model {

struct TensorEntry {
  const WeightsFile* file = nullptr;
  std::string type;  // safetensors' name: "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in the file
  std::uint64_t size = 0;   // bytes
};

using TensorEntries = std::unordered_map<std::string, TensorEntry>;

// The tensors of one file, which must outlive the entries. Every entry lies within its file; the
// error names the file and what is wrong with it.

// The safetensors format: https://github.com/huggingface/safetensors
Result<TensorEntries> read_safetensors(const WeightsFile& file);

// A state dict that torch.save wrote (zip format, PyTorch 1.6 and later). No code that the file
// names is called.
Result<TensorEntries> read_pickled(const WeightsFile& file);

// Whether a tensor of this name may be unused, or be in the index but not in the files.
bool is_ignorable_tensor(std::string_view name, bool has_tied_head);

// Whether it has no elements, as what training leaves in a file besides the model.
bool is_empty_tensor(const TensorSource& weights, const std::string& name);

// The tensors of a GGUF file.
Result<std::unique_ptr<TensorSource>> open_gguf(const std::string& path);

// `file` as a source of the stacked matrices that it has in MXFP4 (NAME_blocks, NAME_scales), as if
// it had their numbers in float32, [experts, outputs, inputs].
std::unique_ptr<TensorSource> fp4_source(std::unique_ptr<TensorSource> file);

// "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

// "'a', 'b', 'c', ...".
std::string list_names(const std::vector<std::string>& names);

}  // namespace lmtp::model
