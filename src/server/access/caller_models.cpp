#include "caller_models.h"

#include "key_file.h"

namespace lmtp::server {

Result<void> CallerModels::check(const std::string& name) const {
  return account() != nullptr ? models_->check_access(*account(), name) : Result<void>();
}

std::optional<engine::ModelLimits> CallerModels::limits_of(const std::string& name) const {
  return check(name) ? models_->limits_of(name) : std::nullopt;
}

std::optional<registry::ReadyModel> CallerModels::ready_model(const std::string& name) const {
  return check(name) ? models_->ready_model(name) : std::nullopt;
}

registry::Submission CallerModels::submit(Request&& request) const {
  if (const Account* const own = account(); own != nullptr && own->has_own_cache()) {
    request.cache_salt = hex_of(digest_of(std::to_string(own->share()) + ' ' + request.cache_salt));
  }
  return models_->submit(std::move(request));
}

void CallerModels::narrow(registry::ModelStatus& status) const {
  if (may_use(status.description.name)) return;
  std::erase_if(status.adapters,
                [&](const AdapterSource& adapter) { return !may_use(adapter.name); });
}

std::optional<Result<registry::ModelStatus>> CallerModels::status(const std::string& name) const {
  if (Result<void> allowed = check(name); !allowed) return allowed.error();
  std::optional<Result<registry::ModelStatus>> status = models_->status(name);
  if (status && status->ok()) narrow(**status);
  return status;
}

bool CallerModels::look_up(std::string name,
                           std::function<void(Result<registry::ModelStatus>)> done) const {
  if (Result<void> allowed = check(name); !allowed) {
    done(allowed.error());
    return true;
  }
  return models_->look_up(std::move(name), [view = *this, done = std::move(done)](
                                               Result<registry::ModelStatus> status) {
    if (status) view.narrow(*status);
    done(std::move(status));
  });
}

// A model of which it may use an adapter alone is there for its sake.
std::vector<registry::ModelStatus> CallerModels::list() const {
  std::vector<registry::ModelStatus> all = models_->list();
  std::erase_if(all, [&](registry::ModelStatus& model) {
    narrow(model);
    return !may_use(model.description.name) && model.adapters.empty();
  });
  return all;
}

registry::ModelDescription CallerModels::default_model() const {
  const registry::ModelDescription& model = models_->default_model();
  return may_use(model.name) ? model : registry::ModelDescription();
}

void CallerModels::load_adapter(AdapterSource source, std::string base, bool may_replace,
                                const registry::Models::AdapterDone& done) const {
  if (const Result<void> allowed = check(base); !allowed) return done(allowed);
  models_->load_adapter(std::move(source), std::move(base), may_replace, done);
}

void CallerModels::unload_adapter(std::string name,
                                  const registry::Models::AdapterDone& done) const {
  if (const Result<void> allowed = check(name); !allowed) return done(allowed);
  models_->unload_adapter(std::move(name), done);
}

std::optional<registry::ModelState> CallerModels::only_state() const {
  if (is_auto()) return std::nullopt;
  const auto only = models_->status("");
  return only && only->ok() ? std::optional((*only)->state) : std::nullopt;
}

}  // namespace lmtp::server
