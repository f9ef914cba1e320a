// Serialises the requests of a load.
#pragma once

#include <string>

#include "lmtp/base/ids.h"
#include "load_options.h"
#include "program.h"

namespace lmtp::tools {

// The mask of half a vocabulary is the same in every request, so it is serialised once. Immutable;
// any thread.
class RequestText {
 public:
  explicit RequestText(const LoadOptions& options);

  std::string of(StreamId stream_id, const Request& request) const;

 private:
  const std::string model_;
  const float temperature_;
  std::string banned_bias_;  // as JSON; empty: none
  std::string mask_bias_;
};

}  // namespace lmtp::tools
