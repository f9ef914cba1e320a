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

// The answer of {endpoint}/api/models/NAME/revision/REVISION.
struct Listing {
  std::string commit;  // 40 digits of [0-9a-f]
  std::vector<std::string> files;

  bool has(std::string_view file) const;
};

// Refuses invalid commits, and file names that would lead out of the folder.
Result<Listing> parse_listing(std::string_view json);

// The files, apart from the weights, that are read for the purpose if they exist.
std::vector<std::string> optional_files(Purpose purpose);

// Those of them that the listing has, and its *.tiktoken.
std::vector<std::string> small_files(const Listing& listing, Purpose purpose);

// Whether these files include a tokenizer.
bool has_tokenizer(const std::vector<std::string>& files);

// The listing's weights: one file, or an index that names them (`is_index`). safetensors if there
// are any, else pytorch_model.bin; the error says which formats there are instead.
struct WeightFiles {
  std::string file;
  bool is_index = false;
};
Result<WeightFiles> weight_files(const Listing& listing);

// The files that an index (model.safetensors.index.json) names, without duplicates.
Result<std::vector<std::string>> read_index(const std::string& path);

// What a snapshot's folder lacks for the purpose; empty: it is complete.
std::string missing_in(const std::string& folder, Purpose purpose);

}  // namespace lmtp::hub
