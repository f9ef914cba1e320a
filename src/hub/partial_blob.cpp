#include "partial_blob.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "hub_messages.h"
#include "lmtp/base/check.h"

namespace lmtp::hub {
namespace {

constexpr std::int64_t kHashPieceBytes = std::int64_t{4} << 20;
constexpr mode_t kBlobMode = 0666;  // less the umask

}  // namespace

Result<std::unique_ptr<PartialBlob>> PartialBlob::open(const std::string& path,
                                                       const std::string& etag, std::int64_t size) {
  const std::string incomplete = path + ".incomplete";
  const int file = ::open(incomplete.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kBlobMode);
  if (file < 0) return explain_disk("the cache cannot be written", incomplete, errno);
  struct stat status {};
  const bool known = fstat(file, &status) == 0;
  std::unique_ptr<PartialBlob> blob(
      new PartialBlob(path, etag, size, file, known ? status.st_size : 0));
  // More than the whole cannot be the beginning of it.
  if (blob->num_bytes_ > size) {
    if (auto cleared = blob->clear(); !cleared) return cleared.error();
  }
  return blob;
}

PartialBlob::PartialBlob(std::string path, std::string etag, std::int64_t size, int file,
                         std::int64_t num_bytes)
    : path_(std::move(path)),
      incomplete_(path_ + ".incomplete"),
      etag_(std::move(etag)),
      size_(size),
      file_(file),
      hash_(etag_, size),
      num_bytes_(num_bytes) {}

PartialBlob::~PartialBlob() { close(file_); }

Result<bool> PartialBlob::hash_some() {
  if (num_hashed_ == num_bytes_) return true;
  std::string piece(static_cast<std::size_t>(std::min(kHashPieceBytes, num_bytes_ - num_hashed_)),
                    '\0');
  const ssize_t num_read = pread(file_, piece.data(), piece.size(), num_hashed_);
  if (num_read <= 0) return explain_disk("the cache cannot be read", incomplete_, errno);
  hash_.update(std::string_view(piece).substr(0, static_cast<std::size_t>(num_read)));
  num_hashed_ += num_read;
  return num_hashed_ == num_bytes_;
}

Result<void> PartialBlob::append(std::string_view piece) {
  LMTP_CHECK(num_hashed_ == num_bytes_, num_hashed_, num_bytes_);
  while (!piece.empty()) {
    const ssize_t num_written = write(file_, piece.data(), piece.size());
    if (num_written < 0 && errno == EINTR) continue;
    if (num_written < 0) return explain_disk("the cache cannot be written", incomplete_, errno);
    const auto num_taken = static_cast<std::size_t>(num_written);
    hash_.update(piece.substr(0, num_taken));
    piece.remove_prefix(num_taken);
    num_bytes_ += num_written;
    num_hashed_ = num_bytes_;
  }
  return {};
}

Result<void> PartialBlob::clear() {
  if (num_bytes_ > 0 && ftruncate(file_, 0) != 0) {
    return explain_disk("the cache cannot be written", incomplete_, errno);
  }
  num_bytes_ = num_hashed_ = 0;
  hash_ = BlobHash(etag_, size_);
  return {};
}

bool PartialBlob::is_right() {
  LMTP_CHECK(num_hashed_ == num_bytes_, num_hashed_, num_bytes_);
  return num_bytes_ == size_ && hash_.matches();
}

Result<void> PartialBlob::commit() {
  if (rename(incomplete_.c_str(), path_.c_str()) != 0) {
    return explain_disk("the cache cannot be written", path_, errno);
  }
  return {};
}

}  // namespace lmtp::hub
