// Pickles of tensors, written by hand: as torch.save writes them, and as it never would.
#pragma once

#include <caffe2/serialize/inline_container.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::testing {

inline std::string little_endian(std::uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

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
inline std::string torch_file(const std::string& pickle, const std::string& storage,
                              bool compress = false) {
  std::string file;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, std::size_t size) {
    file.append(static_cast<const char*>(data), size);
    return size;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("byteorder", "little", 6);
  writer.writeRecord("data/0", storage.data(), storage.size(), compress);
  writer.writeEndOfFile();
  return file;
}

}  // namespace lmtp::testing
