// Which models a server may be asked for, and what a name leads to. What a client beyond this
// machine can reach is bounded here.
#pragma once

#include <string>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/hub/fetch.h"
#include "lmtp/hub/model_source.h"

namespace lmtp::catalog {

struct NamePolicy {
  // True: every folder that this process can read, and random weights. False: 'demo', what lies
  // under `model_dirs`, and names in the local Hugging Face cache.
  bool anything = true;
  // Patterns of the names that are downloaded where they are not in the cache: hub::matches_any.
  std::vector<std::string> downloads = {"*"};
  // The same of folders of adapters that clients name.
  bool any_adapter = true;
  std::vector<std::string> model_dirs;  // canonical; names may be relative to them
};

// "localhost", 127.0.0.0/8, ::1: where only this machine can connect.
bool is_loopback(const std::string& host);

// The canonical absolute paths; an error names the one that is no folder.
Result<std::vector<std::string>> canonical_folders(const std::vector<std::string>& folders);

// Whether a name can only be one on the hub: no path, and nothing of that name on this disk.
bool may_be_on_hub(const std::string& name);

// Whether it would be downloaded.
bool may_download(const std::string& name, const NamePolicy& policy);

// What the name leads to. Nothing is downloaded, nor the network used, unless `options` and the
// policy allow it. Neither ".." nor a symbolic link leads out of a model_dir. Without
// policy.anything the error does not tell whether something of that name exists elsewhere. Any
// thread.
Result<ModelSource> resolve_name(const std::string& name, const NamePolicy& policy,
                                 const hub::FetchOptions& options);

// The folder of an adapter that a client has named: without policy.any_adapter it lies under a
// model_dir, and the error does not tell whether there is something else of that name.
Result<std::string> resolve_adapter(const std::string& path, const NamePolicy& policy);

}  // namespace lmtp::catalog
