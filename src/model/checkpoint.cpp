// A checkpoint: the tensors of one file, or of those that an index names.
#include <simdjson.h>

#include <filesystem>
#include <map>
#include <utility>

#include "checkpoint_files.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

class Checkpoint : public TensorSource {
 public:
  // Opens one file and adds its tensors.
  Result<void> add_file(const std::string& path) {
    auto file = WeightsFile::open(path);
    if (!file.ok()) {
      return file.error();
    }
    auto added =
        path.ends_with(".bin") ? add_pickled(**file, entries_) : add_safetensors(**file, entries_);
    if (added.ok()) {
      files_.push_back(std::move(*file));
    }
    return added;
  }

  void set_origin(std::string origin) { origin_ = std::move(origin); }

  bool has(const std::string& name) const override { return entries_.contains(name); }

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    const auto found = entries_.find(spec.name);
    if (found == entries_.end()) {
      return Error{origin_ + ": tensor '" + spec.name + "' is missing"};
    }
    const TensorEntry& entry = found->second;
    const auto broken = [&](const std::string& what) {
      return Error{entry.file->path() + ": tensor '" + spec.name + "': " + what};
    };
    if (entry.shape != spec.shape) {
      return broken("its shape is " + shape_text(entry.shape) + ", and config.json asks for " +
                    shape_text(spec.shape));
    }
    SourceTensor result;
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
    result.read = [&entry](std::uint64_t first, std::size_t count, void* to) {
      return entry.file->read(entry.begin + first, count, to);
    };
    return result;
  }

  Result<void> check_unchanged() const override {
    for (const auto& file : files_) {
      if (auto unchanged = file->check_unchanged(); !unchanged.ok()) {
        return unchanged;
      }
    }
    return {};
  }

 private:
  std::string origin_;
  std::vector<std::unique_ptr<WeightsFile>> files_;
  TensorEntries entries_;
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

// Where a folder's tensors are: a file or an index, in order of preference.
constexpr const char* kSingleFiles[] = {"model.safetensors", "pytorch_model.bin"};

}  // namespace

Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& folder) {
  auto checkpoint = std::make_unique<Checkpoint>();
  std::vector<std::string> paths;
  std::error_code code;
  for (const char* name : kSingleFiles) {
    const std::string single = folder + "/" + name;
    const std::string index = single + ".index.json";
    if (std::filesystem::exists(single, code)) {
      checkpoint->set_origin(single);
      paths = {single};
    } else if (std::filesystem::exists(index, code)) {
      auto files = indexed_files(folder, index);
      if (!files.ok()) {
        return files.error();
      }
      checkpoint->set_origin(index);
      paths = std::move(*files);
    }
    if (!paths.empty()) {
      break;
    }
  }
  if (paths.empty()) {
    return Error{folder +
                 ": no model.safetensors nor pytorch_model.bin (nor the index.json of either) in "
                 "this folder; other formats are not read"};
  }
  for (const std::string& path : paths) {
    if (const Result<void> added = checkpoint->add_file(path); !added.ok()) {
      return added.error();
    }
  }
  return std::unique_ptr<TensorSource>(std::move(checkpoint));
}

}  // namespace lmtp::model
