// A partially downloaded blob: written to HASH.incomplete, verified, then renamed.
//
// Some file systems (Lustre, GPFS, some NFS) grant a lock to every caller. Two writers of one file
// then write the same bytes at the same offsets; one that finds the content wrong goes on in its
// own file.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "blob_hash.h"
#include "lmtp/base/result.h"

namespace lmtp::hub {

// Another process's download that has not grown for so long is considered dead.
inline constexpr std::chrono::seconds kDownloadIdleMax{120};

// Bytes of a file; -1 if it does not exist.
std::int64_t size_of(const std::string& path);

// Bytes of the largest partial file of the blob at `path`, by any program: `path`.incomplete, and
// `path`.UUID.incomplete of huggingface_hub 2. 0 if there is none.
std::int64_t unfinished_bytes(const std::string& path);

// Owner: one thread, which holds the blob's lock.
class PartialBlob {
 public:
  // Opens `path`.incomplete with the bytes of an earlier attempt, or takes over another program's
  // partial file if that is larger. `size`: of the complete blob.
  static Result<std::unique_ptr<PartialBlob>> open(const std::string& path, const std::string& etag,
                                                   std::int64_t size);
  ~PartialBlob();
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;

  // Bytes on the disk.
  std::int64_t num_bytes() const { return num_bytes_; }
  // Hashes the next piece of an earlier attempt's bytes; true when all are hashed.
  Result<bool> hash_some();
  Result<void> append(std::string_view piece);
  // Starts again from byte 0, overwriting the file.
  void restart();
  // Deletes the file, whose content is wrong, and starts again in one with a unique name.
  Result<void> restart_in_own_file();
  // Deletes the file. The last call on this object.
  void drop();
  // Whether size and hash are correct. REQUIRES: hash_some() returned true. No append() after it.
  bool is_right();
  // Renames the file to `path`.
  Result<void> commit();

 private:
  PartialBlob(std::string path, std::string etag, std::int64_t size, int file,
              std::int64_t num_bytes);

  const std::string path_;
  std::string incomplete_;
  const std::string etag_;
  const std::int64_t size_;
  int file_;
  BlobHash hash_;
  std::int64_t num_bytes_;
  std::int64_t num_hashed_ = 0;
};

}  // namespace lmtp::hub
