// Checkpoints that torch.save wrote: a zip of data.pkl and one uncompressed record for each
// storage, so that tensors can be read in place.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint_files.h"
#include "lmtp/libtorch/library.h"
#include "pickle_reader.h"

namespace lmtp::model {
namespace {

constexpr const char* kRemedy =
    "; convert it with PyTorch, where you trust it: model.save_pretrained(FOLDER) of the "
    "transformers library writes model.safetensors";

// Limit of data.pkl: some hundred bytes a tensor.
constexpr std::uint64_t kPickleBytesMax = std::uint64_t{16} << 20;
// Limit of the zip's directory: some seventy bytes a tensor.
constexpr std::uint64_t kDirectoryBytesMax = std::uint64_t{1} << 20;
// Limit of what the zip reader may read besides the directory. It unpacks two small records by
// itself, in a malicious file to a thousand times their size.
constexpr std::uint64_t kBesideDirectoryBytesMax = std::uint64_t{1} << 13;

// The file as libtorch's zip reader sees it.
class BoundedSource : public libtorch::ByteSource {
 public:
  BoundedSource(const WeightsFile& file, std::uint64_t directory_bytes)
      : file_(file), bytes_left_(directory_bytes + kBesideDirectoryBytesMax) {}

  std::uint64_t size() const override { return file_.size(); }

  bool read(std::uint64_t first, std::size_t count, void* to) override {
    if (count > bytes_left_ || first > size() || count > size() - first ||
        !file_.read(first, count, to).ok()) {
      bytes_left_ = 0;
      return false;
    }
    bytes_left_ -= count;
    return true;
  }

 private:
  const WeightsFile& file_;
  std::uint64_t bytes_left_;
};

struct Record {
  std::uint64_t begin = 0;  // in the file
  std::uint64_t size = 0;
};

std::uint64_t read_little_endian(const unsigned char* at, int size) {
  std::uint64_t value = 0;
  for (int i = 0; i < size; ++i) {
    value |= std::uint64_t{at[i]} << (8 * i);
  }
  return value;
}

// The directory's size by the end record, in its zip64 form if there is one; empty if there is
// none. https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3.14 to 4.3.16.
std::optional<std::uint64_t> directory_bytes(const WeightsFile& file) {
  unsigned char end[42] = {};  // zip64 locator, and end record
  if (file.size() < sizeof(end) || !file.read(file.size() - sizeof(end), sizeof(end), end).ok() ||
      read_little_endian(end + 20, 4) != 0x06054B50) {
    return std::nullopt;
  }
  if (read_little_endian(end, 4) != 0x07064B50) return read_little_endian(end + 32, 4);
  unsigned char long_form[48] = {};
  if (!file.read(read_little_endian(end + 8, 8), sizeof(long_form), long_form).ok() ||
      read_little_endian(long_form, 4) != 0x06064B50) {
    return std::nullopt;
  }
  return read_little_endian(long_form + 40, 8);
}

// Finds the data of a record, if the directory has it; they must be uncompressed.
Result<Record> locate(const WeightsFile& file, const std::string& name,
                      const std::optional<libtorch::ZipArchive::Record>& found) {
  if (!found.has_value()) {
    return Error{ErrorCode::kInvalid, "it has no record '" + name + "'"};
  }
  // 4.3.7: signature, version, flags, method; at the end the lengths of name and extra field.
  unsigned char header[30] = {};
  if (auto read = file.read(found->header, sizeof(header), header); !read.ok()) return read.error();
  if (read_little_endian(header, 4) != 0x04034B50) {
    return Error{ErrorCode::kInvalid,
                 "its directory is wrong about record '" + name + "': the file is corrupt"};
  }
  const std::uint64_t flags = read_little_endian(header + 6, 2);
  if ((flags & 1) != 0 || read_little_endian(header + 8, 2) != 0) {
    return Error{
        ErrorCode::kInvalid,
        "record '" + name + "' is compressed or encrypted, which torch.save never does" + kRemedy};
  }
  const std::uint64_t begin = found->header + sizeof(header) + read_little_endian(header + 26, 2) +
                              read_little_endian(header + 28, 2);
  if (begin > file.size() || found->size > file.size() - begin) {
    return Error{ErrorCode::kInvalid,
                 "record '" + name + "' lies beyond the end of the file: the file is truncated"};
  }
  return Record{.begin = begin, .size = found->size};
}

// Elements of the tensor; empty if there are more than any file has.
std::optional<std::uint64_t> num_elements(const PickledTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t size : tensor.shape) {
    if (size > 0 &&
        count > std::numeric_limits<std::uint64_t>::max() / 8 / static_cast<std::uint64_t>(size)) {
      return std::nullopt;
    }
    count *= static_cast<std::uint64_t>(size);
  }
  return count;
}

// REQUIRES: num_elements() of it.
bool is_contiguous(const PickledTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

std::uint64_t element_bytes(std::string_view type) {
  const auto is = [&](std::initializer_list<std::string_view> types) {
    return std::ranges::find(types, type) != types.end();
  };
  if (is({"U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2"})) return 1;
  if (is({"F16", "BF16", "I16"})) return 2;
  return is({"F32", "I32"}) ? 4 : 8;
}

// The entry of a tensor, or why it cannot be read.
Result<TensorEntry> make_entry(const WeightsFile& file, const PickledTensor& tensor,
                               const Record& record) {
  const std::uint64_t item = element_bytes(tensor.type);
  const auto count = num_elements(tensor);
  const auto offset = static_cast<std::uint64_t>(tensor.offset);
  const std::uint64_t capacity = record.size / item;
  if (!count.has_value() || offset > capacity || *count > capacity - offset) {
    return Error{ErrorCode::kInvalid,
                 "its data lie beyond the end of its storage: the file is corrupt"};
  }
  if (*count > 0 && !is_contiguous(tensor)) {
    return Error{
        ErrorCode::kInvalid,
        std::string("it is not contiguous: its elements do not follow one another") + kRemedy};
  }
  return TensorEntry{.file = &file,
                     .type = tensor.type.empty() ? "of another kind" : std::string(tensor.type),
                     .shape = tensor.shape,
                     .begin = record.begin + offset * item,
                     .size = *count * item};
}

// The error says that the file's byte order is not this machine's.
Result<void> check_byte_order(const WeightsFile& file, libtorch::ZipArchive& zip) {
  const auto found = zip.find("byteorder");
  if (!found.ok()) return found.error();
  if (!found->has_value()) return {};
  const auto record = locate(file, "byteorder", *found);
  char order[3] = {};
  if (!record.ok() || record->size < sizeof(order) ||
      !file.read(record->begin, sizeof(order), order).ok() ||
      std::memcmp(order, "big", sizeof(order)) == 0) {
    return Error{ErrorCode::kInvalid,
                 std::string("it was saved on a machine of another byte order") + kRemedy};
  }
  return {};
}

Result<std::string> read_data_pkl(const WeightsFile& file, libtorch::ZipArchive& zip) {
  const auto found = zip.find("data.pkl");
  if (!found.ok()) return found.error();
  const auto record = locate(file, "data.pkl", *found);
  if (!record.ok()) return record.error();
  if (record->size > kPickleBytesMax) {
    return Error{ErrorCode::kInvalid, "its data.pkl is larger than any checkpoint's"};
  }
  if (const auto checked = check_byte_order(file, zip); !checked.ok()) return checked.error();
  std::string pickle(record->size, '\0');
  if (const auto read = file.read(record->begin, pickle.size(), pickle.data()); !read.ok()) {
    return read.error();
  }
  return pickle;
}

Result<TensorEntries> read_tensors(const WeightsFile& file) {
  const auto directory = directory_bytes(file);
  if (!directory.has_value()) {
    return Error{ErrorCode::kInvalid, libtorch::kUnreadableZip};
  }
  if (*directory > kDirectoryBytesMax) {
    return Error{ErrorCode::kInvalid, "its zip directory is larger than any checkpoint's"};
  }
  const auto library = libtorch::load();
  if (!library.ok()) {
    return Error{library.error().code, library.error().message + kRemedy};
  }
  BoundedSource source(file, *directory);
  const auto zip = (*library)->open_zip(source);
  if (!zip.ok()) return zip.error();
  const auto pickle = read_data_pkl(file, **zip);
  if (!pickle.ok()) return pickle.error();
  const auto tensors = read_pickle(*pickle);
  if (!tensors.ok()) {
    return Error{tensors.error().code, tensors.error().message + kRemedy};
  }
  TensorEntries entries;
  std::map<std::string_view, Record> records;  // of the storages
  for (const PickledTensor& tensor : *tensors) {
    auto found = records.find(tensor.storage);
    if (found == records.end()) {
      const std::string name = "data/" + std::string(tensor.storage);
      const auto place = (*zip)->find(name);
      if (!place.ok()) return place.error();
      const auto record = locate(file, name, *place);
      if (!record.ok()) {
        return Error{record.error().code,
                     "tensor '" + tensor.name + "': " + record.error().message};
      }
      found = records.emplace(tensor.storage, *record).first;
    }
    auto entry = make_entry(file, tensor, found->second);
    if (!entry.ok()) {
      return Error{entry.error().code, "tensor '" + tensor.name + "': " + entry.error().message};
    }
    entries[tensor.name] = std::move(*entry);
  }
  return entries;
}

}  // namespace

Result<TensorEntries> read_pickled(const WeightsFile& file) {
  char magic[2] = {};
  const auto read = file.read(0, std::min<std::uint64_t>(file.size(), sizeof(magic)), magic);
  if (!read.ok()) return read.error();
  if (std::memcmp(magic, "PK", 2) != 0) {
    return Error{
        ErrorCode::kInvalid,
        file.path() +
            ": not in PyTorch's zip format (it was saved by a version before 1.6, or is no "
            "checkpoint)" +
            kRemedy};
  }
  auto entries = read_tensors(file);
  if (!entries.ok()) {
    return Error{entries.error().code, file.path() + ": " + entries.error().message};
  }
  return entries;
}

}  // namespace lmtp::model
