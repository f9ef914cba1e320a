// Writes GGUF files for tests, right ones and broken ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmtp::testing {

// A file of version 3: metadata and tensors' descriptions as they are given, then zeros.
class GgufAssembler {
 public:
  std::uint32_t version = 3;
  std::string magic = "GGUF";
  std::uint64_t num_tensors = 0;
  std::uint64_t num_keys = 0;
  std::uint64_t data_bytes = 0;  // behind the header

  template <typename T>
  static std::string number(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  static std::string text(std::string_view value) {
    return number(std::uint64_t{value.size()}) + std::string(value);
  }

  // `value` as it lies in the file.
  void key(std::string_view name, std::uint32_t type, const std::string& value) {
    keys_ += text(name) + number(type) + value;
    ++num_keys;
  }
  void key(std::string_view name, std::uint32_t value) { key(name, 4, number(value)); }
  void key(std::string_view name, std::string_view value) { key(name, 8, text(value)); }
  void key(std::string_view name, const std::vector<std::string>& values) {
    std::string all = number(std::uint32_t{8}) + number(std::uint64_t{values.size()});
    for (const std::string& value : values) all += text(value);
    key(name, 9, all);
  }

  // `dimensions`: the innermost first, as in the file.
  void tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions,
              std::uint32_t type, std::uint64_t offset) {
    tensors_ += text(name) + number(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t size : dimensions) tensors_ += number(size);
    tensors_ += number(type) + number(offset);
    ++num_tensors;
  }

  std::string bytes() const {
    std::string file =
        magic + number(version) + number(num_tensors) + number(num_keys) + keys_ + tensors_;
    if (data_bytes > 0) file.resize((file.size() + 31) / 32 * 32 + data_bytes);
    return file;
  }

 private:
  std::string keys_;
  std::string tensors_;
};

}  // namespace lmtp::testing
