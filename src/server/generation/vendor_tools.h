// Tools that a vendor's own servers run, which its clients offer to every server.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lmtp/base/json.h"

namespace lmtp::server {

struct ClientTools {
  OrderedJson kept;                   // as it was sent, but for those that are left out
  std::vector<std::string> left_out;  // up to 16 of their types, each once; shortened, for the log
};

// Whether a tool is one of those below.
bool is_vendor_tool(const OrderedJson& tool);

// Nobody could answer a call of {"type": "web_search"}, {"type": "mcp", ...} and their kind: they
// are of a type other than "function" and "custom", whose calls the client answers, and define no
// function, and are named in the log once. Everything else is kept, for whoever reads it to take or
// to refuse. `tools`: an array.
ClientTools without_vendor_tools(const OrderedJson& tools);

}  // namespace lmtp::server
