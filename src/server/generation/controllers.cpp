#include "controllers.h"

#include <nlohmann/json.hpp>

namespace lmtp::server {

Result<std::shared_ptr<aici::Runtime>> runtime_for(const CallerModels& models,
                                                   const std::string& model) {
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

OrderedJson answer_json(aici::ModuleInfo module, const aici::Auth& /*auth*/) {
  return {{"module_id", std::move(module.module_id)},
          {"wasm_size", module.wasm_size},
          {"compiled_size", module.compiled_size},
          {"time", module.compile_ms}};
}

OrderedJson answer_json(std::vector<aici::TagInfo> tags, const aici::Auth& auth) {
  OrderedJson list = OrderedJson::array();
  for (aici::TagInfo& tag : tags) {
    if (!aici::may_see(auth, tag)) continue;
    if (!auth.is_admin && tag.updated_by != auth.user) tag.updated_by.clear();
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
