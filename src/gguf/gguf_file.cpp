#include "lmtp/gguf/gguf_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "tensor_types.h"

namespace lmtp::gguf {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kVersions[] = {2, 3};
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kAlignmentMax = 1 << 20;
constexpr std::uint64_t kNameBytesMax = 255;
constexpr std::uint32_t kDimensionsMax = 4;
constexpr std::uint64_t kReadBytes = std::uint64_t{1} << 20;
// The least that a key with its value takes, and a tensor's description.
constexpr std::uint64_t kKeyBytesMin = 8 + 4 + 1;
constexpr std::uint64_t kTensorBytesMin = 8 + 4 + 8 + 4 + 8;

// The kinds of metadata, by their numbers in the file.
enum Kind : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
constexpr const char* kKindNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                      "bool", "string", "array", "u64", "i64", "f64"};

// Bytes of a value; 0: a kind of values without a fixed size, or none at all.
std::uint64_t size_of(std::uint32_t kind) {
  switch (kind) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    case kUint64:
    case kInt64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

template <typename T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

// Reads the header from the front. Keeps the first error, after which nothing more is read.
class GgufFile::Parser {
 public:
  Parser(GgufFile& file, const ReadAt& read) : file_(file), read_(read) {}

  Result<void> run() {
    std::uint64_t num_tensors = 0;
    std::uint64_t num_keys = 0;
    if (read_beginning(num_tensors, num_keys)) {
      for (std::uint64_t i = 0; i < num_keys && !error_; ++i) read_key(i);
      read_alignment();
      for (std::uint64_t i = 0; i < num_tensors && !error_; ++i) read_tensor(i);
      place_tensors();
    }
    file_.header_.shrink_to_fit();
    return error_ ? Result<void>(*error_) : Result<void>();
  }

 private:
  bool refuse(const std::string& what) {
    if (!error_) error_ = Error{ErrorCode::kInvalid, file_.origin_ + ": " + what};
    return false;
  }

  // Makes the next `count` bytes available.
  bool need(std::uint64_t count, const std::string& what) {
    if (error_) return false;
    const std::uint64_t have = file_.header_.size();
    if (count > file_.file_bytes_ || at_ > file_.file_bytes_ - count) {
      return refuse(what + " lies beyond the end of the file: the file is truncated or corrupt");
    }
    const std::uint64_t end = at_ + count;
    if (end <= have) return true;
    if (end > kHeaderBytesMax) {
      return refuse(what + ": the header is larger than " + std::to_string(kHeaderBytesMax >> 20) +
                    " MiB, which no model's is");
    }
    const std::uint64_t wanted =
        std::min({std::max(end, have + kReadBytes), file_.file_bytes_, kHeaderBytesMax});
    file_.header_.resize(wanted);
    if (!read_(have, wanted - have, file_.header_.data() + have)) {
      return refuse("cannot be read, or was truncated meanwhile");
    }
    return true;
  }

  template <typename T>
  bool take(T& value, const std::string& what) {
    if (!need(sizeof(T), what)) return false;
    value = load<T>(file_.header_.data() + at_);
    at_ += sizeof(T);
    return true;
  }

  bool take_text(std::string& text, const std::string& what) {
    std::uint64_t size = 0;
    if (!take(size, what) || !need(size, what)) return false;
    text.assign(file_.header_, at_, size);
    at_ += size;
    return true;
  }

  bool read_beginning(std::uint64_t& num_tensors, std::uint64_t& num_keys) {
    constexpr std::string_view kMagic = "GGUF";
    if (file_.file_bytes_ < kMagic.size()) return refuse("not a GGUF file: it is too short");
    if (!need(kMagic.size(), "its beginning")) return false;
    if (!file_.header_.starts_with(kMagic)) {
      return refuse("not a GGUF file: it does not begin with 'GGUF'");
    }
    at_ = kMagic.size();
    std::uint32_t version = 0;
    if (!take(version, "the version")) return false;
    if ((version & 0xFFFF) == 0 && version != 0) {
      return refuse("is big endian; only little endian files are read");
    }
    if (std::find(std::begin(kVersions), std::end(kVersions), version) == std::end(kVersions)) {
      return refuse("is of version " + std::to_string(version) +
                    ", and versions 2 and 3 are read; convert the model again");
    }
    if (!take(num_tensors, "the number of tensors") || !take(num_keys, "the number of keys")) {
      return false;
    }
    const std::uint64_t left = file_.file_bytes_ - at_;
    const auto fits = [&](std::uint64_t count, std::uint64_t max, std::uint64_t bytes_min,
                          const char* what) {
      return (count <= max && count <= left / bytes_min) ||
             refuse("claims " + std::to_string(count) + " " + what +
                    ", more than fit into the file, or than any model has (" + std::to_string(max) +
                    ")");
    };
    return fits(num_tensors, kTensorsMax, kTensorBytesMin, "tensors") &&
           fits(num_keys, kKeysMax, kKeyBytesMin, "keys");
  }

  void read_key(std::uint64_t index) {
    const std::string number = "key " + std::to_string(index);
    std::string key;
    if (!take_text(key, number)) return;
    if (!is_plain_name(key)) {
      refuse(number + ": its name is not one of up to " + std::to_string(kNameBytesMax) +
             " printable characters");
      return;
    }
    const std::string what = "'" + key + "'";
    Entry entry;
    if (!take(entry.type, what)) return;
    if (entry.type == kArray) {
      entry.is_array = true;
      if (!take(entry.type, what) || !take(entry.count, what)) return;
    }
    entry.at = at_;
    if (skip_values(entry, what) && !file_.entries_.emplace(key, entry).second) {
      refuse(what + " is there twice");
    }
  }

  bool skip_values(const Entry& entry, const std::string& what) {
    if (entry.type == kString) {
      // Each is checked by itself: a count that is too high ends at the end of the file.
      for (std::uint64_t i = 0; i < entry.count; ++i) {
        std::uint64_t size = 0;
        if (!take(size, what) || !need(size, what)) return false;
        at_ += size;
      }
      return true;
    }
    const std::uint64_t size = size_of(entry.type);
    if (size == 0) {
      return refuse(what + ": its type is " + std::to_string(entry.type) +
                    (entry.type == kArray ? ", an array of arrays, and such are not read"
                                          : ", which GGUF has not"));
    }
    if (entry.count > file_.file_bytes_ / size) {
      return refuse(what + " claims " + std::to_string(entry.count) +
                    " elements, more than fit into the file");
    }
    if (!need(entry.count * size, what)) return false;
    at_ += entry.count * size;
    return true;
  }

  void read_alignment() {
    if (error_ || !file_.has("general.alignment")) return;
    const auto value = file_.integer("general.alignment", error_).value_or(0);
    if (error_) return;
    if (value <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(value)) ||
        static_cast<std::uint64_t>(value) > kAlignmentMax) {
      refuse("'general.alignment' is not a power of two of at most " +
             std::to_string(kAlignmentMax));
      return;
    }
    alignment_ = static_cast<std::uint64_t>(value);
  }

  bool read_tensor(std::uint64_t index) {
    const std::string number = "tensor " + std::to_string(index);
    Tensor tensor;
    if (!take_text(tensor.name, number)) return false;
    if (!is_plain_name(tensor.name)) {
      return refuse(number + ": its name is not one of up to " + std::to_string(kNameBytesMax) +
                    " printable characters");
    }
    const std::string what = "tensor '" + tensor.name + "'";
    if (!read_shape(tensor, what)) return false;
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
    if (!take(type, what) || !take(offset, what)) return false;
    tensor.type = find_tensor_type(type);
    if (tensor.type == nullptr || !can_dequantize(*tensor.type)) {
      return refuse(what + type_refusal(type));
    }
    if (tensor.shape.back() % tensor.type->block_elements != 0) {
      return refuse(what + ": its rows of " + std::to_string(tensor.shape.back()) +
                    " elements are not whole blocks of " +
                    std::to_string(tensor.type->block_elements) + ", as " +
                    std::string(tensor.type->name) + " has them");
    }
    if (offset % alignment_ != 0) {
      return refuse(what + ": its offset " + std::to_string(offset) + " is not a multiple of " +
                    std::to_string(alignment_) + ", the file's alignment");
    }
    tensor.begin = offset;
    tensor.num_bytes =
        static_cast<std::uint64_t>(tensor.num_elements() / tensor.type->block_elements) *
        static_cast<std::uint64_t>(tensor.type->block_bytes);
    if (!file_.tensors_by_name_.emplace(tensor.name, file_.tensors_.size()).second) {
      return refuse(what + " is there twice");
    }
    file_.tensors_.push_back(std::move(tensor));
    return true;
  }

  bool read_shape(Tensor& tensor, const std::string& what) {
    std::uint32_t num_dimensions = 0;
    if (!take(num_dimensions, what)) return false;
    if (num_dimensions == 0 || num_dimensions > kDimensionsMax) {
      return refuse(what + ": has " + std::to_string(num_dimensions) + " dimensions; 1 to " +
                    std::to_string(kDimensionsMax) + " are possible");
    }
    // Elements have up to eight bytes, and there is a factor of two for blocks' rounding.
    std::uint64_t left = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / 16;
    for (std::uint32_t i = 0; i < num_dimensions; ++i) {
      std::uint64_t size = 0;
      if (!take(size, what)) return false;
      if (size == 0 || size > left) {
        return refuse(what + ": its dimension of " + std::to_string(size) +
                      " is not possible in a file of " + std::to_string(file_.file_bytes_) +
                      " bytes");
      }
      left /= size;
      tensor.shape.push_back(static_cast<std::int64_t>(size));
    }
    std::ranges::reverse(tensor.shape);
    return true;
  }

  // Offsets count from the end of the header.
  void place_tensors() {
    if (error_) return;
    const std::uint64_t data = (at_ + alignment_ - 1) / alignment_ * alignment_;
    std::vector<const Tensor*> in_order;
    for (Tensor& tensor : file_.tensors_) {
      if (data > file_.file_bytes_ || tensor.begin > file_.file_bytes_ - data ||
          tensor.num_bytes > file_.file_bytes_ - data - tensor.begin) {
        refuse("tensor '" + tensor.name + "': its " + std::to_string(tensor.num_bytes) +
               " bytes lie beyond the end of the file: the file is truncated or corrupt");
        return;
      }
      tensor.begin += data;
      in_order.push_back(&tensor);
    }
    std::ranges::sort(in_order, {}, [](const Tensor* tensor) { return tensor->begin; });
    for (std::size_t i = 1; i < in_order.size(); ++i) {
      if (in_order[i - 1]->begin + in_order[i - 1]->num_bytes > in_order[i]->begin) {
        refuse("tensors '" + in_order[i - 1]->name + "' and '" + in_order[i]->name +
               "' overlap: the file is corrupt");
        return;
      }
    }
    file_.header_.resize(at_);
  }

  GgufFile& file_;
  const ReadAt& read_;
  std::uint64_t at_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
  std::optional<Error> error_;
};

std::int64_t Tensor::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  std::error_code error;
  const auto file_bytes = std::filesystem::file_size(path, error);
  if (error) return Error{errno_code(error.value()), path + ": " + error.message()};
  std::ifstream file(path, std::ios::binary);
  return parse(path, file_bytes, [&](std::uint64_t first, std::size_t count, char* to) {
    file.seekg(static_cast<std::streamoff>(first));
    return static_cast<bool>(file.read(to, static_cast<std::streamsize>(count)));
  });
}

Result<GgufFile> GgufFile::parse(const std::string& origin, std::uint64_t file_bytes,
                                 const ReadAt& read) {
  GgufFile file;
  file.origin_ = origin;
  file.file_bytes_ = file_bytes;
  if (const auto done = Parser(file, read).run(); !done) return done.error();
  return file;
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> result;
  for (const auto& [key, entry] : entries_) result.push_back(key);
  return result;
}

const GgufFile::Entry* GgufFile::find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() ? &found->second : nullptr;
}

std::nullopt_t GgufFile::mistyped(std::string_view key, const char* needed,
                                  std::optional<Error>& error) const {
  const Entry& entry = *find(key);
  if (!error) {
    error =
        Error{ErrorCode::kInvalid, origin_ + ": '" + std::string(key) + "' has the type " +
                                       (entry.is_array ? "array of " : "") +
                                       kKindNames[entry.type] + ", and " + needed + " is needed"};
  }
  return std::nullopt;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key,
                                              std::optional<Error>& error) const {
  constexpr const char* kNeeded = "a whole number of at most 63 bits";
  constexpr double kExactMax = 1LL << 53;
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  const auto value = entry->is_array ? std::nullopt : number_at(entry->type, entry->at);
  if (!value || entry->type == kBool) return mistyped(key, kNeeded, error);
  const char* from = header_.data() + entry->at;
  if (entry->type == kInt64 || (entry->type == kUint64 && load<std::int64_t>(from) >= 0)) {
    return load<std::int64_t>(from);
  }
  if (std::trunc(*value) != *value || std::abs(*value) > kExactMax) {
    return mistyped(key, kNeeded, error);
  }
  return static_cast<std::int64_t>(*value);
}

std::optional<double> GgufFile::number(std::string_view key, std::optional<Error>& error) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  const auto value =
      entry->is_array || entry->type == kBool ? std::nullopt : number_at(entry->type, entry->at);
  return value ? value : mistyped(key, "a number", error);
}

std::optional<bool> GgufFile::boolean(std::string_view key, std::optional<Error>& error) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  const double value = entry->is_array ? -1.0 : number_at(entry->type, entry->at).value_or(-1.0);
  if (value < 0.0 || (entry->type != kBool && value != 0.0 && value != 1.0)) {
    return mistyped(key, "a bool", error);
  }
  return value != 0.0;
}

std::optional<std::string_view> GgufFile::text(std::string_view key,
                                               std::optional<Error>& error) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->is_array || entry->type != kString) return mistyped(key, "a string", error);
  const auto size = load<std::uint64_t>(header_.data() + entry->at);
  return std::string_view(header_).substr(entry->at + sizeof(size), size);
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key,
                                                             std::optional<Error>& error) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  std::vector<std::string_view> result;
  if (entry->is_array && entry->count == 0) return result;
  if (!entry->is_array || entry->type != kString) return mistyped(key, "an array of string", error);
  result.reserve(entry->count);
  std::size_t at = entry->at;
  for (std::uint64_t i = 0; i < entry->count; ++i) {
    const auto size = load<std::uint64_t>(header_.data() + at);
    at += sizeof(size);
    result.push_back(std::string_view(header_).substr(at, size));
    at += size;
  }
  return result;
}

std::optional<std::vector<double>> GgufFile::numbers(std::string_view key,
                                                     std::optional<Error>& error) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  std::vector<double> result;
  if (entry->is_array && entry->count == 0) return result;
  if (!entry->is_array || entry->type == kString) {
    return mistyped(key, "an array of numbers", error);
  }
  result.reserve(entry->count);
  const std::uint64_t size = size_of(entry->type);
  for (std::uint64_t i = 0; i < entry->count; ++i) {
    result.push_back(*number_at(entry->type, entry->at + i * size));
  }
  return result;
}

std::optional<double> GgufFile::number_at(std::uint32_t type, std::size_t at) const {
  const char* from = header_.data() + at;
  switch (type) {
    case kUint8:
    case kBool:
      return static_cast<double>(load<std::uint8_t>(from));
    case kInt8:
      return static_cast<double>(load<std::int8_t>(from));
    case kUint16:
      return static_cast<double>(load<std::uint16_t>(from));
    case kInt16:
      return static_cast<double>(load<std::int16_t>(from));
    case kUint32:
      return static_cast<double>(load<std::uint32_t>(from));
    case kInt32:
      return static_cast<double>(load<std::int32_t>(from));
    case kFloat32:
      return static_cast<double>(load<float>(from));
    case kUint64:
      return static_cast<double>(load<std::uint64_t>(from));
    case kInt64:
      return static_cast<double>(load<std::int64_t>(from));
    case kFloat64:
      return load<double>(from);
    default:
      return std::nullopt;
  }
}

const Tensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensors_by_name_.find(name);
  return found == tensors_by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace lmtp::gguf
