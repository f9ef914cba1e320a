// The cache of huggingface_hub on this disk:
//   CACHE/models--ORG--NAME/refs/main                  the commit that a branch or tag is at
//   CACHE/models--ORG--NAME/snapshots/COMMIT/config.json ...
//
// Reference: huggingface_hub, "Understand caching" and constants.py.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::hub {

// "org/name@revision": the revision is "main" where none is given.
struct HubName {
  std::string repo;
  std::string revision;
};

// An error where it cannot be a name on the hub: [org/]name of letters, digits, '-', '_' and '.'.
Result<HubName> parse_hub_name(std::string_view name);

// Where huggingface_hub keeps its files, by the environment. Empty where not even HOME is set.
std::string cache_folder();

// The snapshot's folder; an error says what is missing there.
Result<std::string> find_snapshot(const std::string& cache, const HubName& name);

}  // namespace lmtp::hub
