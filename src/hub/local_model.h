// Shared by resolve_model and fetch_model.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "hub_cache.h"
#include "lmtp/base/result.h"
#include "lmtp/hub/model_source.h"

namespace lmtp::hub {

// Whether MODEL can only be a name on the hub: no local folder or file, no path, and no reserved
// name ("demo", "random", "auto").
bool may_be_on_hub(std::string_view model);

// A regular file, or a link to one.
bool is_file(const std::filesystem::path& path);

// A file of that kind that has a model's config, tokenizer and weights.
bool is_gguf_file(const std::filesystem::path& path);

// The model of a snapshot's folder, if it is complete.
Result<ModelSource> from_snapshot(std::string_view model, const HubName& name,
                                  const std::string& snapshot, Purpose purpose);

}  // namespace lmtp::hub
