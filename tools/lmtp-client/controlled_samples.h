// ControlledSamples: what a stream with a controller has, which takes tokens back and forks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"

namespace lmtp::tools {

// Owner: the call that runs the stream.
class ControlledSamples {
 public:
  // A TOKEN entry that is no error.
  void take(const protocol::ServerEntry& entry);
  // By their index: entries with a token or a text, in order.
  const std::map<int, std::vector<protocol::ServerEntry>>& all() const { return samples_; }

 private:
  std::map<int, std::vector<protocol::ServerEntry>> samples_;
};

// What an entry of a stream's controller has logged, a line each, as "[controller] TEXT"; with the
// number of the sample where that is not the first.
std::string describe_logs(const protocol::ServerEntry& entry);

// The tags in an answer to CONTROLLER, a line each.
std::string describe_tags(const std::string& json);

// The bytes of a file, which may be a module.
Result<std::string> read_module(const std::string& path);

}  // namespace lmtp::tools
