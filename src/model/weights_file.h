// A file of weights, read by pread(). It is not mapped: if the file is truncated meanwhile, access
// to a mapped page ends the process, while a read is an error.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lmtp/base/result.h"

namespace lmtp::model {

// Owner: the checkpoint whose tensors it holds. Any thread, several at a time.
class WeightsFile {
 public:
  static Result<std::unique_ptr<WeightsFile>> open(const std::string& path);
  // A file of `size` bytes of which only the beginning exists: reads beyond that are errors.
  static std::unique_ptr<WeightsFile> from_prefix(std::string path, std::string beginning,
                                                  std::int64_t size);
  ~WeightsFile();
  WeightsFile(const WeightsFile&) = delete;
  WeightsFile& operator=(const WeightsFile&) = delete;

  const std::string& path() const { return path_; }
  // Bytes at the time of opening.
  std::uint64_t size() const { return static_cast<std::uint64_t>(status_.st_size); }

  // Reads bytes [first, first + count). The error says that the file no longer has them.
  Result<void> read(std::uint64_t first, std::size_t count, void* to) const;

  // The error says that the file was written to since it was opened.
  Result<void> check_unchanged() const;

 private:
  WeightsFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;  // -1: made by from_prefix
  std::string beginning_;
  struct stat status_ = {};
};

}  // namespace lmtp::model
