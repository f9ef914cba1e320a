// How models come in.
#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "guarded.h"
#include "inbox.h"
#include "lmtp/base/check.h"
#include "lmtp/base/log.h"
#include "manager_impl.h"

namespace lmtp::engine {
namespace {

constexpr std::chrono::milliseconds kRoomWaitMax{kRoomWaitMsMax};
// What counts as free where the system does not say.
constexpr std::int64_t kUnknownFreeBytes = std::int64_t{1} << 60;

std::string gib_text(std::int64_t num_bytes) {
  const std::int64_t tenths = (num_bytes * 10 + (std::int64_t{1} << 29)) >> 30;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

// What a loaded model gives back when it is unloaded, at most.
std::int64_t held_bytes(const ServedModel& served, const Engine& engine) {
  return served.memory.weights_bytes + engine.stats().agent.kv_bytes;
}

// A KV cache that takes memory as it is used: what of it has not been used yet is promised already.
std::int64_t promised_bytes(const Engine& engine) {
  const EngineStats stats = engine.stats();
  if (stats.agent.num_blocks == 0 || stats.agent.takes_kv_at_once) return 0;
  return stats.agent.kv_bytes / stats.agent.num_blocks * stats.num_blocks_free;
}

}  // namespace

std::shared_ptr<RequestGate> ModelManager::Impl::make_gate() {
  return std::make_shared<RequestGate>(options.max_waiting_requests, [this] {
    if (num_for_room == 0) return;
    {
      const Lock lock(mutex);
      ++num_changes;
    }
    changed.notify_all();
  });
}

Result<void> ModelManager::Impl::start_loader(std::function<void()> work) {
  loaders.remove_if([](Loader& loader) {
    if (loader.done) loader.thread.join();  // its last line is behind it
    return loader.done;
  });
  if (loaders.size() - num_fetching >= kLoadersMax) {
    return Error{ErrorCode::kInvalid, "overloaded: " + std::to_string(kLoadersMax) +
                                          " models are being sought or loaded; retry later"};
  }
  Loader& loader = loaders.emplace_back();
  try {
    loader.thread = std::thread([this, &loader, work = std::move(work)] {
      work();
      const Lock lock(mutex);
      loader.done = true;
    });
  } catch (const std::exception& e) {
    loaders.pop_back();
    return Error{ErrorCode::kInvalid,
                 std::string("overloaded: no thread can be started: ") + e.what()};
  }
  return {};
}

Result<std::shared_ptr<ModelManager::Impl::Pending>> ModelManager::Impl::begin_load(
    const std::string& name) {
  auto begun = std::make_shared<Pending>();
  begun->name = name;
  begun->gate = make_gate();
  if (Result<void> started = start_loader([this, begun] { load_by_name(*begun); }); !started) {
    return started.error();
  }
  pending[name] = begun;
  return begun;
}

// From here on the model is the loader's that called; the gate is that of the name asked for.
ModelManager::Impl::Model& ModelManager::Impl::add_model(Pending& from, ServedModel served) {
  auto added = std::make_unique<Model>();
  Model& model = *added;
  model.served = std::move(served);
  model.gate = from.gate;
  model.downloaded = from.download.has_value();
  if (is_auto) {
    remember_name(model, from.name);
  } else {
    for (const std::string& name : model.served.names) remember_name(model, name);
  }
  models[model.served.key] = std::move(added);
  return model;
}

void ModelManager::Impl::remember_name(Model& model, const std::string& name) {
  if (names.contains(name)) return;
  if (is_auto && model.names.size() >= kNamesPerModelMax) {
    names.erase(model.names.front());
    model.names.pop_front();
  }
  model.names.push_back(name);
  names[name] = &model;
}

void ModelManager::Impl::remove(Model& model) {
  for (const std::string& name : model.names) names.erase(name);
  models.erase(std::string(model.served.key));
}

void ModelManager::Impl::remember_failure(const std::string& name, const std::string& error) {
  std::erase_if(failures, [&](const Failure& failure) { return failure.name == name; });
  if (failures.size() >= kFailuresMax) failures.pop_front();
  failures.push_back({name, error});
}

bool ModelManager::Impl::drop_if_deserted(Model& model) {
  if (!is_auto || !model.gate->close_if_deserted()) return false;
  remove(model);
  return true;
}

int ModelManager::Impl::num_loaded() const {
  return static_cast<int>(std::count_if(models.begin(), models.end(), [](const auto& entry) {
    return entry.second->engine != nullptr;
  }));
}

void ModelManager::Impl::tell_outcome(const Result<void>& outcome) {
  if (on_loaded && !stopping) on_loaded(outcome);
}

ModelLimits ModelManager::Impl::limits_at_most(const ServedModel& served) {
  ModelLimits most = served.limits;
  most.context_length = std::max(most.context_length, served.description.trained_context_length);
  return most;
}

// What is on this machine does not wait for what is not: that may take as long as its server likes.
Result<ServedModel> ModelManager::Impl::fetch(const std::string& name,
                                              const ModelFactory::DownloadProgress& progress) {
  const bool is_here = guarded([&] { return factory->find(name); }).ok();
  if (!is_here) {
    const Lock lock(mutex);
    if (num_fetching >= kFetchesMax) {
      return Error{ErrorCode::kInvalid, "overloaded: " + std::to_string(kFetchesMax) +
                                            " models are being fetched; retry later"};
    }
    ++num_fetching;
  }
  Result<ServedModel> served = guarded([&] { return factory->fetch(name, progress); },
                                       quoted_name(name) + " cannot be fetched: ");
  if (!is_here) {
    const Lock lock(mutex);
    --num_fetching;
  }
  return served;
}

void ModelManager::Impl::load_by_name(Pending& from) {
  const auto is_this = [&](const auto& entry) { return entry.second.get() == &from; };
  bool deserted = false;
  // A download for which nobody waits any more is given up; what has come stays on the disk, and
  // the next request goes on from there.
  const auto progress = [&](const DownloadState& state) {
    {
      const Lock lock(mutex);
      from.download = state;
      if (is_auto && !deserted && from.gate->close_if_deserted()) {
        deserted = true;
        std::erase_if(pending, is_this);
      }
    }
    from.gate->tell_progress(state.percent() * kDownloadShare / 100);
    return !deserted && !stopping;
  };
  Result<ServedModel> served = fetch(from.name, progress);
  if (deserted) return;
  if (!served) {
    {
      const Lock lock(mutex);
      std::erase_if(pending, is_this);
      if (!stopping) remember_failure(from.name, served.error().message);
    }
    from.gate->fail({served.error().code, "model: " + served.error().message});
    return tell_outcome(served.error());
  }
  Model* own = nullptr;
  while (own == nullptr) {
    std::shared_ptr<RequestGate> other;
    {
      const Lock lock(mutex);
      if (stopping) return;
      std::erase_if(pending, is_this);
      const auto same = models.find(served->key);
      if (same == models.end()) {
        own = &add_model(from, std::move(*served));
      } else {
        remember_name(*same->second, from.name);
        other = same->second->gate;
      }
    }
    if (other != nullptr && from.gate->forward_to(other)) return;
  }
  // What would not fit a model's longest context is refused now.
  own->gate->set_limits(limits_at_most(own->served));
  bring_in(*own);
}

void ModelManager::Impl::bring_in(Model& model) {
  Lock lock(mutex);
  const Result<std::optional<std::int64_t>> kv_bytes = make_room(lock, model);
  auto ended = std::exchange(ended_engines, {});
  if (kv_bytes && *kv_bytes && **kv_bytes > 0 && model.served.context_of) {
    model.served.limits.context_length = model.served.context_of(**kv_bytes);
  }
  lock.unlock();
  ended.clear();
  if (!kv_bytes) return give_up(model, kv_bytes.error());
  if (!*kv_bytes) return;
  const Result<void> loaded =
      guarded([&] { return load(model, **kv_bytes); }, "cannot be loaded: ");
  if (!loaded) {
    give_back_memory();
    give_up(model, loaded.error());
  }
  lock.lock();
  end_turn();
}

bool ModelManager::Impl::take_turn(Lock& lock, Model& model) {
  while (!stopping && !drop_if_deserted(model)) {
    if (!std::exchange(turn_taken, true)) return true;
    changed.wait(lock);
  }
  return false;
}

void ModelManager::Impl::end_turn() {
  turn_taken = false;
  ++num_changes;
  changed.notify_all();
}

// Whoever waits for room lets others have the turn: what fits beside the models in use, or is no
// larger than what is idle, does not wait behind it.
Result<std::optional<std::int64_t>> ModelManager::Impl::make_room(Lock& lock, Model& model) {
  std::optional<Clock::time_point> deadline;  // from the first look on
  Result<std::optional<std::int64_t>> room = std::optional<std::int64_t>();
  ++num_for_room;
  while (take_turn(lock, model)) {
    room = look_for_room(lock, model);
    if (room && *room) break;
    if (!deadline) deadline = Clock::now() + kRoomWaitMax;
    if (room && Clock::now() >= *deadline) {
      room = Error{ErrorCode::kInvalid,
                   "overloaded: " + names_ready() + " are in use and leave no room for " +
                       quoted_name(model.served.description.name) + "; retry later"};
    }
    // Nothing has become free by this look: those who wait for room are not to look again for it.
    turn_taken = false;
    changed.notify_all();
    if (!room) break;
    const std::uint64_t seen = num_changes;
    changed.wait_until(lock, *deadline, [&] { return stopping || num_changes != seen; });
  }
  --num_for_room;
  return room;
}

Result<std::optional<std::int64_t>> ModelManager::Impl::look_for_room(Lock& lock,
                                                                      const Model& model) {
  if (!is_auto) return std::optional<std::int64_t>(0);
  const MemoryNeed& need = model.served.memory;
  const std::string why = "to make room for " + quoted_name(model.served.description.name);
  for (;;) {
    // From the last of these to the caller's wait the lock is held, so that no end of a stream is
    // missed.
    const std::int64_t free_bytes = free_bytes_now(lock);
    if (const Result<void> fits = check_fits(model.served, free_bytes); !fits) return fits.error();
    const bool has_seat = num_loaded() < options.max_models;
    const auto room = has_seat ? kv_budget(need, free_bytes, false) : std::nullopt;
    if (room) return room;
    if (unload_least_recently_used(lock, why)) continue;
    return has_seat ? kv_budget(need, free_bytes, true) : std::nullopt;
  }
}

std::int64_t ModelManager::Impl::free_bytes_now(Lock& lock) const {
  std::int64_t promised = 0;
  for (const auto& [key, model] : models) {
    if (model->engine != nullptr) promised += promised_bytes(*model->engine);
  }
  lock.unlock();
  const std::optional<std::int64_t> free = factory->free_memory_bytes();
  lock.lock();
  return free ? *free - promised : kUnknownFreeBytes;
}

// Nothing is unloaded for what would not fit even then.
Result<void> ModelManager::Impl::check_fits(const ServedModel& served,
                                            std::int64_t free_bytes) const {
  for (const auto& [key, model] : models) {
    if (model->engine != nullptr) free_bytes += held_bytes(model->served, *model->engine);
  }
  const MemoryNeed& need = served.memory;
  const std::int64_t needed = need.weights_bytes + std::max(need.kv_bytes_min, need.kv_bytes);
  if (needed <= free_bytes) return {};
  return Error{ErrorCode::kInvalid,
               quoted_name(served.description.name) + " needs about " + gib_text(needed) +
                   " of memory (weights " + gib_text(need.weights_bytes) + "), and " +
                   gib_text(std::max<std::int64_t>(0, free_bytes)) +
                   " are free; free some, or choose a narrower --dtype or a smaller --kv-cache"};
}

Result<void> ModelManager::Impl::load(Model& model, std::int64_t kv_bytes) {
  const Clock::time_point begin = Clock::now();
  model.gate->set_limits(model.served.limits);
  const auto progress = [&](int percent) {
    model.gate->tell_progress(
        model.downloaded ? kDownloadShare + percent * (100 - kDownloadShare) / 100 : percent);
    return !stopping;
  };
  auto agent = model.served.load(kv_bytes, progress);
  if (!agent) return agent.error();
  Result<void> started = start_engine(model, std::move(*agent), kv_bytes);
  if (!started) return started;
  keeper_wake.notify_all();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  if (is_auto) {
    // It cannot be unloaded before the turn ends.
    const scheduler::AgentInfo info = model.engine->stats().agent;
    log::info("loaded " + quoted_name(model.served.description.name) + " in " +
              std::to_string(ms.count()) + " ms: " + info.device + ", " + info.dtype +
              ", KV cache " + gib_text(info.kv_bytes) + ", context " +
              std::to_string(model.served.limits.context_length) + " tokens");
  }
  tell_outcome({});
  return {};
}

Result<void> ModelManager::Impl::start_engine(Model& model,
                                              std::unique_ptr<scheduler::ModelAgent> agent,
                                              std::int64_t kv_bytes) {
  const auto handed = std::make_shared<std::unique_ptr<scheduler::ModelAgent>>(std::move(agent));
  const std::shared_ptr<RequestGate> gate = model.gate;
  std::promise<Result<void>> reached;
  std::promise<std::optional<EngineInstance>> published;
  std::promise<Result<void>> opened;
  auto engine = std::make_unique<Engine>(
      model.served.limits, model.served.options,
      [this, handed, gate, key = model.served.key,
       kv_bytes](const scheduler::LoadProgress& progress)
          -> Result<std::unique_ptr<scheduler::ModelAgent>> {
        if (*handed != nullptr) return std::move(*handed);
        return load_again(key, *gate, kv_bytes, progress);
      },
      // The gate is opened on the engine's thread, so that its first step has all that waited, and
      // when everybody can see that the model is ready.
      [&](const Result<void>& outcome) {
        reached.set_value(outcome);
        opened.set_value(guarded([&]() -> Result<void> {
          if (const auto instance = published.get_future().get()) gate->open(*instance);
          return {};
        }));
      });
  // An engine that is stopped before it gets there would never call: nobody can know it yet.
  Result<void> made = reached.get_future().get();
  const EngineInstance instance = engine->instance();
  if (made) {
    const Lock lock(mutex);
    const std::string& name = model.served.description.name;
    std::erase_if(failures, [&](const Failure& failure) { return failure.name == name; });
    if (!stopping) model.engine = std::move(engine);
  }
  published.set_value(engine == nullptr ? std::optional(instance) : std::nullopt);
  Result<void> open = opened.get_future().get();
  if (!made) return made;
  if (engine != nullptr) return shutting_down();
  return open;
}

// On the loading thread of an engine whose device was lost, and with it all that the model had
// there. Meanwhile the model may be unloaded. Where it does not come back, it is as if it had never
// been loaded: the next request for it begins anew.
Result<std::unique_ptr<scheduler::ModelAgent>> ModelManager::Impl::load_again(
    const std::string& key, const RequestGate& gate, std::int64_t kv_bytes,
    const scheduler::LoadProgress& progress) {
  Lock lock(mutex);
  const auto find_model = [&]() -> Model* {
    const auto found = models.find(key);
    return found != models.end() && found->second->gate.get() == &gate ? found->second.get()
                                                                       : nullptr;
  };
  changed.wait(lock, [&] { return !turn_taken || stopping || find_model() == nullptr; });
  Model* const model = find_model();
  if (stopping || model == nullptr) return shutting_down();
  turn_taken = true;  // the model stays where it is
  lock.unlock();
  auto agent =
      guarded([&] { return model->served.load(kv_bytes, progress); }, "cannot be loaded: ");
  if (!agent) give_back_memory();
  lock.lock();
  if (!agent && !stopping) {
    const std::string name = model->served.description.name;
    log::error(quoted_name(name) + " was not loaded again: " + agent.error().message);
    remember_failure(name, agent.error().message);
    model->gate->close();
    ended_engines.push_back(std::move(model->engine));  // which waits for this thread when it ends
    remove(*model);
    end_turn();
    lock.unlock();
    if (on_gone) on_gone(agent.error().message);
    return Error{agent.error().code, "model: " + agent.error().message};
  }
  end_turn();
  return agent;
}

void ModelManager::Impl::give_up(Model& model, const Error& error) {
  const std::shared_ptr<RequestGate> gate = model.gate;
  const std::string name = model.served.description.name;
  std::unique_ptr<Engine> engine;  // ends outside the lock, should there be one
  {
    const Lock lock(mutex);
    engine = std::move(model.engine);
    remove(model);
    if (!stopping) remember_failure(name, error.message);
  }
  if (is_auto && !stopping) log::warning(quoted_name(name) + " was not loaded: " + error.message);
  gate->fail({error.code, "model: " + error.message});
  gate->close();
  tell_outcome(error);
}

}  // namespace lmtp::engine
