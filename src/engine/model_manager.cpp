#include "lmtp/engine/model_manager.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "inbox.h"
#include "lmtp/base/check.h"
#include "manager_impl.h"

namespace lmtp::engine {
namespace {

// A request that finds its model gone looks it up again, so often at most.
constexpr int kLookAgainMax = 16;

bool has_control_character(const std::string& name) {
  return std::any_of(name.begin(), name.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

std::string last_component(std::string name) {
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  return name.substr(name.rfind('/') + 1);  // from the beginning where there is none
}

ModelState state_of(EngineState state) {
  switch (state) {
    case EngineState::kLoading:
      return ModelState::kLoading;
    case EngineState::kReady:
      return ModelState::kReady;
    case EngineState::kFailed:
      return ModelState::kFailed;
    case EngineState::kStopped:
      break;
  }
  return ModelState::kStopping;
}

}  // namespace

std::string quoted_name(const std::string& name) {
  constexpr std::size_t kEchoed = 128;
  if (name.size() <= kEchoed) return "'" + name + "'";
  std::size_t end = kEchoed;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;
  return "'" + name.substr(0, end) + "...'";
}

ModelManager::ModelManager(std::unique_ptr<ModelFactory> factory, AutoOptions options)
    : impl_(std::make_unique<Impl>(std::move(factory), std::move(options), true)) {
  LMTP_CHECK(impl_->options.max_models >= 1, impl_->options.max_models);
  impl_->lookup_thread = std::thread([impl = impl_.get()] { impl->run_lookups(); });
  if (impl_->options.unload_after_ms > 0) {
    impl_->keeper = std::thread([impl = impl_.get()] { impl->run_keeper(); });
  }
}

ModelManager::ModelManager(std::unique_ptr<ModelFactory> factory, OnlyModel model)
    : impl_(std::make_unique<Impl>(
          std::move(factory),
          AutoOptions{.max_models = 1, .max_waiting_requests = model.max_waiting_requests},
          false)) {
  Impl& impl = *impl_;
  impl.only_name = model.name;
  impl.on_loaded = std::move(model.on_loaded);
  impl.on_gone = std::move(model.on_gone);
  const auto pending = std::make_shared<Impl::Pending>();
  pending->name = model.name;
  pending->gate = impl.make_gate();
  const Impl::Lock lock(impl.mutex);
  std::function<void()> work;
  if (model.found) {
    Impl::Model& added = impl.add_model(*pending, std::move(*model.found));
    pending->gate->set_limits(added.served.limits);
    work = [&impl, &added] { impl.bring_in(added); };
  } else {
    impl.pending[model.name] = pending;
    impl.pending[last_component(model.name)] = pending;
    work = [&impl, pending] { impl.load_by_name(*pending); };
  }
  const Result<void> started = impl.start_loader(std::move(work));
  LMTP_CHECK(started.ok(), "the first thread of the process");
}

ModelManager::~ModelManager() { stop(0); }

Submission ModelManager::submit(Request request) {
  const std::string asked = request.model;
  for (int i = 0; i < kLookAgainMax; ++i) {
    std::shared_ptr<RequestGate> gate;
    {
      const Impl::Lock lock(impl_->mutex);
      auto found = impl_->find_or_load(asked);
      if (auto* refusal = std::get_if<Refusal>(&found)) return std::move(*refusal);
      gate = std::get<Impl::Found>(found).gate();
      if (asked.empty()) request.model = std::get<Impl::Found>(found).name();  // for notices
    }
    RequestGate::Answer answer = gate->submit(request);
    if (answer.outcome == RequestGate::Outcome::kTaken) return std::shared_ptr<StreamOwner>(gate);
    if (answer.outcome == RequestGate::Outcome::kRefused)
      return Refusal{std::move(answer.error.message)};
  }
  return Refusal{"overloaded: the model was unloaded as often as it was asked for; retry later"};
}

ModelManager::Impl::Found ModelManager::Impl::find(const std::string& name) const {
  if (const auto model = names.find(name); model != names.end()) return {model->second, nullptr};
  if (const auto found = pending.find(name); found != pending.end()) {
    return {nullptr, found->second};
  }
  return {};
}

std::variant<ModelManager::Impl::Found, Refusal> ModelManager::Impl::find_or_load(
    const std::string& name) {
  if (stopping) return Refusal{shutting_down().message};
  if (name.empty()) {
    auto sole = find_sole();
    const auto* meant = std::get_if<Found>(&sole);
    return meant != nullptr && meant->nowhere() ? find_or_load(options.default_model.name) : sole;
  }
  Found found = find(name);
  if (!found.nowhere()) return found;
  if (!is_auto) return Refusal{unknown_name(name).message, true};
  if (has_control_character(name)) {
    return Refusal{"model: holds a control character; allowed are names and folders", true};
  }
  auto begun = begin_load(name);
  if (!begun) return Refusal{begun.error().message};
  found.pending = std::move(*begun);
  return found;
}

std::variant<ModelManager::Impl::Found, Refusal> ModelManager::Impl::find_sole() const {
  if (!is_auto) {
    if (!models.empty()) return Found{models.begin()->second.get(), nullptr};
    if (!pending.empty()) return Found{nullptr, pending.begin()->second};
    return Refusal{unknown_name(only_name).message, true};
  }
  const auto is_ready = [](const auto& entry) { return entry.second->engine != nullptr; };
  const int num_ready = num_loaded();
  if (num_ready == 1) {
    return Found{std::find_if(models.begin(), models.end(), is_ready)->second.get(), nullptr};
  }
  if (num_ready > 1) {
    return Refusal{
        "model: is missing, and several are loaded; send the name of one: " + names_ready(), true};
  }
  const std::size_t num_loading = models.size() + pending.size();
  if (num_loading == 0 && !options.default_model.name.empty()) return Found{};
  if (num_loading != 1) {
    return Refusal{std::string("model: is missing, and ") +
                       (num_loading == 0 ? "no model is loaded" : "several are being loaded") +
                       "; send a name, such as 'demo', a hub name or a folder, and it is loaded",
                   true};
  }
  if (!models.empty()) return Found{models.begin()->second.get(), nullptr};
  return Found{nullptr, pending.begin()->second};
}

// A static server's model is there under all of its names until its loading has failed.
Error ModelManager::Impl::unknown_name(const std::string& name) const {
  if (models.empty() && pending.empty() && !failures.empty()) {
    return Error{ErrorCode::kInvalid, "model: " + failures.back().error};
  }
  return Error{ErrorCode::kInvalid, "model: " + quoted_name(name) +
                                        " is not served here, allowed is '" + only_name +
                                        "' (or leave it out)"};
}

int DownloadState::percent() const {
  if (bytes_total <= 0) return 0;
  const double share = static_cast<double>(bytes_done) / static_cast<double>(bytes_total);
  return static_cast<int>(100.0 * std::clamp(share, 0.0, 1.0));
}

std::string ModelManager::Impl::names_ready() const {
  std::string out;
  for (const auto& [key, model] : models) {
    if (model->engine == nullptr) continue;
    out += (out.empty() ? "" : ", ") + quoted_name(model->served.description.name);
  }
  return out;
}

const ModelManager::Impl::Failure* ModelManager::Impl::failure_of(const std::string& name) const {
  const auto found = std::find_if(failures.begin(), failures.end(),
                                  [&](const Failure& failure) { return failure.name == name; });
  return found == failures.end() ? nullptr : &*found;
}

ModelStatus ModelManager::Impl::status_of(const Found& found) {
  ModelStatus status;
  const RequestGate::Usage usage = found.gate()->usage();
  status.state = ModelState::kLoading;
  status.progress_percent = usage.percent;
  status.stats.num_waiting = static_cast<int>(usage.num_waiting);
  status.description.name = found.name();
  if (found.model == nullptr) {
    status.download = found.pending->download;
    return status;
  }
  status.description = found.model->served.description;
  status.limits = found.model->served.limits;
  if (found.model->engine == nullptr) return status;
  status.stats = found.model->engine->stats();
  status.state = state_of(status.stats.state);
  if (status.state == ModelState::kLoading) status.progress_percent = status.stats.load_percent;
  return status;
}

std::optional<ModelLimits> ModelManager::limits_of(const std::string& name) const {
  const Impl::Lock lock(impl_->mutex);
  Impl::Found found = impl_->find(name);
  if (found.nowhere() && (name.empty() || !impl_->is_auto)) {
    const auto sole = impl_->find_sole();
    if (const auto* one = std::get_if<Impl::Found>(&sole)) found = *one;
  }
  if (found.model == nullptr) return std::nullopt;
  return found.model->engine != nullptr ? found.model->served.limits
                                        : Impl::limits_at_most(found.model->served);
}

std::optional<Result<ModelStatus>> ModelManager::status(const std::string& name) const {
  const Impl::Lock lock(impl_->mutex);
  if (name.empty()) {
    const auto sole = impl_->find_sole();
    if (const auto* refusal = std::get_if<Refusal>(&sole))
      return Error{ErrorCode::kNotFound, refusal->message};
    const auto& meant = std::get<Impl::Found>(sole);
    if (meant.nowhere()) return std::nullopt;
    return Impl::status_of(meant);
  }
  const Impl::Found found = impl_->find(name);
  if (!found.nowhere()) return Impl::status_of(found);
  if (!impl_->is_auto) return impl_->unknown_name(name);
  return std::nullopt;
}

bool ModelManager::look_up(std::string name, std::function<void(Result<ModelStatus>)> done) {
  return impl_->lookups.try_push({std::move(name), std::move(done)});
}

void ModelManager::Impl::run_lookups() {
  while (!stopping) {
    for (Lookup& lookup : lookups.wait_drain()) {
      if (lookup.name.empty()) lookup.name = options.default_model.name;
      lookup.done(stopping ? shutting_down() : look_up(lookup.name));
    }
  }
  for (Lookup& lookup : lookups.drain()) lookup.done(shutting_down());
}

Result<ModelStatus> ModelManager::Impl::look_up(const std::string& name) {
  Result<ServedModel> served = Error{ErrorCode::kInvalid, "holds a control character"};
  try {
    if (!has_control_character(name)) served = factory->find(name);
  } catch (const std::exception& e) {
    served = Error{ErrorCode::kInvalid, std::string("cannot be looked up: ") + e.what()};
  }
  const Lock lock(mutex);
  Found found = find(name);
  if (found.nowhere() && served) {
    const auto same = models.find(served->key);
    if (same != models.end()) found.model = same->second.get();
  }
  if (!found.nowhere()) return status_of(found);
  if (!served) return Error{served.error().code, "model: " + served.error().message};
  ModelStatus status;
  status.description = std::move(served->description);
  status.limits = std::move(served->limits);
  if (const Failure* failure = failure_of(name)) {
    status.state = ModelState::kFailed;
    status.error = failure->error;
  }
  return status;
}

std::vector<ModelStatus> ModelManager::list() const {
  const Impl::Lock lock(impl_->mutex);
  std::vector<ModelStatus> all;
  for (const auto& [key, model] : impl_->models) {
    all.push_back(Impl::status_of({model.get(), nullptr}));
  }
  std::sort(all.begin(), all.end(), [](const ModelStatus& a, const ModelStatus& b) {
    return a.description.name < b.description.name;
  });
  return all;
}

bool ModelManager::is_auto() const { return impl_->is_auto; }

const ModelDescription& ModelManager::default_model() const { return impl_->options.default_model; }

bool ModelManager::healthy() const {
  const Impl::Lock lock(impl_->mutex);
  if (impl_->stopping) return false;
  return impl_->is_auto || impl_->num_loaded() == 1;
}

void ModelManager::stop(int grace_ms) {
  const std::lock_guard stop_lock(impl_->stop_mutex);
  if (impl_->stopping) return;
  const auto deadline = Impl::Clock::now() + std::chrono::milliseconds(grace_ms);
  std::vector<std::shared_ptr<RequestGate>> gates;
  std::vector<Engine*> engines;
  {
    const Impl::Lock lock(impl_->mutex);
    impl_->stopping = true;
    for (const auto& [name, pending] : impl_->pending) gates.push_back(pending->gate);
    for (const auto& [key, model] : impl_->models) {
      if (model->engine != nullptr) engines.push_back(model->engine.get());
      gates.push_back(model->gate);
    }
    impl_->lookups.close();
  }
  impl_->changed.notify_all();
  impl_->keeper_wake.notify_all();
  // What waits for a model that is still being loaded cannot finish in time.
  for (const auto& gate : gates) gate->shut(shutting_down());
  // While stopping, nobody else takes a model out that is ready.
  if (impl_->keeper.joinable()) impl_->keeper.join();
  for (Engine* engine : engines) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Impl::Clock::now());
    engine->stop(std::max(0, static_cast<int>(left.count())));
  }
  for (Impl::Loader& loader : impl_->loaders) loader.thread.join();
  impl_->ended_engines.clear();
  if (impl_->lookup_thread.joinable()) impl_->lookup_thread.join();
}

}  // namespace lmtp::engine
