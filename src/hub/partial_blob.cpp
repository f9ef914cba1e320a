#include "partial_blob.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "hub_messages.h"
#include "lmtp/base/check.h"

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIncomplete = ".incomplete";
constexpr std::int64_t kHashPieceBytes = std::int64_t{4} << 20;
constexpr mode_t kBlobMode = 0666;  // less the umask

// PATH.incomplete and PATH.ANYTHING.incomplete.
std::vector<fs::path> unfinished_files(const std::string& path) {
  const fs::path blob(path);
  const std::string head = blob.filename().string() + ".";
  std::vector<fs::path> files;
  std::error_code error;
  for (auto entry = fs::directory_iterator(blob.parent_path(), error);
       !error && entry != fs::end(entry); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(head) && name.ends_with(kIncomplete)) files.push_back(entry->path());
  }
  return files;
}

// huggingface_hub 2 writes a new file each time, and leaves it when killed. Where locks have no
// effect, a file that still grows belongs to another process.
void take_over(const std::string& path, const std::string& incomplete, std::int64_t size) {
  std::int64_t num_bytes = size_of(incomplete);
  const auto idle_since = fs::file_time_type::clock::now() - kDownloadIdleMax;
  for (const fs::path& file : unfinished_files(path)) {
    std::error_code error;
    const std::int64_t others = size_of(file);
    if (others <= num_bytes || others > size || fs::last_write_time(file, error) > idle_since ||
        error) {
      continue;
    }
    fs::rename(file, incomplete, error);
    if (!error) num_bytes = others;
  }
}

std::string random_digits() {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", std::random_device()());
  return text;
}

}  // namespace

std::int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? -1 : static_cast<std::int64_t>(size);
}

std::int64_t unfinished_bytes(const std::string& path) {
  std::int64_t num_bytes = 0;
  for (const fs::path& file : unfinished_files(path)) {
    num_bytes = std::max(num_bytes, size_of(file));
  }
  return num_bytes;
}

Result<std::unique_ptr<PartialBlob>> PartialBlob::open(const std::string& path,
                                                       const std::string& etag, std::int64_t size) {
  const std::string incomplete = path + std::string(kIncomplete);
  take_over(path, incomplete, size);
  const int file = ::open(incomplete.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kBlobMode);
  if (file < 0) return explain_disk("the cache cannot be written", incomplete, errno);
  struct stat status {};
  const bool known = fstat(file, &status) == 0;
  std::unique_ptr<PartialBlob> blob(
      new PartialBlob(path, etag, size, file, known ? status.st_size : 0));
  // A file longer than the blob cannot be its beginning.
  if (blob->num_bytes_ > size) {
    if (ftruncate(file, 0) != 0) {
      return explain_disk("the cache cannot be written", incomplete, errno);
    }
    blob->restart();
  }
  return blob;
}

PartialBlob::PartialBlob(std::string path, std::string etag, std::int64_t size, int file,
                         std::int64_t num_bytes)
    : path_(std::move(path)),
      incomplete_(path_ + std::string(kIncomplete)),
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
    const ssize_t num_written = pwrite(file_, piece.data(), piece.size(), num_bytes_);
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

void PartialBlob::restart() {
  num_bytes_ = num_hashed_ = 0;
  hash_ = BlobHash(etag_, size_);
}

Result<void> PartialBlob::restart_in_own_file() {
  drop();
  const std::string apart = path_ + "." + random_digits() + std::string(kIncomplete);
  const int file = ::open(apart.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kBlobMode);
  if (file < 0) return explain_disk("the cache cannot be written", apart, errno);
  close(std::exchange(file_, file));
  incomplete_ = apart;
  restart();
  return {};
}

void PartialBlob::drop() { unlink(incomplete_.c_str()); }

bool PartialBlob::is_right() {
  LMTP_CHECK(num_hashed_ == num_bytes_, num_hashed_, num_bytes_);
  return num_bytes_ == size_ && hash_.matches();
}

Result<void> PartialBlob::commit() {
  // Another process that does not see the lock may have appended to it.
  if (ftruncate(file_, size_) == 0 && rename(incomplete_.c_str(), path_.c_str()) == 0) return {};
  const int error_number = errno;
  // Or may have finished first.
  if (error_number == ENOENT && size_of(path_) == size_) return {};
  return explain_disk("the cache cannot be written", path_, error_number);
}

}  // namespace lmtp::hub
