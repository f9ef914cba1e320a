// Controllers of AICI, whichever protocol asks: what a request needs of one, and who may bring
// them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "access/caller_models.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "lmtp/request/caller.h"
#include "lmtp/request/error_text.h"

namespace lmtp::server {

// Of the server as a whole. Owner: its context, which does not change it once io threads run.
struct ControllerRules {
  bool are_run = false;
  bool takes_uploads = true;  // false: other machines reach it, and it was not told to
};

// By the caller's key. Without keys all are one user, who may do everything.
inline aici::Auth auth_of(const Caller* caller, ConnectionId connection) {
  aici::Auth auth;
  auth.share = share_of(caller, connection);
  auth.is_admin = true;
  if (caller == nullptr || caller->account == nullptr) return auth;
  auth.user = caller->account->name();
  auth.is_admin = caller->account->is_admin();
  return auth;
}

// An error of what was asked of a controller's module where no model is missing.
inline Error about_module(Error error) {
  if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kInvalid;
  return with_field_name("controller", std::move(error));
}

// The prompt becomes what the controller makes of it; whether that is another one.
inline bool take_prompt(aici::Instantiated& done, std::vector<TokenId>& prompt) {
  const bool changes = done.prompt || !done.appended.empty();
  if (done.prompt) prompt = std::move(*done.prompt);
  prompt.insert(prompt.end(), done.appended.begin(), done.appended.end());
  return changes;
}

// What runs the controllers of the model of that name (Registry::ready_model), where the caller may
// ask for it. kNotFound: there is no such model.
Result<std::shared_ptr<aici::Runtime>> runtime_for(const CallerModels& models,
                                                   const std::string& model);

// An upload is code that runs here, and a tag decides which code that is.
Result<void> check_uploads(const ControllerRules& rules);

// As all protocols answer them to that caller. Of tags those that it may see, without the names of
// other keys.
OrderedJson answer_json(aici::ModuleInfo module, const aici::Auth& auth);
OrderedJson answer_json(std::vector<aici::TagInfo> tags, const aici::Auth& auth);

}  // namespace lmtp::server
