// A file mapped for reading.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::model {

// Owner: the checkpoint whose tensors lie in it. Any thread.
class MappedFile {
 public:
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Valid while the file lives.
  const unsigned char* data() const { return static_cast<const unsigned char*>(data_); }
  std::uint64_t size() const { return size_; }

 private:
  MappedFile(void* data, std::size_t size) : data_(data), size_(size) {}

  void* data_;
  std::size_t size_;
};

}  // namespace lmtp::model
