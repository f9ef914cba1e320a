// Checkpoints that torch.save wrote: a zip of data.pkl and one uncompressed record for each
// storage, so that tensors can be read in place.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint_files.h"
#include "pickle_reader.h"
#include "zip_directory.h"

namespace lmtp::model {
namespace {

// Limit of data.pkl: some hundred bytes a tensor.
constexpr std::uint64_t kPickleBytesMax = std::uint64_t{16} << 20;

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
                               const ZipDirectory::Record& record) {
  const std::uint64_t item = element_bytes(tensor.type);
  const auto count = num_elements(tensor);
  const auto offset = static_cast<std::uint64_t>(tensor.offset);
  const std::uint64_t capacity = record.size / item;
  if (!count.has_value() || offset > capacity || *count > capacity - offset) {
    return Error{ErrorCode::kInvalid,
                 "its data lie beyond the end of its storage: the file is corrupt"};
  }
  if (*count > 0 && !is_contiguous(tensor)) {
    return Error{ErrorCode::kInvalid,
                 std::string("it is not contiguous: its elements do not follow one another") +
                     kConvertRemedy};
  }
  return TensorEntry{.file = &file,
                     .type = tensor.type.empty() ? "of another kind" : std::string(tensor.type),
                     .shape = tensor.shape,
                     .begin = record.begin + offset * item,
                     .size = *count * item};
}

// The error says that the file's byte order is not this machine's.
Result<void> check_byte_order(const WeightsFile& file, const ZipDirectory& zip) {
  if (!zip.has("byteorder")) return {};
  const auto record = zip.find(file, "byteorder");
  if (!record.ok()) return record.error();
  char order[3] = {};
  if (record->size >= sizeof(order)) {
    if (const auto read = file.read(record->begin, sizeof(order), order); !read.ok()) {
      return read.error();
    }
  }
  if (record->size < sizeof(order) || std::memcmp(order, "big", sizeof(order)) == 0) {
    return Error{ErrorCode::kInvalid,
                 std::string("it was saved on a machine of another byte order") + kConvertRemedy};
  }
  return {};
}

Result<std::string> read_data_pkl(const WeightsFile& file, const ZipDirectory& zip) {
  const auto record = zip.find(file, "data.pkl");
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
  const auto zip = ZipDirectory::read(file);
  if (!zip.ok()) return zip.error();
  const auto pickle = read_data_pkl(file, *zip);
  if (!pickle.ok()) return pickle.error();
  const auto tensors = read_pickle(*pickle);
  if (!tensors.ok()) {
    return Error{tensors.error().code, tensors.error().message + kConvertRemedy};
  }
  TensorEntries entries;
  std::map<std::string_view, ZipDirectory::Record> records;  // of the storages
  for (const PickledTensor& tensor : *tensors) {
    const auto fail = [&](const Error& error) {
      return Error{error.code, "tensor " + shown(tensor.name) + ": " + error.message};
    };
    auto found = records.find(tensor.storage);
    if (found == records.end()) {
      const auto record = zip->find(file, "data/" + std::string(tensor.storage));
      if (!record.ok()) return fail(record.error());
      found = records.emplace(tensor.storage, *record).first;
    }
    auto entry = make_entry(file, tensor, found->second);
    if (!entry.ok()) return fail(entry.error());
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
            kConvertRemedy};
  }
  auto entries = read_tensors(file);
  // What a read says names the file by itself.
  if (!entries.ok() && entries.error().code == ErrorCode::kInvalid) {
    return Error{entries.error().code, file.path() + ": " + entries.error().message};
  }
  return entries;
}

}  // namespace lmtp::model
