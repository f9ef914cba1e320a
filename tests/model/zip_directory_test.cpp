// The zip of a pytorch_model.bin as hostile as it may be: an error that says what is wrong with
// which record, and nothing read from beyond the file.
#include "zip_directory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_files.h"
#include "source_dir.h"
#include "zip_assembler.h"

namespace lmtp {
namespace {

using model::WeightsFile;
using model::ZipDirectory;
using testing::little_endian;
using testing::zip_file;
using testing::ZipFile;
using testing::ZipRecord;

const char* const kUnreadable =
    "its zip directory cannot be read: the file is truncated or corrupt; fetch it again, or save "
    "it again with torch.save";

std::unique_ptr<WeightsFile> file_of(const std::string& bytes) {
  return WeightsFile::from_prefix("w.bin", bytes, std::ssize(bytes));
}

std::string zip_error(const std::string& bytes, const std::string& name = "data.pkl") {
  const auto file = file_of(bytes);
  const auto zip = ZipDirectory::read(*file);
  if (!zip) return zip.error().message;
  const auto record = zip->find(*file, name);
  return record ? "" : record.error().message;
}

std::string data_of(const std::string& bytes, const std::string& name) {
  const auto file = file_of(bytes);
  const auto record = ZipDirectory::read(*file)->find(*file, name);
  return bytes.substr(record->begin, record->size);
}

std::string changed(std::string bytes, std::size_t at, std::uint64_t value, int size) {
  return bytes.replace(at, static_cast<std::size_t>(size), little_endian(value, size));
}

// What torch.save wrote: "a", [2, 3] of float32, and "b", [2] of bfloat16.
std::string saved_by_torch() {
  std::ifstream file(testing::source_dir() + "/tests/goldens/pickled/pytorch_model.bin",
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Reads its tensors, which must lie within it, or gives one line about it.
std::string read_error(const std::string& bytes) {
  const auto file = file_of(bytes);
  const auto entries = model::read_pickled(*file);
  if (!entries) {
    const std::string& error = entries.error().message;
    EXPECT_TRUE(error.starts_with("w.bin: ") && error.find('\n') == std::string::npos) << error;
    EXPECT_EQ(entries.error().code, ErrorCode::kInvalid) << error;
    return error;
  }
  for (const auto& [name, entry] : *entries) {
    EXPECT_LE(entry.begin, bytes.size()) << name;
    EXPECT_LE(entry.size, bytes.size() - entry.begin) << name;
  }
  return "";
}

const std::vector<ZipRecord> kRecords = {{.name = "data.pkl", .data = "a pickle"},
                                         {.name = "data/0", .data = std::string(100, '0')},
                                         {.name = "version", .data = "3\n"}};
constexpr std::size_t kPickle = 0;
constexpr std::size_t kStorageRecord = 1;

ZipFile whole() { return zip_file(kRecords); }

TEST(ZipDirectoryTest, RecordsAreFoundInWhatTorchWrites) {
  const std::string saved = saved_by_torch();
  EXPECT_EQ(data_of(saved, "byteorder"), "little");
  EXPECT_EQ(data_of(saved, "data/0").substr(4, 4), little_endian(0x3F800000, 4));
  EXPECT_EQ(data_of(saved, "data/1"), little_endian(0x3F803F80, 4));
  EXPECT_EQ(zip_error(saved, "data/2"), "it has no record 'data/2'");
  EXPECT_EQ(read_error(saved), "");
}

TEST(ZipDirectoryTest, RecordsAreFoundInEveryForm) {
  for (const bool has_long_end : {false, true}) {
    for (const bool is_long : {false, true}) {
      auto records = kRecords;
      for (ZipRecord& record : records) record.is_long = is_long;
      const ZipFile file = zip_file(records, has_long_end);
      for (const ZipRecord& record : records) {
        ASSERT_EQ(zip_error(file.bytes, record.name), "");
        EXPECT_EQ(data_of(file.bytes, record.name), record.data);
      }
    }
  }
  EXPECT_EQ(zip_error(zip_file({}).bytes), "it has no record 'data.pkl'");
}

TEST(ZipDirectoryTest, WhatIsNotStoredAsItIsIsRefused) {
  const std::string refused = "record 'data.pkl' is compressed or encrypted";
  EXPECT_TRUE(zip_error(zip_file({{.name = "data.pkl", .method = 8}}).bytes).starts_with(refused));
  EXPECT_TRUE(zip_error(zip_file({{.name = "data.pkl", .flags = 1}}).bytes).starts_with(refused));
  EXPECT_NE(zip_error(zip_file({{.name = "data.pkl", .flags = 1}}).bytes).find("save_pretrained"),
            std::string::npos);
  // Of another record nobody asks.
  EXPECT_EQ(zip_error(zip_file({kRecords[0], {.name = "code", .method = 8}}).bytes), "");
}

TEST(ZipDirectoryTest, AHeaderThatIsNotWhatTheDirectorySays) {
  const ZipFile file = whole();
  const char* const wrong =
      "its zip directory is wrong about record 'data.pkl': the file is corrupt";
  const std::size_t header = file.headers[kPickle];
  EXPECT_EQ(zip_error(changed(file.bytes, header, 0, 4)), wrong);
  EXPECT_EQ(zip_error(changed(file.bytes, header + 6, 1, 2)), wrong);
  EXPECT_EQ(zip_error(changed(file.bytes, header + 8, 8, 2)), wrong);
  EXPECT_EQ(zip_error(changed(file.bytes, header + 26, 8, 2)), wrong);
  EXPECT_EQ(zip_error(changed(file.bytes, header + 30, 'x', 1)), wrong);
  EXPECT_EQ(zip_error(changed(file.bytes, header + 28, 0xFFFF, 2)),
            "record 'data.pkl' does not fit its place in the file: the file is corrupt");
  EXPECT_EQ(zip_error(changed(file.bytes, file.entries[kPickle] + 24, 9, 4)),
            "record 'data.pkl' does not fit its place in the file: the file is corrupt");
}

TEST(ZipDirectoryTest, RecordsThatLieElsewhereThanTheirPlace) {
  const ZipFile file = whole();
  const auto with = [&](std::size_t record, std::size_t field, std::uint64_t value) {
    return zip_error(changed(file.bytes, file.entries[record] + field, value, 4));
  };
  const std::string overlaps =
      "record 'archive/data/0' overlaps the one that follows it: the file is corrupt";
  EXPECT_EQ(with(kStorageRecord, 20, 1000), overlaps);
  EXPECT_EQ(with(kStorageRecord, 42, file.headers[kStorageRecord] + 100), overlaps);
  EXPECT_NE(with(kStorageRecord, 42, 0).find("overlaps"), std::string::npos);
  for (const std::uint64_t value :
       {file.entries[0] - 10, file.bytes.size(), std::size_t{1} << 31}) {
    EXPECT_EQ(with(kStorageRecord, 42, value),
              "record 'archive/data/0' lies beyond the end of the records: the file is corrupt");
  }
  EXPECT_EQ(with(2, 20, 1 << 30),
            "record 'archive/version' lies beyond the end of the records: the file is corrupt");
  const char* const lacks =
      "record 'archive/data/0' lacks its size in the zip directory: the file is corrupt";
  for (const std::size_t field : {20, 24, 42}) {
    EXPECT_EQ(with(kStorageRecord, field, UINT32_MAX), lacks);
  }

  auto records = kRecords;
  records[kStorageRecord].is_long = true;
  const ZipFile long_file = zip_file(records);
  const std::size_t extra =
      long_file.entries[kStorageRecord] + 46 + 14;  // 5 bytes of another field first
  EXPECT_EQ(zip_error(changed(long_file.bytes, extra + 7, 20, 2)), lacks);
  EXPECT_EQ(zip_error(changed(long_file.bytes, extra + 7, 25, 2)), lacks);
  EXPECT_EQ(zip_error(changed(long_file.bytes, extra + 2, 0xFFFF, 2)), lacks);
  EXPECT_EQ(zip_error(changed(long_file.bytes, extra + 17, UINT64_MAX, 8)), overlaps);
  EXPECT_EQ(zip_error(changed(long_file.bytes, extra + 25, UINT64_MAX, 8)),
            "record 'archive/data/0' lies beyond the end of the records: the file is corrupt");
}

TEST(ZipDirectoryTest, NamesThatNoCheckpointHas) {
  const ZipRecord& record = kRecords[kPickle];
  EXPECT_EQ(zip_error(zip_file({record, kRecords[1], record}).bytes),
            "record 'archive/data.pkl' is there twice: the file is corrupt");
  const std::string error = zip_error(zip_file({record, {.name = std::string(505, 'x')}}).bytes);
  EXPECT_TRUE(error.ends_with("...' has a longer name than any")) << error;
  EXPECT_EQ(zip_error(zip_file({record, {.name = std::string(504, 'x')}}).bytes), "");
  const ZipRecord broken = {.name = "a\nb\x80"};
  EXPECT_EQ(zip_error(zip_file({record, broken, broken}).bytes),
            "record 'archive/a?b?' is there twice: the file is corrupt");
}

TEST(ZipDirectoryTest, AnEndThatIsNotWhatItSays) {
  const std::string parts =
      "it is one part of a zip archive of several files, which torch.save never writes: the file "
      "is "
      "corrupt, or no checkpoint";
  const std::string larger = "its zip directory is larger than any checkpoint's";
  for (const bool has_long_end : {false, true}) {
    const ZipFile file = zip_file(kRecords, has_long_end);
    const std::size_t at = has_long_end ? file.long_end + 16 : file.end + 4;
    const int disk = has_long_end ? 4 : 2;
    const int count = has_long_end ? 8 : 2;
    const int size = has_long_end ? 8 : 4;
    const auto with = [&](int place, std::uint64_t value, int bytes) {
      return zip_error(changed(file.bytes, at + static_cast<std::size_t>(place), value, bytes));
    };
    EXPECT_EQ(with(0, 1, disk), parts);
    EXPECT_EQ(with(disk, 1, disk), parts);
    EXPECT_EQ(with(2 * disk, 2, count), parts);
    const int size_at = 2 * disk + 2 * count;
    EXPECT_EQ(with(size_at, model::kZipDirectoryBytesMax + 1, size), larger);
    EXPECT_EQ(with(size_at, model::kZipDirectoryBytesMax, size), kUnreadable);
    EXPECT_EQ(with(size_at + size, 0, size), kUnreadable);
    EXPECT_EQ(with(size_at + size, UINT64_MAX, size), kUnreadable);
    for (const std::uint64_t num_records : {2, 4}) {
      const std::string counted = little_endian(num_records, count);
      std::string bytes = file.bytes;
      bytes.replace(at + static_cast<std::size_t>(2 * disk), counted.size() * 2, counted + counted);
      EXPECT_EQ(zip_error(bytes), kUnreadable);
    }
  }
  const ZipFile file = whole();
  const std::string many = little_endian(model::kZipRecordsMax + 1, 8);
  EXPECT_EQ(zip_error(std::string(file.bytes).replace(file.long_end + 24, 16, many + many)),
            larger);
  EXPECT_EQ(zip_error(changed(file.bytes, file.long_end, 0, 4)), kUnreadable);
  for (const std::uint64_t place : {std::uint64_t{0}, file.long_end + 1, UINT64_MAX}) {
    EXPECT_EQ(zip_error(changed(file.bytes, file.long_end + 56 + 8, place, 8)), kUnreadable);
  }
  EXPECT_EQ(zip_error(file.bytes + "a comment"), kUnreadable);
  EXPECT_EQ(zip_error(changed(file.bytes, file.end + 20, 1, 2)), kUnreadable);
  EXPECT_EQ(zip_error("PK"), kUnreadable);
  EXPECT_EQ(zip_error(file.bytes.substr(file.end - 20)), kUnreadable);
}

TEST(ZipDirectoryTest, EveryTruncationIsAnError) {
  const std::string saved = saved_by_torch();
  for (std::size_t size = 1; size < saved.size(); ++size) {
    EXPECT_NE(read_error(saved.substr(0, size)), "") << size;
  }
  for (std::size_t gone = 1; gone < saved.size() - 2; ++gone) {
    EXPECT_NE(read_error("PK" + saved.substr(2 + gone)), "") << gone;
  }
}

// Each byte by itself, and whole numbers at each place: the tensors come, or one line does.
TEST(ZipDirectoryTest, NoChangeDoesHarm) {
  const std::string saved = saved_by_torch();
  int num_errors = 0;
  int num_read = 0;
  const auto try_one = [&](const std::string& bytes) {
    ++(read_error(bytes).empty() ? num_read : num_errors);
  };
  const std::vector<std::uint64_t> numbers = {0, UINT64_MAX, UINT64_MAX - 100, saved.size()};
  for (std::size_t at = 0; at < saved.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = saved;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      try_one(bytes);
    }
    for (const int size : {2, 4, 8}) {
      if (at + static_cast<std::size_t>(size) > saved.size()) continue;
      for (const std::uint64_t number : numbers) try_one(changed(saved, at, number, size));
    }
  }
  EXPECT_GT(num_errors, 10'000);
  EXPECT_GT(num_read, 10'000);
}

}  // namespace
}  // namespace lmtp
