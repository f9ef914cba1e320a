// GET /v1/models and /v1/models/{name}.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lmtp/registry/models.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// What can be asked for at once: those that are loaded or being loaded, and the default.
// `created`: in seconds since 1970; nobody knows when a model was made.
HttpResponse openai_models(const registry::Models& models, const Account* account,
                           std::int64_t created);

// Where it is not loaded it is looked up on the disk. Thread: the strand of `responder`.
void answer_openai_model(registry::Models& models, std::int64_t created, const std::string& name,
                         const std::shared_ptr<HttpResponder>& responder);

}  // namespace lmtp::server
