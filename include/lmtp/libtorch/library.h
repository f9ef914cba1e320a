// What this program needs of libtorch. It is half a gigabyte and takes a third of a second to load,
// so only a plugin links it, lib/lmtp/liblmtp_torch.so beside bin/, which is loaded on first use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::libtorch {

// The file that an archive is read from. Owner: the caller of open_zip; outlives the archive.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  // Copies bytes [first, first + count) to `to`; false: they cannot be read. Must not throw.
  virtual bool read(std::uint64_t first, std::size_t count, void* to) = 0;
};

// The directory of a zip archive that torch.save wrote. Owner: the caller of open_zip; one thread.
class ZipArchive {
 public:
  struct Record {
    std::uint64_t header = 0;  // where its local header begins, in the file
    std::uint64_t size = 0;    // bytes of its data when unpacked
  };

  virtual ~ZipArchive() = default;
  // Empty if there is no such record. The error is that of open_zip.
  virtual Result<std::optional<Record>> find(const std::string& name) = 0;
};

// Any thread, several at a time. Never unloaded.
class Library {
 public:
  virtual ~Library() = default;
  // The error says that the directory cannot be read.
  virtual Result<std::unique_ptr<ZipArchive>> open_zip(ByteSource& source) const = 0;
};

inline constexpr const char* kUnreadableZip =
    "its zip directory cannot be read: the file is truncated or corrupt; fetch it again, or save "
    "it again with torch.save";

// Loads the plugin if it is not loaded yet. The error says why it cannot be loaded, and what to do.
Result<const Library*> load();

}  // namespace lmtp::libtorch
