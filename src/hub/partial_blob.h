// A blob that is coming: written to HASH.incomplete, checked, and then given its name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "blob_hash.h"
#include "lmtp/base/result.h"

namespace lmtp::hub {

// Owner: one thread, which holds the blob's lock.
class PartialBlob {
 public:
  // Opens `path`.incomplete, with what an earlier attempt has left there. `size` is what the whole
  // will have.
  static Result<std::unique_ptr<PartialBlob>> open(const std::string& path, const std::string& etag,
                                                   std::int64_t size);
  ~PartialBlob();
  PartialBlob(const PartialBlob&) = delete;
  PartialBlob& operator=(const PartialBlob&) = delete;

  // Bytes on the disk.
  std::int64_t num_bytes() const { return num_bytes_; }
  // What an earlier attempt left goes through the hash first, piece by piece: true when all has.
  Result<bool> hash_some();
  Result<void> append(std::string_view piece);
  // Begins anew.
  Result<void> clear();
  // Whether size and hash are right. REQUIRES: hash_some() returned true. Ends appending.
  bool is_right();
  // Gives it its name.
  Result<void> commit();

 private:
  PartialBlob(std::string path, std::string etag, std::int64_t size, int file,
              std::int64_t num_bytes);

  const std::string path_;
  const std::string incomplete_;
  const std::string etag_;
  const std::int64_t size_;
  const int file_;
  BlobHash hash_;
  std::int64_t num_bytes_;
  std::int64_t num_hashed_ = 0;
};

}  // namespace lmtp::hub
