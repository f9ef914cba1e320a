// Error messages for failed requests to the hub: the reason and the remedy.
#pragma once

#include <cstdint>
#include <string>

#include "http_answer.h"
#include "hub_environment.h"
#include "lmtp/base/result.h"

namespace lmtp::hub {

// What was requested. `file` is empty for the list of files.
struct Subject {
  std::string repo;
  std::string revision;
  std::string file;
};

// Whether the answer says that the repository exists but not the revision.
bool is_revision_missing(const HttpAnswer& answer);

// REQUIRES: !answer.ok().
Error explain(const HttpAnswer& answer, const Subject& subject, const HubEnvironment& hub);

// For an operation on the cache that failed with `error_number` (errno); for a full disk with the
// remedy.
Error explain_disk(const std::string& what, const std::string& path, int error_number);

}  // namespace lmtp::hub
