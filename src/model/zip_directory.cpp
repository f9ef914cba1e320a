#include "zip_directory.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/base/little_endian.h"
#include "lmtp/base/text.h"

namespace lmtp::model {
namespace {

constexpr std::uint64_t kHeader = 0x04034B50;
constexpr std::uint64_t kDirectoryEntry = 0x02014B50;
constexpr std::uint64_t kEnd = 0x06054B50;
constexpr std::uint64_t kLongEnd = 0x06064B50;
constexpr std::uint64_t kLongEndLocator = 0x07064B50;

constexpr std::size_t kHeaderBytes = 30;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kLongEndBytes = 56;
constexpr std::size_t kLocatorBytes = 20;

constexpr std::uint64_t kInLongForm = 0xFFFFFFFF;  // of a size or a place
constexpr std::uint64_t kLongFormId = 1;
constexpr std::uint64_t kIsEncrypted = 1;

Error invalid(const std::string& what) { return {ErrorCode::kInvalid, what}; }

Error unreadable() {
  return invalid(
      "its zip directory cannot be read: the file is truncated or corrupt; fetch it again, or save "
      "it again with torch.save");
}

Error of_record(const std::string& name, const std::string& what) {
  return invalid("record " + shown(name) + what);
}

// Takes little-endian numbers and texts one after the other; beyond the end zeros and nothing.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  std::string_view text(std::size_t size) {
    is_short_ = is_short_ || size > bytes_.size();
    const std::string_view taken = bytes_.substr(0, is_short_ ? 0 : size);
    bytes_.remove_prefix(taken.size());
    return taken;
  }

  std::uint64_t number(std::size_t size) { return little_endian(text(size)); }

  bool is_short() const { return is_short_; }
  bool is_empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool is_short_ = false;
};

struct DirectoryPlace {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  std::uint64_t num_records = 0;
};

// What either end record says, from the numbers of parts on; widths: of those, and of sizes.
// `limit`: where the end records begin.
Result<DirectoryPlace> parse_end(Fields end, std::size_t disk_width, std::size_t count_width,
                                 std::size_t size_width, std::uint64_t limit) {
  const std::uint64_t disk = end.number(disk_width);
  const std::uint64_t first_disk = end.number(disk_width);
  const std::uint64_t num_here = end.number(count_width);
  DirectoryPlace place;
  place.num_records = end.number(count_width);
  place.size = end.number(size_width);
  place.begin = end.number(size_width);
  if (disk != 0 || first_disk != 0 || num_here != place.num_records) {
    return invalid(
        "it is one part of a zip archive of several files, which torch.save never "
        "writes: the file is corrupt, or no checkpoint");
  }
  if (place.size > kZipDirectoryBytesMax || place.num_records > kZipRecordsMax) {
    return invalid("its zip directory is larger than any checkpoint's");
  }
  if (place.begin > limit || place.size != limit - place.begin) return unreadable();
  return place;
}

// By the end record, which has no comment, or by its long form where there is one.
Result<DirectoryPlace> find_directory(const WeightsFile& file) {
  std::array<char, kLocatorBytes + kEndBytes> tail = {};
  if (file.size() < tail.size()) return unreadable();
  const std::uint64_t tail_begin = file.size() - tail.size();
  if (auto read = file.read(tail_begin, tail.size(), tail.data()); !read) return read.error();
  const std::string_view bytes(tail.data(), tail.size());
  const std::string_view end = bytes.substr(kLocatorBytes);
  if (Fields(end).number(4) != kEnd || Fields(end.substr(20)).number(2) != 0) return unreadable();
  Fields locator(bytes);
  if (locator.number(4) != kLongEndLocator) {
    return parse_end(Fields(end.substr(4)), 2, 2, 4, file.size() - kEndBytes);
  }
  locator.number(4);  // the part of the archive: the long form itself has it once more
  const std::uint64_t long_begin = locator.number(8);
  std::array<char, kLongEndBytes> long_end = {};
  if (tail_begin < long_end.size() || long_begin > tail_begin - long_end.size()) {
    return unreadable();
  }
  if (auto read = file.read(long_begin, long_end.size(), long_end.data()); !read) {
    return read.error();
  }
  const std::string_view long_bytes(long_end.data(), long_end.size());
  if (Fields(long_bytes).number(4) != kLongEnd) return unreadable();
  return parse_end(Fields(long_bytes.substr(16)), 4, 8, 8, long_begin);
}

// Sizes and places that do not fit 32 bits are in an extra field: those that are marked, in order.
// False: one is not there.
bool take_long_form(std::string_view extra, std::initializer_list<std::uint64_t*> values) {
  const auto is_long = [](const std::uint64_t* value) { return *value == kInLongForm; };
  if (std::ranges::none_of(values, is_long)) return true;
  for (Fields fields(extra); !fields.is_short() && !fields.is_empty();) {
    const std::uint64_t id = fields.number(2);
    Fields body(fields.text(fields.number(2)));
    if (id != kLongFormId || fields.is_short()) continue;
    for (std::uint64_t* value : values) {
      if (is_long(value)) *value = body.number(8);
    }
    return !body.is_short();
  }
  return false;
}

}  // namespace

std::string shown(std::string_view name) {
  std::string text(name.substr(0, kZipNameBytesMax));
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return quoted_name(text);
}

Result<ZipDirectory> ZipDirectory::read(const WeightsFile& file) {
  const auto place = find_directory(file);
  if (!place) return place.error();
  std::string bytes(place->size, '\0');
  if (auto read = file.read(place->begin, bytes.size(), bytes.data()); !read) return read.error();
  ZipDirectory directory;
  if (auto parsed = directory.parse(bytes, place->num_records); !parsed) return parsed.error();
  if (auto set = directory.set_limits(place->begin); !set) return set.error();
  return directory;
}

Result<void> ZipDirectory::parse(std::string_view directory, std::uint64_t num_records) {
  Fields fields(directory);
  for (std::uint64_t i = 0; i < num_records; ++i) {
    Entry entry;
    const bool is_entry = fields.number(4) == kDirectoryEntry;
    fields.text(4);  // the versions of the format
    entry.flags = fields.number(2);
    entry.method = fields.number(2);
    fields.text(8);  // time, checksum
    entry.packed = fields.number(4);
    entry.size = fields.number(4);
    const std::uint64_t name_size = fields.number(2);
    const std::uint64_t extra_size = fields.number(2);
    const std::uint64_t comment_size = fields.number(2);
    fields.text(8);  // the part of the archive, attributes
    entry.header = fields.number(4);
    std::string name(fields.text(name_size));
    const std::string_view extra = fields.text(extra_size);
    fields.text(comment_size);
    if (!is_entry || fields.is_short()) return unreadable();
    if (name.size() > kZipNameBytesMax) return of_record(name, " has a longer name than any");
    if (!take_long_form(extra, {&entry.size, &entry.packed, &entry.header})) {
      return of_record(name, " lacks its size in the zip directory: the file is corrupt");
    }
    if (i == 0) folder_ = name.substr(0, name.find('/') + 1);
    const auto [at, is_new] = entries_.emplace(std::move(name), entry);
    if (!is_new) return of_record(at->first, " is there twice: the file is corrupt");
  }
  if (!fields.is_empty()) return unreadable();
  return {};
}

Result<void> ZipDirectory::set_limits(std::uint64_t directory_begin) {
  std::vector<std::pair<const std::string, Entry>*> in_order;
  for (auto& entry : entries_) in_order.push_back(&entry);
  std::ranges::sort(in_order, {}, [](const auto* entry) { return entry->second.header; });
  for (std::size_t i = 0; i < in_order.size(); ++i) {
    auto& [name, entry] = *in_order[i];
    const bool is_last = i + 1 == in_order.size();
    entry.limit = is_last ? directory_begin : in_order[i + 1]->second.header;
    const std::uint64_t header_bytes = kHeaderBytes + name.size();
    if (entry.header > entry.limit || header_bytes > entry.limit - entry.header ||
        entry.packed > entry.limit - entry.header - header_bytes) {
      return of_record(name, is_last ? " lies beyond the end of the records: the file is corrupt"
                                     : " overlaps the one that follows it: the file is corrupt");
    }
  }
  return {};
}

Result<ZipDirectory::Record> ZipDirectory::find(const WeightsFile& file,
                                                const std::string& name) const {
  const auto found = entries_.find(folder_ + name);
  if (found == entries_.end()) return invalid("it has no record " + shown(name));
  const auto& [whole_name, entry] = *found;
  std::string header(kHeaderBytes + whole_name.size(), '\0');
  if (auto read = file.read(entry.header, header.size(), header.data()); !read) return read.error();
  Fields fields(header);
  const bool is_header = fields.number(4) == kHeader;
  fields.text(2);  // the version of the format
  const std::uint64_t flags = fields.number(2);
  const std::uint64_t method = fields.number(2);
  fields.text(16);  // time; checksum and sizes, which may stand after the data instead
  const std::uint64_t name_size = fields.number(2);
  const std::uint64_t begin = entry.header + header.size() + fields.number(2);
  if (!is_header || name_size != whole_name.size() || !header.ends_with(whole_name) ||
      method != entry.method || ((flags ^ entry.flags) & kIsEncrypted) != 0) {
    return invalid("its zip directory is wrong about record " + shown(name) +
                   ": the file is corrupt");
  }
  if (method != 0 || (flags & kIsEncrypted) != 0) {
    return of_record(name, std::string(" is compressed or encrypted, which torch.save never does") +
                               kConvertRemedy);
  }
  if (entry.size != entry.packed || begin > entry.limit || entry.size > entry.limit - begin) {
    return of_record(name, " does not fit its place in the file: the file is corrupt");
  }
  return Record{.begin = begin, .size = entry.size};
}

}  // namespace lmtp::model
