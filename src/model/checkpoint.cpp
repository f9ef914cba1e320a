// A checkpoint: the tensors of one file, or of the files that an index names.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "checkpoint_files.h"
#include "lmtp/base/json.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {

std::string list_names(const std::vector<std::string>& names) {
  constexpr std::size_t kNamesShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  }
  return text + (names.size() > kNamesShown ? ", ..." : "");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

namespace {

// Names of quantised tensors, for the message about missing or misshaped ones.
struct Quantisation {
  const char* name;  // instead of `weight`
  const char* kind;
};
constexpr Quantisation kQuantisations[] = {
    {"qweight", "GPTQ or AWQ"},        {"weight_packed", "compressed-tensors"},
    {"weight.absmax", "bitsandbytes"}, {"W_q", "HQQ"},
    {"gate_up_proj_blocks", "MXFP4"},
};
// A tensor of the first layer, and the embedding that stands beside the layers.
constexpr std::pair<std::string_view, std::string_view> kEmbeddings[] = {
    {"h.0.attn.c_attn.weight", "wte.weight"},
    {"layers.0.attention.query_key_value.weight", "embed_in.weight"},
    {"layers.0.self_attn.o_proj.weight", "embed_tokens.weight"},
    {"layers.0.self_attn.out_proj.weight", "embed_tokens.weight"},
};
// The index: from a tensor's name to its file.
using WeightMap = std::map<std::string, std::string>;
using OpenFile = std::function<Result<std::unique_ptr<WeightsFile>>(const std::string& path)>;

class Checkpoint : public TensorSource {
 public:
  explicit Checkpoint(std::string origin) : origin_(std::move(origin)) {}

  // Opens one file and adds its tensors.
  Result<void> add_file(const std::string& path, const OpenFile& open) {
    auto file = open(path);
    if (!file.ok()) return file.error();
    auto added = path.ends_with(".bin") ? read_pickled(**file) : read_safetensors(**file);
    if (!added.ok()) return added.error();
    for (auto& [name, entry] : *added) {
      const auto [at, is_new] = entries_.emplace(name, std::move(entry));
      if (!is_new) {
        return Error{ErrorCode::kInvalid,
                     path + ": tensor '" + name + "' is in " + at->second.file->path() + " too"};
      }
    }
    files_.push_back(std::move(*file));
    return {};
  }

  // Compares the index with the files. An index copied from a base model may name tensors that the
  // fine-tune dropped; if one is needed, it is reported as missing when requested.
  Result<void> check_index(const WeightMap& weight_map) const {
    for (const auto& [name, file] : weight_map) {
      const auto found = entries_.find(name);
      if (found == entries_.end() && is_ignorable_tensor(name, true)) continue;
      if (found == entries_.end() || !found->second.file->path().ends_with("/" + file)) {
        return Error{ErrorCode::kInvalid, origin_ + ": tensor '" + name + "' is not in " + file +
                                              ", where it says it is; fetch the folder again"};
      }
    }
    return {};
  }

  // safetensors keeps one of a tensor's names: where that is a tied head's, it gets the embedding's
  // in front of the layers. Not where there are several heads, or prefixes of layers.
  void name_embedding() {
    std::set<std::string> embeddings;
    std::vector<std::string> heads;
    for (const auto& [name, entry] : entries_) {
      for (const char* leaf :
           {"embed_tokens.weight", "wte.weight", "embed_in.weight", "tokens_embed.weight"}) {
        if (name.ends_with(leaf)) return;
      }
      if (name.ends_with("lm_head.weight") || name.ends_with("embed_out.weight") ||
          name.ends_with("output_projection.weight")) {
        heads.push_back(name);
      }
      if (name.find("vision") != std::string::npos) continue;
      for (const auto& [layer, leaf] : kEmbeddings) {
        if (name.ends_with(layer)) {
          embeddings.insert(name.substr(0, name.size() - layer.size()) + std::string(leaf));
        }
      }
    }
    if (heads.size() != 1 || embeddings.size() != 1) return;
    auto node = entries_.extract(heads.front());
    node.key() = *embeddings.begin();
    entries_.insert(std::move(node));
  }

  std::string origin() const override { return origin_; }

  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    result.reserve(entries_.size());
    for (const auto& [name, entry] : entries_) result.push_back(name);
    std::sort(result.begin(), result.end());
    return result;
  }

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    const auto found = entries_.find(spec.name);
    if (found == entries_.end()) {
      return Error{ErrorCode::kInvalid, origin_ + ": tensor '" + spec.name + "' is missing; " +
                                            what_is_there(spec.name)};
    }
    const TensorEntry& entry = found->second;
    const auto broken = [&](const std::string& what) {
      return Error{ErrorCode::kInvalid,
                   entry.file->path() + ": tensor '" + spec.name + "': " + what};
    };
    if (entry.shape != spec.shape) {
      return broken("its shape is " + shape_text(entry.shape) + ", and config.json asks for " +
                    shape_text(spec.shape) + quantisation(spec.name));
    }
    SourceTensor result;
    bool is_double = false;
    if (entry.type == "F32") {
      result.type = kernels::ElementType::kF32;
    } else if (entry.type == "F16") {
      result.type = kernels::ElementType::kF16;
    } else if (entry.type == "BF16") {
      result.type = kernels::ElementType::kBF16;
    } else if (entry.type == "F64") {
      is_double = true;  // rounded to float32
    } else {
      const char* kind = entry.type.starts_with("F8_") ? " (FP8 weights)" : "";
      return broken("its type is " + entry.type + kind + "; F64, F32, F16 and BF16 are supported" +
                    quantisation(spec.name));
    }
    const auto needed =
        static_cast<std::uint64_t>(spec.num_elements()) *
        (is_double ? sizeof(double)
                   : static_cast<std::uint64_t>(kernels::element_size(result.type)));
    if (entry.size != needed) {
      return broken("it has " + std::to_string(entry.size) + " bytes, and its shape needs " +
                    std::to_string(needed));
    }
    result.read = is_double ? rounded(reader_of(entry)) : reader_of(entry);
    return result;
  }

  std::optional<StoredTensor> stored(const std::string& name) const override {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return std::nullopt;
    const TensorEntry& entry = found->second;
    return StoredTensor{.name = name,
                        .path = entry.file->path(),
                        .type = entry.type,
                        .shape = entry.shape,
                        .read = reader_of(entry)};
  }

  Result<void> check_unchanged() const override {
    for (const auto& file : files_) {
      if (auto unchanged = file->check_unchanged(); !unchanged.ok()) return unchanged;
    }
    return {};
  }

 private:
  // Reads within the tensor alone: a file may give it fewer bytes than its shape needs.
  static TensorReader reader_of(const TensorEntry& entry) {
    return [&entry](std::uint64_t first, std::size_t count, void* to) -> Result<void> {
      if (first > entry.size || count > entry.size - first) {
        return Error{ErrorCode::kInvalid,
                     entry.file->path() + ": a tensor has fewer bytes than its shape needs"};
      }
      return entry.file->read(entry.begin + first, count, to);
    };
  }

  // Reads float64 as float32. REQUIRES: whole elements are asked for.
  static TensorReader rounded(TensorReader doubles) {
    return [doubles = std::move(doubles)](std::uint64_t first, std::size_t count,
                                          void* to) -> Result<void> {
      std::vector<double> values(count / sizeof(float));
      const auto read = doubles(2 * first, values.size() * sizeof(double), values.data());
      auto* out = static_cast<float*>(to);
      for (std::size_t i = 0; i < values.size(); ++i) out[i] = static_cast<float>(values[i]);
      return read;
    };
  }

  // "; the file has ...: a GPTQ checkpoint ..." if the tensor's module is quantised.
  std::string quantisation(const std::string& name) const {
    const std::string module = name.substr(0, name.rfind('.') + 1);
    for (const auto& [leaf, kind] : kQuantisations) {
      if (entries_.contains(module + leaf)) {
        return "; the file has '" + module + leaf + "': a " + kind +
               " checkpoint, of which config.json's quantization_config says nothing; serve the "
               "one that it was made from";
      }
    }
    return "";
  }

  // The error for a missing tensor.
  std::string what_is_there(const std::string& name) const {
    if (const std::string quantised = quantisation(name); !quantised.empty()) {
      return quantised.substr(2);
    }
    const std::string module = name.substr(0, name.rfind('.') + 1);
    std::vector<std::string> there = names();
    std::vector<std::string> beside = there;
    std::erase_if(beside, [&](const std::string& other) { return !other.starts_with(module); });
    return beside.empty() ? "the names there are like " + list_names(there)
                          : "of its module there is " + list_names(beside);
  }

  std::string origin_;
  std::vector<std::unique_ptr<WeightsFile>> files_;
  TensorEntries entries_;
};

// The same as in the module `hub`; Llama 3.1 405B's index has 0.1 MB.
constexpr std::uintmax_t kIndexBytesMax = std::uintmax_t{64} << 20;

// The parsed index.
Result<WeightMap> read_index(const std::string& index_path) {
  std::error_code code;
  if (std::filesystem::file_size(index_path, code) > kIndexBytesMax && !code) {
    return Error{ErrorCode::kInvalid, index_path + ": larger than an index can be"};
  }
  const auto root = read_json_object(index_path);
  const Json* map = root.ok() ? find_json(*root, "weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) {
    return Error{root.ok() ? ErrorCode::kInvalid : root.error().code,
                 index_path + ": not a JSON object with a weight_map"};
  }
  WeightMap result;
  for (const auto& [tensor, file] : map->items()) {
    const auto* name = file.get_ptr<const std::string*>();
    if (name == nullptr || name->empty() || name->find('/') != std::string::npos) {
      return Error{ErrorCode::kInvalid,
                   index_path + ": weight_map names a file that is not beside it"};
    }
    result[tensor] = *name;
  }
  if (result.empty()) {
    return Error{ErrorCode::kInvalid, index_path + ": its weight_map is empty"};
  }
  return result;
}

Result<std::unique_ptr<TensorSource>> open_single(const std::string& path, const OpenFile& open) {
  auto checkpoint = std::make_unique<Checkpoint>(path);
  if (const auto added = checkpoint->add_file(path, open); !added.ok()) return added.error();
  checkpoint->name_embedding();
  return std::unique_ptr<TensorSource>(std::move(checkpoint));
}

Result<std::unique_ptr<TensorSource>> open_sharded(const std::string& folder,
                                                   const std::string& index_path,
                                                   const OpenFile& open) {
  const auto weight_map = read_index(index_path);
  if (!weight_map.ok()) return weight_map.error();
  std::set<std::string> files;
  for (const auto& [name, file] : *weight_map) files.insert(file);
  auto checkpoint = std::make_unique<Checkpoint>(index_path);
  for (const std::string& file : files) {
    const std::string path = (std::filesystem::path(folder) / file).string();
    if (const auto added = checkpoint->add_file(path, open); !added.ok()) return added.error();
  }
  if (const auto checked = checkpoint->check_index(*weight_map); !checked.ok()) {
    return checked.error();
  }
  checkpoint->name_embedding();
  return std::unique_ptr<TensorSource>(std::move(checkpoint));
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& folder) {
  if (is_gguf(folder)) return open_gguf(folder);
  std::error_code code;
  for (const char* name : {"model.safetensors", "pytorch_model.bin"}) {
    const std::string single = folder + "/" + name;
    const std::string index = single + ".index.json";
    if (std::filesystem::exists(single, code)) return open_single(single, WeightsFile::open);
    if (std::filesystem::exists(index, code)) return open_sharded(folder, index, WeightsFile::open);
  }
  return Error{ErrorCode::kNotFound,
               folder +
                   ": no model.safetensors nor pytorch_model.bin (nor the index.json of either) in "
                   "this folder; other formats are not read"};
}

Result<std::unique_ptr<TensorSource>> open_headers(const std::string& folder,
                                                   const std::vector<WeightHeader>& headers) {
  const auto open = [&](const std::string& path) -> Result<std::unique_ptr<WeightsFile>> {
    for (const WeightHeader& header : headers) {
      if (path == folder + "/" + header.file) {
        return WeightsFile::from_prefix(path, header.bytes, header.file_size);
      }
    }
    return Error{ErrorCode::kInvalid, path + ": its header is not there"};
  };
  const std::string single = folder + "/model.safetensors";
  const bool is_single = headers.size() == 1 && headers.front().file == "model.safetensors";
  return is_single ? open_single(single, open) : open_sharded(folder, single + ".index.json", open);
}

}  // namespace lmtp::model
