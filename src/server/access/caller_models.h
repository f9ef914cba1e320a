// The models as one caller may see them. Routes and verbs reach models in no other way, so that
// none of them can tell a key of a model that is not for it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/caller.h"

namespace lmtp::server {

// Whatever its key may not use is not there. Without a key all models are. A value; any thread.
class CallerModels {
 public:
  CallerModels(registry::Models& models, std::shared_ptr<const Caller> caller)
      : models_(&models), caller_(std::move(caller)) {}

  // Whether that model (as Models::submit() reads the name) may be asked for. kNotFound: it may
  // not; the error says which ones may be, and names no other.
  Result<void> check(const std::string& name) const;
  // The same of a model's own name, or an adapter's.
  bool may_use(const std::string& name) const {
    return account() == nullptr || account()->may_use(name);
  }

  // As Models', with the error of check() where that has one; of a model's adapters those that the
  // caller may use.
  std::optional<engine::ModelLimits> limits_of(const std::string& name) const;
  std::optional<registry::ReadyModel> ready_model(const std::string& name) const;
  std::optional<Result<registry::ModelStatus>> status(const std::string& name) const;
  bool look_up(std::string name, std::function<void(Result<registry::ModelStatus>)> done) const;
  std::vector<registry::ModelStatus> list() const;
  // With an empty name where there is none for this caller.
  registry::ModelDescription default_model() const;
  void load_adapter(AdapterSource source, std::string base, bool may_replace,
                    const registry::Models::AdapterDone& done) const;
  void unload_adapter(std::string name, const registry::Models::AdapterDone& done) const;

  // As Models', which look at the account of each request. Where a key has a cache of its own, the
  // request's salt is one that no other key's requests can have.
  registry::Submission submit(Request&& request) const;
  registry::Submission submit_forks(std::vector<Request> forks) const {
    return models_->submit_forks(std::move(forks));
  }
  Result<void> backtrack(const std::string& model, Backtrack command) const {
    return models_->backtrack(model, std::move(command));
  }
  std::string lasting_name(const std::string& name) const { return models_->lasting_name(name); }

  // What says nothing of a model.
  registry::RefusalCounts& refusals() const { return models_->refusals(); }
  bool is_auto() const { return models_->is_auto(); }
  bool healthy() const { return models_->healthy(); }
  // That of the one model; nullopt: it is not there, or the server has any.
  std::optional<registry::ModelState> only_state() const;

 private:
  const Account* account() const { return caller_ != nullptr ? caller_->account.get() : nullptr; }
  // Leaves of a model that the caller may see by one of its names what it may see.
  void narrow(registry::ModelStatus& status) const;

  registry::Models* models_;
  std::shared_ptr<const Caller> caller_;
};

// All models. Owner: the server's context; any thread.
class ModelsByCaller {
 public:
  explicit ModelsByCaller(registry::Models& models) : models_(&models) {}

  CallerModels of(std::shared_ptr<const Caller> caller) const {
    return {*models_, std::move(caller)};
  }
  registry::RefusalCounts& refusals() const { return models_->refusals(); }
  // Every model, whoever asks: for what is for admins alone.
  const registry::Models& for_admins() const { return *models_; }

 private:
  registry::Models* models_;
};

}  // namespace lmtp::server
