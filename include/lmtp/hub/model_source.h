// From what a user types as MODEL to a folder on this disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::hub {

enum class SourceKind { kFolder, kRandom };

struct ModelSource {
  SourceKind kind = SourceKind::kFolder;
  std::string name;                // as given
  std::vector<std::string> names;  // all that it answers to: as given, absolute path, last component
  std::string folder;              // kFolder: canonical absolute path
  std::string shape;               // kRandom: "gpt2", "gpt2-medium"
  std::uint64_t seed = 0;          // kRandom
};

// MODEL is a folder; "demo" (share/lmtp/models/demo beside the program, or models/demo in the source
// tree); "random[:SHAPE[:SEED]]"; or a name found in the local Hugging Face cache
// ($HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub). Reads the environment and the
// disk; any thread. The error says what was looked for, where, and what would help.
Result<ModelSource> resolve_model(std::string_view model);

// The folder that holds the demo model, or an error that names the places looked at.
Result<std::string> find_demo_folder();

}  // namespace lmtp::hub
