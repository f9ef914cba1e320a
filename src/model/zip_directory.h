// The directory of a zip file as torch.save writes it: records that lie in the file as they are.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3.7 to 4.3.16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"
#include "weights_file.h"

namespace lmtp::model {

// What to do with a file that is not as torch.save writes one.
inline constexpr const char* kConvertRemedy =
    "; convert it with PyTorch, where you trust it: model.save_pretrained(FOLDER) of the "
    "transformers library writes model.safetensors";

// A name out of a file, for an error: in quotes, shortened, and without what would break a line.
std::string shown(std::string_view name);

// Limits: a directory has some seventy bytes and one record for each storage.
inline constexpr std::uint64_t kZipDirectoryBytesMax = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kZipRecordsMax = std::uint64_t{1} << 17;
inline constexpr std::size_t kZipNameBytesMax = 512;

// Owner: the caller of read(). Any thread. Errors are about the file's content and leave its path
// to the caller, but for those of WeightsFile::read.
class ZipDirectory {
 public:
  // The bytes of a record.
  struct Record {
    std::uint64_t begin = 0;  // in the file
    std::uint64_t size = 0;
  };

  // Reads no more than the directory and its end records. No two records overlap, and none lies
  // beyond the directory. The error says what is wrong with which record.
  static Result<ZipDirectory> read(const WeightsFile& file);

  // Of names below the archive's folder, which is that of its first record: "data.pkl" is
  // "archive/data.pkl".
  bool has(const std::string& name) const { return entries_.contains(folder_ + name); }
  // Reads the record's own header. The error says that there is no such record, that it is
  // compressed or encrypted, or that its header is not what the directory says.
  Result<Record> find(const WeightsFile& file, const std::string& name) const;

 private:
  struct Entry {
    std::uint64_t header = 0;  // where its own header begins, in the file
    std::uint64_t size = 0;    // unpacked
    std::uint64_t packed = 0;
    std::uint64_t limit = 0;  // where what follows it begins
    std::uint64_t flags = 0;
    std::uint64_t method = 0;
  };

  Result<void> parse(std::string_view directory, std::uint64_t num_records);
  Result<void> set_limits(std::uint64_t directory_begin);

  std::string folder_;                    // ends with '/', or is empty
  std::map<std::string, Entry> entries_;  // a hash of names from a file could be made slow
};

}  // namespace lmtp::model
