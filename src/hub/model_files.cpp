#include "model_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "blob_hash.h"
#include "lmtp/base/json.h"
#include "local_model.h"

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNameBytesMax = 255;
constexpr std::size_t kCommitDigits = 40;

constexpr std::array kTokenizerFiles = {
    "config.json",         "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "vocab.json",          "merges.txt",     "added_tokens.json",     "tokenizer.model",
    "chat_template.jinja", "tekken.json",    "spiece.model",          "hf_quant_config.json",
};
constexpr std::string_view kTiktoken = ".tiktoken";  // "qwen.tiktoken"
constexpr int kTiktokenFilesMax = 4;
constexpr std::string_view kTemplates = "additional_chat_templates/";
constexpr int kTemplatesMax = 16;
constexpr int kModulesMax = 16;

// In the loader's order of preference.
struct WeightForm {
  const char* name;
  bool is_index;
};
constexpr std::array kWeightForms = {
    WeightForm{"model.safetensors", false},
    WeightForm{"model.safetensors.index.json", true},
    WeightForm{"pytorch_model.bin", false},
    WeightForm{"pytorch_model.bin.index.json", true},
};

// Unsupported formats of weights, by file name suffix.
struct OtherForm {
  const char* ending;
  const char* name;
};
constexpr std::array kOtherForms = {
    OtherForm{".gguf", "GGUF"},
    OtherForm{".onnx", "ONNX"},
    OtherForm{".h5", "TensorFlow"},
    OtherForm{".msgpack", "Flax"},
    OtherForm{"adapter_model.safetensors", "an adapter without its base model"},
    OtherForm{"adapter_model.bin", "an adapter without its base model"},
    OtherForm{".safetensors", "safetensors under other names"},
    OtherForm{".bin", "PyTorch files under other names"},
    OtherForm{".pth", "PyTorch files under other names"},
};

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

std::string shown(std::string_view name) {
  std::string text(name.substr(0, kNameBytesMax));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

// A path inside a repository: relative, without "..".
bool is_safe_path(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.find('\\') != std::string_view::npos ||
      !is_printable(path)) {
    return false;
  }
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kNameBytesMax) return false;
    begin = end + 1;
  }
  return true;
}

std::string other_forms_in(const Listing& listing) {
  std::string found;
  for (const OtherForm& form : kOtherForms) {
    const bool any =
        std::any_of(listing.files.begin(), listing.files.end(),
                    [&form](const std::string& file) { return file.ends_with(form.ending); });
    if (any && found.find(form.name) == std::string::npos) {
      found += (found.empty() ? "" : ", ") + std::string(form.name);
    }
  }
  return found;
}

std::string missing_weights(const fs::path& folder) {
  for (const WeightForm& form : kWeightForms) {
    const fs::path file = folder / form.name;
    if (!is_file(file)) continue;
    if (!form.is_index) return "";
    const auto shards = read_index(file.string());
    if (!shards) return shards.error().message;
    for (const std::string& shard : *shards) {
      if (!is_file(folder / shard)) return shard + " (which " + form.name + " names)";
    }
    return "";
  }
  return "model.safetensors";
}

// Whether `name` is a printable file name without folders, not hidden and not "..".
bool is_plain_file_name(std::string_view name) {
  return is_safe_path(name) && name.find('/') == std::string_view::npos && name.front() != '.';
}

// sentence-transformers' files, its modules' "1_Pooling/config.json" among them.
bool is_of_embeddings(std::string_view file) {
  if (file == "modules.json" || file == "config_sentence_transformers.json" ||
      file == "sentence_bert_config.json") {
    return true;
  }
  const std::size_t slash = file.find('/');
  return slash != std::string_view::npos && file.substr(slash) == "/config.json" && slash > 2 &&
         file[0] >= '0' && file[0] <= '9' && file[1] == '_';
}

}  // namespace

bool Listing::has(std::string_view file) const {
  return std::find(files.begin(), files.end(), file) != files.end();
}

Result<Listing> parse_listing(std::string_view text) {
  const auto root = parse_json_object(text, "");
  if (!root) return Error{ErrorCode::kInvalid, "it is no JSON object"};
  Listing listing;
  const std::string* commit = find_json_text(*root, "sha");
  if (commit == nullptr || !is_hex(*commit, kCommitDigits)) {
    return Error{ErrorCode::kInvalid, "it names no commit ('sha')"};
  }
  listing.commit = *commit;
  const Json* siblings = find_json(*root, "siblings");
  if (siblings == nullptr || !siblings->is_array()) {
    return Error{ErrorCode::kInvalid, "it names no files ('siblings')"};
  }
  for (const Json& sibling : *siblings) {
    const std::string* name = find_json_text(sibling, "rfilename");
    if (name == nullptr) {
      return Error{ErrorCode::kInvalid, "a file in it has no name ('rfilename')"};
    }
    if (!is_safe_path(*name)) {
      return Error{ErrorCode::kInvalid,
                   "the name '" + shown(*name) + "' in it leads out of the repository"};
    }
    if (listing.files.size() >= kListedFilesMax) {
      return Error{ErrorCode::kInvalid,
                   "it names more than " + std::to_string(kListedFilesMax) + " files"};
    }
    listing.files.push_back(*name);
  }
  return listing;
}

std::vector<std::string> optional_files(Purpose purpose) {
  std::vector<std::string> files(kTokenizerFiles.begin(), kTokenizerFiles.end());
  if (purpose == Purpose::kServe) files.emplace_back(kGenerationConfig);
  return files;
}

std::vector<std::string> small_files(const Listing& listing, Purpose purpose) {
  std::vector<std::string> files = optional_files(purpose);
  std::erase_if(files, [&listing](const std::string& file) { return !listing.has(file); });
  int num_tiktoken = 0;
  for (const std::string& file : listing.files) {
    if (!file.ends_with(kTiktoken) || !is_plain_file_name(file)) continue;
    if (++num_tiktoken <= kTiktokenFilesMax) files.push_back(file);
  }
  int num_modules = 0;
  for (const std::string& file : listing.files) {
    if (purpose != Purpose::kServe || !is_of_embeddings(file)) continue;
    if (++num_modules <= kModulesMax) files.push_back(file);
  }
  int num_templates = 0;
  for (const std::string& file : listing.files) {
    if (!file.starts_with(kTemplates) || !file.ends_with(".jinja")) continue;
    if (++num_templates <= kTemplatesMax) files.push_back(file);
  }
  return files;
}

bool has_tokenizer(const std::vector<std::string>& files) {
  const auto has = [&files](std::string_view name) {
    return std::find(files.begin(), files.end(), name) != files.end();
  };
  return has("tokenizer.json") || has("tokenizer.model") ||
         (has("vocab.json") && has("merges.txt")) || has("tekken.json") || has("spiece.model") ||
         std::any_of(files.begin(), files.end(), [](const std::string& file) {
           return file.ends_with(kTiktoken) && is_plain_file_name(file);
         });
}

Result<WeightFiles> weight_files(const Listing& listing) {
  for (const WeightForm& form : kWeightForms) {
    if (listing.has(form.name)) return WeightFiles{form.name, form.is_index};
  }
  const std::string others = other_forms_in(listing);
  return Error{ErrorCode::kNotFound,
               "neither model.safetensors nor pytorch_model.bin" +
                   (others.empty() ? std::string(" nor other weights") : " (but " + others + ")")};
}

Result<std::vector<std::string>> read_index(const std::string& path) {
  std::error_code error;
  const auto num_bytes = fs::file_size(path, error);
  if (error) return Error{errno_code(error.value()), path + ": " + error.message()};
  if (num_bytes > kIndexBytesMax) {
    return Error{ErrorCode::kInvalid, path + ": larger than an index can be"};
  }
  const auto root = read_json_object(path);
  const Json* map = root ? find_json(*root, "weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) {
    return Error{root ? ErrorCode::kInvalid : root.error().code,
                 path + ": no JSON object with a 'weight_map'"};
  }
  std::set<std::string> files;
  for (const auto& [tensor, value] : map->items()) {
    const auto* file = value.get_ptr<const std::string*>();
    if (file == nullptr || !is_plain_file_name(*file)) {
      return Error{ErrorCode::kInvalid,
                   path + ": the file of '" + shown(tensor) + "' is not the name of a file"};
    }
    files.insert(*file);
  }
  if (files.empty()) return Error{ErrorCode::kInvalid, path + ": it names no files"};
  return std::vector<std::string>(files.begin(), files.end());
}

std::string missing_in(const std::string& folder, Purpose purpose) {
  const fs::path path(folder);
  if (purpose == Purpose::kServe) {
    return is_file(path / "config.json") ? missing_weights(path) : "config.json";
  }
  std::vector<std::string> files;
  std::error_code error;
  for (auto entry = fs::directory_iterator(path, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    if (is_file(entry->path())) files.push_back(entry->path().filename().string());
  }
  return has_tokenizer(files) ? "" : "tokenizer.json";
}

}  // namespace lmtp::hub
