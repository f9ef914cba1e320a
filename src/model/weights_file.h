// A file of weights that is read at given places. It is not mapped: a page of a mapped file that
// somebody has cut off in the meantime ends the process, a read of it is an error.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lmtp/base/result.h"

namespace lmtp::model {

// Owner: the checkpoint whose tensors lie in it. Any thread, several at a time.
class WeightsFile {
 public:
  static Result<std::unique_ptr<WeightsFile>> open(const std::string& path);
  // A file of `size` bytes that is not there yet, but for its beginning: more cannot be read.
  static std::unique_ptr<WeightsFile> of_beginning(std::string path, std::string beginning,
                                                   std::int64_t size);
  ~WeightsFile();
  WeightsFile(const WeightsFile&) = delete;
  WeightsFile& operator=(const WeightsFile&) = delete;

  const std::string& path() const { return path_; }
  // When it was opened.
  std::uint64_t size() const { return static_cast<std::uint64_t>(status_.st_size); }

  // Reads bytes [first, first + count). The error says that the file no longer has them.
  Result<void> read(std::uint64_t first, std::size_t count, void* to) const;

  // The error says that somebody has written to the file since it was opened.
  Result<void> check_unchanged() const;

 private:
  WeightsFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;  // -1: there is but the beginning
  std::string beginning_;
  struct stat status_ = {};
};

}  // namespace lmtp::model
