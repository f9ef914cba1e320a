// A blob that is coming: written to HASH.incomplete, checked, and then given its name.
//
// Some file systems (Lustre, GPFS, some NFS) give every caller a lock. Two that write one file
// there write the same bytes to the same places, and who finds its content wrong goes on in a file
// of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "blob_hash.h"
#include "lmtp/base/result.h"

namespace lmtp::hub {

// A download that has brought nothing for so long, while it held the blob's lock or after, is over.
inline constexpr std::chrono::seconds kDownloadIdleMax{120};

// Of a file that may not be there: -1.
std::int64_t size_of(const std::string& path);

// Bytes of the furthest unfinished file of the blob at `path`, whoever writes it:
// `path`.incomplete, and `path`.UUID.incomplete of huggingface_hub 2. 0 where there is none.
std::int64_t unfinished_bytes(const std::string& path);

// Owner: one thread, which holds the blob's lock.
class PartialBlob {
 public:
  // Opens `path`.incomplete with what an earlier attempt has left there, or with what another
  // program has left under a name of its own, where that is more. `size` is what the whole will
  // have.
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
  // Begins anew, over what is there.
  void restart();
  // Begins anew in a file that nobody else knows: what is there is wrong, and is dropped.
  Result<void> restart_apart();
  // Drops what has come. Ends the use.
  void drop();
  // Whether size and hash are right. REQUIRES: hash_some() returned true. Ends appending.
  bool is_right();
  // Gives it its name.
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
