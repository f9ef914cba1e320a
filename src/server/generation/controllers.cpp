#include "controllers.h"

#include <nlohmann/json.hpp>

namespace lmtp::server {

Result<std::shared_ptr<aici::Runtime>> runtime_for(const registry::Models& models,
                                                   const std::string& model, const Caller* caller) {
  if (caller != nullptr && caller->account != nullptr) {
    if (auto allowed = models.check_access(*caller->account, model); !allowed) {
      return allowed.error();
    }
  }
  if (const auto ready = models.ready_model(model)) {
    if (ready->controllers) return *ready->controllers;
    return about_module(ready->controllers.error());
  }
  if (const auto status = models.status(model); status && !status->ok()) return status->error();
  return Error{ErrorCode::kUnavailable, "model: is not loaded now; retry once it is"};
}

Result<void> check_uploads(const ControllerRules& rules) {
  if (rules.takes_uploads) return {};
  return Error{ErrorCode::kInvalid,
               "controllers are not taken on an address that other machines reach; --aici-upload "
               "takes them from there"};
}

OrderedJson module_json(aici::ModuleInfo module) {
  return {{"module_id", std::move(module.module_id)},
          {"wasm_size", module.wasm_size},
          {"compiled_size", module.compiled_size},
          {"time", module.compile_ms}};
}

OrderedJson tags_json(std::vector<aici::TagInfo> tags) {
  OrderedJson list = OrderedJson::array();
  for (aici::TagInfo& tag : tags) {
    list.push_back({{"tag", std::move(tag.tag)},
                    {"module_id", std::move(tag.module_id)},
                    {"updated_at", tag.updated_at},
                    {"updated_by", std::move(tag.updated_by)},
                    {"wasm_size", tag.wasm_size},
                    {"compiled_size", tag.compiled_size}});
  }
  return {{"tags", std::move(list)}};
}

}  // namespace lmtp::server
