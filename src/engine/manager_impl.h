// What the ModelManager keeps. model_manager.cpp answers requests from it, model_loader.cpp brings
// models in and out.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/base/bounded_queue.h"
#include "lmtp/engine/model_manager.h"
#include "request_gate.h"

namespace lmtp::engine {

// Locks are taken in the order mutex, then a gate's; sinks, engines and the factory are called with
// neither held.
struct ModelManager::Impl {
  using Clock = RequestGate::Clock;
  using Lock = std::unique_lock<std::mutex>;

  // A name of which it is not yet known what model it means.
  struct Pending {
    std::string name;
    std::shared_ptr<RequestGate> gate;
    std::optional<DownloadState> download;  // nothing: all was here
  };
  // A model that was found: waiting for its turn, being loaded, or ready (it has an engine then).
  // One gate for all of its names. Removed by its loader, or once ready by whoever has the turn.
  struct Model {
    ServedModel served;
    std::deque<std::string> names;  // that lead here at once, oldest first
    std::shared_ptr<RequestGate> gate;
    std::unique_ptr<Engine> engine;
    bool downloaded = false;
  };
  struct Loader {
    std::thread thread;
    bool done = false;
  };
  struct Lookup {
    std::string name;
    std::function<void(Result<ModelStatus>)> done;
  };
  struct Failure {
    std::string name;
    std::string error;
  };
  // Where a name leads now: one of the two, or nowhere.
  struct Found {
    const Model* model = nullptr;
    std::shared_ptr<const Pending> pending;

    bool nowhere() const { return model == nullptr && pending == nullptr; }
    std::shared_ptr<RequestGate> gate() const { return model ? model->gate : pending->gate; }
    std::string name() const { return model ? model->served.description.name : pending->name; }
  };

  Impl(std::unique_ptr<ModelFactory> factory_in, AutoOptions options_in, bool is_auto_in)
      : factory(std::move(factory_in)), options(std::move(options_in)), is_auto(is_auto_in) {}

  // model_manager.cpp; with the mutex held.
  Found find(const std::string& name) const;
  // What a request means that names no model; nowhere: options.default_model.
  std::variant<Found, Refusal> find_sole() const;
  // As find or find_sole; in an auto server a name that leads nowhere is begun to be loaded.
  std::variant<Found, Refusal> find_or_load(const std::string& name);
  Error unknown_name(const std::string& name) const;
  std::string names_ready() const;
  const Failure* failure_of(const std::string& name) const;
  static ModelStatus status_of(const Found& found);
  // Before its memory is known, and with it the context that is served.
  static ModelLimits limits_at_most(const ServedModel& served);

  // model_manager.cpp; the lookup's thread.
  void run_lookups();
  Result<ModelStatus> look_up(const std::string& name);

  // model_loader.cpp; with the mutex held.
  Result<void> start_loader(std::function<void()> work);
  Result<std::shared_ptr<Pending>> begin_load(const std::string& name);
  Model& add_model(Pending& pending, ServedModel served);
  void remember_name(Model& model, const std::string& name);
  void remove(Model& model);
  void remember_failure(const std::string& name, const std::string& error);
  bool drop_if_deserted(Model& model);
  int num_loaded() const;
  void end_turn();

  // model_loader.cpp; a loader's thread.
  void load_by_name(Pending& pending);
  void bring_in(Model& model);
  Result<ServedModel> fetch(const std::string& name,
                            const ModelFactory::DownloadProgress& progress);
  // False: nobody wants it any more and it has been removed, or the server is stopping.
  bool take_turn(Lock& lock, Model& model);
  // The KV cache's bytes and the turn, once there is room. An error or nothing, as take_turn's
  // false: then without the turn.
  Result<std::optional<std::int64_t>> make_room(Lock& lock, Model& model);
  // With the turn: unloads what it takes; nothing where that was not enough.
  Result<std::optional<std::int64_t>> look_for_room(Lock& lock, const Model& model);
  // What may still be taken, without what is promised to loaded models. Unlocks while it looks.
  std::int64_t free_bytes_now(Lock& lock) const;
  Result<void> check_fits(const ServedModel& served, std::int64_t free_bytes) const;
  Result<void> load(Model& model, std::int64_t kv_bytes);
  Result<void> start_engine(Model& model, std::unique_ptr<scheduler::ModelAgent> agent,
                            std::int64_t kv_bytes);
  Result<std::unique_ptr<scheduler::ModelAgent>> load_again(
      const std::string& key, const RequestGate& gate, std::int64_t kv_bytes,
      const scheduler::LoadProgress& progress);
  void give_up(Model& model, const Error& error);
  std::shared_ptr<RequestGate> make_gate();
  void tell_outcome(const Result<void>& outcome);

  // model_unloader.cpp; with the mutex held and the turn taken. They unlock while they unload.
  bool unload(Lock& lock, Model& model, const std::string& why);
  bool unload_least_recently_used(Lock& lock, const std::string& why);

  // model_unloader.cpp; the keeper's thread.
  void run_keeper();
  Clock::time_point unload_due(Clock::time_point now) const;
  void unload_idle(Lock& lock);

  const std::unique_ptr<ModelFactory> factory;
  const AutoOptions options;
  const bool is_auto;
  std::string only_name;                               // not auto
  std::function<void(const Result<void>&)> on_loaded;  // not auto
  std::function<void(const std::string&)> on_gone;     // not auto

  mutable std::mutex mutex;
  std::condition_variable changed;      // the turn, a model's use, what waits
  std::condition_variable keeper_wake;  // a model is ready
  std::atomic<bool> stopping = false;
  std::atomic<int> num_for_room = 0;  // loaders that wait for `changed`
  // Loading and unloading take turns, so that each finds the memory as the last one left it.
  bool turn_taken = false;
  std::uint64_t num_changes = 0;  // of what may give room to those who wait for it
  std::size_t num_fetching = 0;   // loaders whose model is not on this machine
  std::unordered_map<std::string, std::unique_ptr<Model>> models;  // by key
  std::unordered_map<std::string, Model*> names;
  std::unordered_map<std::string, std::shared_ptr<Pending>> pending;  // by name
  std::deque<Failure> failures;                                       // oldest first
  std::list<Loader> loaders;
  // Of models that were lost with their device; the next loader, or stop(), lets go of them.
  std::vector<std::unique_ptr<Engine>> ended_engines;
  std::thread keeper;
  std::thread lookup_thread;
  BoundedQueue<Lookup> lookups{kLookupsMax};
  std::mutex stop_mutex;
};

// What free() has kept for later goes back to the system now.
void give_back_memory();

// A name in an error: it comes from a stranger and may be long.
std::string quoted_name(const std::string& name);

}  // namespace lmtp::engine
