// Which files of a repository a model needs, and whether a folder has them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/hub/model_source.h"

namespace lmtp::hub {

inline constexpr const char* kConfig = "config.json";
inline constexpr const char* kGenerationConfig = "generation_config.json";

inline constexpr std::size_t kListingBytesMax = std::size_t{64} << 20;
inline constexpr std::size_t kListedFilesMax = 200'000;
inline constexpr std::size_t kIndexBytesMax = std::size_t{64} << 20;  // and of config.json

// What {endpoint}/api/models/NAME/revision/REVISION says.
struct Listing {
  std::string commit;  // 40 digits of [0-9a-f]
  std::vector<std::string> files;

  bool has(std::string_view file) const;
};

// Refuses a commit that is none, and names of files that would lead out of a folder.
Result<Listing> parse_listing(std::string_view json);

// What a model of the purpose is read from where there is such a file, besides its weights.
std::vector<std::string> optional_files(Purpose purpose);

// Those of the listing, and its *.tiktoken.
std::vector<std::string> small_files(const Listing& listing, Purpose purpose);

// Whether a tokenizer can be made of some of these files.
bool has_tokenizer(const std::vector<std::string>& files);

// Where the listing's weights are: one file, or an index that names them (then `is_index`).
// safetensors where there are any, else pytorch_model.bin; an error says what there is instead.
struct WeightFiles {
  std::string file;
  bool is_index = false;
};
Result<WeightFiles> weight_files(const Listing& listing);

// The files that an index (model.safetensors.index.json) names, each once.
Result<std::vector<std::string>> read_index(const std::string& path);

// What a snapshot's folder lacks for the purpose; empty: nothing.
std::string missing_in(const std::string& folder, Purpose purpose);

// One name without a folder in it, that is no "..", nothing hidden, and printable.
bool is_plain_file_name(std::string_view name);

}  // namespace lmtp::hub
