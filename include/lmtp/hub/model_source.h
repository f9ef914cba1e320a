// From the MODEL argument to a local folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/model_source.h"
#include "lmtp/base/result.h"

namespace lmtp::hub {

// What the folder is for: a server needs config.json and weights, a client only the tokenizer.
enum class Purpose { kServe, kTokenizer };

// MODEL is "demo" (share/lmtp/models/demo beside the program's bin/, or models/demo of the source
// tree); "random[:SHAPE[:SEED]]"; a folder ("./demo" for one of that name); a GGUF file, or a
// folder that holds one of them and no config.json; or a name or name@revision found in the local
// Hugging Face cache ($HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub).
// A snapshot in the cache counts only if it has what the purpose needs: a tokenizer, or config.json
// and all weights. Reads the environment and the disk; any thread. The error names what was
// searched for, and where.
Result<ModelSource> resolve_model(std::string_view model, Purpose purpose = Purpose::kServe);

// huggingface_hub's cache folder, which need not be there yet. Empty if not even HOME is set.
std::string cache_folder();

// Whether `model` is a hub name that matches a pattern such as "*", "org/*" or "org/name". The
// revision is ignored.
bool matches_any(std::string_view model, const std::vector<std::string>& patterns);

}  // namespace lmtp::hub
