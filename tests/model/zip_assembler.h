// Zip files written by hand: as torch.save writes them, and as it never would.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmtp::testing {

inline std::string little_endian(std::uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) {
    bytes += static_cast<char>(value & 0xFF);
    value >>= 8;
  }
  return bytes;
}

struct ZipRecord {
  std::string name = {};
  std::string data = {};
  int method = 0;
  int flags = 0x808;     // its sizes are not in its own header, but after the data
  bool is_long = false;  // size and place are in the extra field, as beyond 4 GB
};

// Where things stand in the file, for tests that change them.
struct ZipFile {
  std::string bytes;
  std::vector<std::size_t> headers;  // by record
  std::vector<std::size_t> entries;  // of the directory, by record
  std::size_t long_end = 0;          // 0: it has none
  std::size_t end = 0;
};

// In the folder "archive". has_long_end: as torch.save writes, whatever the size.
inline ZipFile zip_file(const std::vector<ZipRecord>& records, bool has_long_end = true) {
  constexpr std::size_t kAlignment = 64;
  ZipFile file;
  std::string directory;
  for (const ZipRecord& record : records) {
    const std::string name = "archive/" + record.name;
    file.headers.push_back(file.bytes.size());
    const std::string kind = little_endian(static_cast<std::uint64_t>(record.flags), 2) +
                             little_endian(static_cast<std::uint64_t>(record.method), 2) +
                             little_endian(0, 8);
    const std::size_t unpadded = file.bytes.size() + 30 + name.size() + 4;
    const std::size_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
    file.bytes += "PK\3\4" + little_endian(0, 2) + kind + little_endian(0, 8) +
                  little_endian(name.size(), 2) + little_endian(4 + padding, 2) + name + "FB" +
                  little_endian(padding, 2) + std::string(padding, 'Z') + record.data;
    const std::string size = little_endian(record.data.size(), 8);
    const std::string place = little_endian(file.headers.back(), 8);
    const std::string none(4, '\xFF');
    const std::string extra = record.is_long
                                  ? "FB" + little_endian(1, 2) + "Z" + little_endian(1, 2) +
                                        little_endian(24, 2) + size + size + place
                                  : "";
    file.entries.push_back(directory.size());
    directory += "PK\1\2" + little_endian(0, 4) + kind +
                 (record.is_long ? none + none : size.substr(0, 4) + size.substr(0, 4)) +
                 little_endian(name.size(), 2) + little_endian(extra.size(), 2) +
                 little_endian(0, 10) + (record.is_long ? none : place.substr(0, 4)) + name + extra;
  }
  const std::size_t begin = file.bytes.size();
  for (std::size_t& entry : file.entries) entry += begin;
  file.bytes += directory;
  if (has_long_end) {
    file.long_end = file.bytes.size();
    file.bytes += "PK\6\6" + little_endian(44, 8) + little_endian(0, 12) +
                  little_endian(records.size(), 8) + little_endian(records.size(), 8) +
                  little_endian(directory.size(), 8) + little_endian(begin, 8) + "PK\6\7" +
                  little_endian(0, 4) + little_endian(file.long_end, 8) + little_endian(1, 4);
  }
  file.end = file.bytes.size();
  file.bytes += "PK\5\6" + little_endian(0, 4) + little_endian(records.size(), 2) +
                little_endian(records.size(), 2) + little_endian(directory.size(), 4) +
                little_endian(begin, 4) + little_endian(0, 2);
  return file;
}

}  // namespace lmtp::testing
