// Checkpoints in the safetensors format: eight bytes of header length (little endian), a JSON
// header {name: {dtype, shape, data_offsets}}, then the data.
// https://github.com/huggingface/safetensors
#include <fcntl.h>
#include <simdjson.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <utility>

#include "config_reader.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {
namespace {

// The format's own limit of a header.
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;
constexpr std::size_t kDimensionsMax = 8;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

// A file mapped for reading. Owner: the Checkpoint.
class MappedFile {
 public:
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      return Error{path + ": " + std::strerror(errno)};
    }
    struct stat status = {};
    const bool known = fstat(descriptor, &status) == 0;
    const auto size = static_cast<std::size_t>(status.st_size);
    void* data =
        known && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
    ::close(descriptor);
    if (data == MAP_FAILED) {
      return Error{path + ": empty, or cannot be mapped"};
    }
    return std::unique_ptr<MappedFile>(new MappedFile(data, size));
  }
  ~MappedFile() { munmap(data_, size_); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const unsigned char* data() const { return static_cast<const unsigned char*>(data_); }
  std::uint64_t size() const { return size_; }

 private:
  MappedFile(void* data, std::size_t size) : data_(data), size_(size) {}

  void* data_;
  std::size_t size_;
};

struct Entry {
  const MappedFile* file = nullptr;
  std::string path;  // of the file, for errors
  std::string type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in the file
  std::uint64_t size = 0;   // bytes
};

// One entry of the header; `data_begin` is where the data start in the file.
Result<Entry> parse_entry(const simdjson::dom::element& element, const std::string& name,
                          const std::string& path, const MappedFile& file,
                          std::uint64_t data_begin) {
  const auto broken = [&](const char* what) {
    return Error{path + ": header: tensor '" + name + "': " + what};
  };
  Entry entry;
  entry.file = &file;
  entry.path = path;
  std::string_view type;
  simdjson::dom::array shape;
  simdjson::dom::array offsets;
  if (element["dtype"].get(type) != simdjson::SUCCESS ||
      element["shape"].get(shape) != simdjson::SUCCESS ||
      element["data_offsets"].get(offsets) != simdjson::SUCCESS || offsets.size() != 2) {
    return broken("dtype, shape or data_offsets is missing");
  }
  entry.type = type;
  for (const simdjson::dom::element dimension : shape) {
    std::int64_t size = 0;
    if (dimension.get(size) != simdjson::SUCCESS || size < 0 ||
        entry.shape.size() == kDimensionsMax) {
      return broken("shape is not a list of sizes");
    }
    entry.shape.push_back(size);
  }
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (offsets.at(0).get(begin) != simdjson::SUCCESS ||
      offsets.at(1).get(end) != simdjson::SUCCESS || begin > end) {
    return broken("data_offsets are not two rising numbers");
  }
  if (end > file.size() - data_begin) {
    return broken("its data lie beyond the end of the file: the file is truncated");
  }
  entry.begin = data_begin + begin;
  entry.size = end - begin;
  return entry;
}

class Checkpoint : public TensorSource {
 public:
  // Maps one file and adds its tensors.
  Result<void> add_file(const std::string& path) {
    auto file = MappedFile::open(path);
    if (!file.ok()) {
      return file.error();
    }
    const MappedFile& mapped = **file;
    std::uint64_t header_bytes = 0;
    if (mapped.size() < sizeof(header_bytes)) {
      return Error{path + ": not a safetensors file: shorter than its header"};
    }
    std::memcpy(&header_bytes, mapped.data(), sizeof(header_bytes));
    if (header_bytes > kHeaderBytesMax || header_bytes > mapped.size() - sizeof(header_bytes)) {
      return Error{path + ": not a safetensors file, or truncated: its header claims " +
                   std::to_string(header_bytes) + " bytes"};
    }
    const std::string_view text(reinterpret_cast<const char*>(mapped.data()) + sizeof(header_bytes),
                                header_bytes);
    simdjson::dom::parser parser;
    const simdjson::padded_string padded(text);
    simdjson::dom::object header;
    if (parser.parse(padded).get(header) != simdjson::SUCCESS) {
      return Error{path + ": the header is not a JSON object: the file is corrupt"};
    }
    for (const auto field : header) {
      const std::string name(field.key);
      if (name == "__metadata__") {
        continue;
      }
      auto entry =
          parse_entry(field.value, name, path, mapped, sizeof(header_bytes) + header_bytes);
      if (!entry.ok()) {
        return entry.error();
      }
      entries_[name] = std::move(*entry);
    }
    files_.push_back(std::move(*file));
    return {};
  }

  void set_origin(std::string origin) { origin_ = std::move(origin); }

  bool has(const std::string& name) const override { return entries_.contains(name); }

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    const auto found = entries_.find(spec.name);
    if (found == entries_.end()) {
      return Error{origin_ + ": tensor '" + spec.name + "' is missing"};
    }
    const Entry& entry = found->second;
    const auto broken = [&](const std::string& what) {
      return Error{entry.path + ": tensor '" + spec.name + "': " + what};
    };
    if (entry.shape != spec.shape) {
      return broken("its shape is " + shape_text(entry.shape) + ", and config.json asks for " +
                    shape_text(spec.shape));
    }
    SourceTensor result{.data = entry.file->data() + entry.begin};
    if (entry.type == "F32") {
      result.type = kernels::ElementType::kF32;
    } else if (entry.type == "F16") {
      result.type = kernels::ElementType::kF16;
    } else if (entry.type == "BF16") {
      result.type = kernels::ElementType::kBF16;
    } else {
      return broken("its type is " + entry.type + "; F32, F16 and BF16 are supported");
    }
    const auto needed = static_cast<std::uint64_t>(spec.num_elements()) *
                        static_cast<std::uint64_t>(kernels::element_size(result.type));
    if (entry.size != needed) {
      return broken("it has " + std::to_string(entry.size) + " bytes, and its shape needs " +
                    std::to_string(needed));
    }
    return result;
  }

  void release(const TensorSpec& spec) override {
    // The pages have been copied: they need not stay with this process.
    const Entry& entry = entries_.at(spec.name);
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(entry.file->data() + entry.begin);
    const std::uintptr_t first = (begin + page - 1) / page * page;
    const std::uintptr_t last = (begin + entry.size) / page * page;
    if (first < last) {
      (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
    }
  }

 private:
  std::string origin_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::unordered_map<std::string, Entry> entries_;
};

// The files that an index names, each once, in order of name.
Result<std::vector<std::string>> indexed_files(const std::string& folder,
                                               const std::string& index_path) {
  auto text = simdjson::padded_string::load(index_path);
  simdjson::dom::parser parser;
  simdjson::dom::object map;
  if (text.error() != simdjson::SUCCESS ||
      parser.parse(text.value())["weight_map"].get(map) != simdjson::SUCCESS) {
    return Error{index_path + ": not a JSON object with a weight_map"};
  }
  std::map<std::string, bool> names;
  for (const auto field : map) {
    std::string_view name;
    if (field.value.get(name) != simdjson::SUCCESS || name.empty() ||
        name.find('/') != std::string_view::npos) {
      return Error{index_path + ": weight_map names a file that is not beside it"};
    }
    names[std::string(name)] = true;
  }
  std::vector<std::string> paths;
  paths.reserve(names.size());
  for (const auto& [name, used] : names) {
    paths.push_back((std::filesystem::path(folder) / name).string());
  }
  return paths;
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& folder) {
  auto checkpoint = std::make_unique<Checkpoint>();
  const std::string single = folder + "/model.safetensors";
  const std::string index = single + ".index.json";
  std::vector<std::string> paths = {single};
  std::error_code code;
  checkpoint->set_origin(single);
  if (!std::filesystem::exists(single, code)) {
    if (!std::filesystem::exists(index, code)) {
      return Error{folder +
                   ": no model.safetensors (nor model.safetensors.index.json) in this "
                   "folder; other formats are not read"};
    }
    auto files = indexed_files(folder, index);
    if (!files.ok()) {
      return files.error();
    }
    paths = std::move(*files);
    checkpoint->set_origin(index);
  }
  for (const std::string& path : paths) {
    if (const Result<void> added = checkpoint->add_file(path); !added.ok()) {
      return added.error();
    }
  }
  return std::unique_ptr<TensorSource>(std::move(checkpoint));
}

}  // namespace lmtp::model
