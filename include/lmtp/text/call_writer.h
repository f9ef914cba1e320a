// Calls as a layout has them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lmtp/base/json.h"
#include "lmtp/text/reply_layout.h"

namespace lmtp::text {

struct WrittenCall {
  std::string name;
  std::string id;
  OrderedJson arguments;  // an object
};

std::string write_calls(const CallLayout& layout, const std::vector<WrittenCall>& calls);

}  // namespace lmtp::text
