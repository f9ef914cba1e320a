// What a person is told when the hub gives something else than what was asked for: the reason, and
// what would help.
#pragma once

#include <cstdint>
#include <string>

#include "http_answer.h"
#include "hub_environment.h"
#include "lmtp/base/result.h"

namespace lmtp::hub {

// What was asked for. `file` is empty for the list of files.
struct Subject {
  std::string repo;
  std::string revision;
  std::string file;
};

// The answer is of the kind "there is no such revision": another one may be.
bool is_revision_missing(const HttpAnswer& answer);

// REQUIRES: !answer.ok().
Error explain(const HttpAnswer& answer, const Subject& subject, const HubEnvironment& hub);

// An operation on the cache that failed with `error_number` (errno). Disk-full says what to do.
Error explain_disk(const std::string& what, const std::string& path, int error_number);

}  // namespace lmtp::hub
