// What lmtp-aicirt does: it serves a Runtime to an engine that has made the shared memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "areas.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/base/result.h"
#include "main_server.h"
#include "side_server.h"

namespace lmtp::aicirt {

struct ServeOptions {
  AreaOptions areas;
  std::size_t bias_bytes = 0;
  MainOptions main;  // but for its rows
  SideOptions side;
  // For tests: what is sent in the place of an answer.
  std::function<std::vector<std::string>(std::string answer, bool is_side)> edit = {};
};

// Until it is told to stop, or the process that has started this one is gone. The error: the shared
// memory cannot be opened, or what is in it makes no sense.
Result<void> serve(std::unique_ptr<aici::Runtime> runtime, ServeOptions options);

}  // namespace lmtp::aicirt
