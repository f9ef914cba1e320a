#include "vendor_tools.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lmtp/base/text.h"
#include "unknown_keys.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kNamesMax = 16;

// The type of a tool that a vendor runs; null: it is none.
const std::string* vendor_type(const OrderedJson& tool) {
  if (!tool.is_object() || tool.contains("function")) return nullptr;
  const auto type = tool.find("type");
  if (type == tool.end() || !type->is_string()) return nullptr;
  const bool is_clients = *type == "function" || *type == "custom";
  return is_clients ? nullptr : type->get_ptr<const std::string*>();
}

}  // namespace

bool is_vendor_tool(const OrderedJson& tool) { return vendor_type(tool) != nullptr; }

ClientTools without_vendor_tools(const OrderedJson& tools) {
  ClientTools offered{OrderedJson::array(), {}};
  for (const OrderedJson& tool : tools) {
    const std::string* const type = vendor_type(tool);
    if (type == nullptr) {
      offered.kept.push_back(tool);
      continue;
    }
    if (offered.left_out.size() == kNamesMax) continue;
    std::string name = shortened(*type, kNameBytesMax);
    if (std::ranges::find(offered.left_out, name) == offered.left_out.end()) {
      offered.left_out.push_back(std::move(name));
    }
  }
  log_once("tools: left out, since only their vendor runs them:", offered.left_out);
  return offered;
}

}  // namespace lmtp::server
