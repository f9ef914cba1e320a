#include "lmtp/aici/storage_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "hex.h"

namespace lmtp::aici {

std::string storage_json(std::span<const VariableWrite> writes) {
  if (writes.empty()) return {};
  nlohmann::json list = nlohmann::json::array();
  for (const VariableWrite& write : writes) {
    nlohmann::json one = {
        {"name", write.name},
        {"value", to_hex(write.value)},
        {"op", write.op == VariableWrite::Op::kSet ? "Set" : "Append"},
        {"when_version_is", nullptr},
    };
    if (write.when_version_is) one["when_version_is"] = *write.when_version_is;
    list.push_back({{"WriteVar", std::move(one)}});
  }
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lmtp::aici
