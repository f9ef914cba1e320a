// Pickles of tensors, written by hand: as torch.save writes them, and as it never would.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "zip_assembler.h"

namespace lmtp::testing {

inline std::string pickled(const std::string& text) {
  return "X" + little_endian(text.size(), 4) + text;
}

inline std::string pickled(std::int64_t value) {
  return "\x8A\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
}

inline std::string pickled(const std::vector<std::int64_t>& values) {
  std::string bytes = "(";
  for (const std::int64_t value : values) bytes += pickled(value);
  return bytes + "t";
}

inline std::string pickled_global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

struct TensorParts {
  std::string storage_class = "FloatStorage";
  std::string record = "0";
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape = {2, 3};
  std::vector<std::int64_t> strides = {3, 1};
};

inline std::string pickled(const TensorParts& tensor) {
  return pickled_global("torch._utils", "_rebuild_tensor_v2") + "((" + pickled("storage") +
         pickled_global("torch", tensor.storage_class) + pickled(tensor.record) + pickled("cpu") +
         pickled(6) + "tQ" + pickled(tensor.offset) + pickled(tensor.shape) +
         pickled(tensor.strides) + "\x89" + pickled_global("collections", "OrderedDict") + ")RtR";
}

// A whole pickle of a dictionary: names and what stands under them.
inline std::string pickled_dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string bytes = "\x80\x02}q";
  bytes += std::string(1, '\0') + "(";
  for (const auto& [name, value] : items) bytes += pickled(name) + value;
  return bytes + "u.";
}

// The file of such a pickle, with one record that is the storage "0".
inline ZipFile torch_zip(const std::string& pickle, const std::string& storage) {
  return zip_file({{.name = "data.pkl", .data = pickle},
                   {.name = "byteorder", .data = "little"},
                   {.name = "data/0", .data = storage}});
}

inline std::string torch_file(const std::string& pickle, const std::string& storage) {
  return torch_zip(pickle, storage).bytes;
}

}  // namespace lmtp::testing
