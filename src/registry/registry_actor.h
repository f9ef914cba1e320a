// RegistryActor: the one thread that knows every model's state and decides what becomes of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "directory.h"
#include "lmtp/base/runtime.h"
#include "lmtp/engine/engine.h"
#include "lmtp/registry/registry.h"
#include "mailbox.h"
#include "memory_plan.h"
#include "model_route.h"
#include "waiting_requests.h"

namespace lmtp::registry {

// kSeeking -> kWaiting -> kLoading -> kReady; kReady -> kWaiting where its device is lost. A slot
// that fails, is unloaded or has no requests to wait for it goes from any phase to kGone.
enum class Phase {
  kSeeking,  // what its name means, with its download
  kWaiting,  // for its turn, or for memory
  kLoading,
  kReady,
  kGone,  // removed; messages about it that come later are dropped
};

// A name that is being sought, or a model. Owner: the actor; jobs keep it alive.
struct ModelSlot {
  ModelSlot(std::string name_in, std::size_t max_waiting, RefusalCounts& refusals)
      : name(std::move(name_in)), waiting(max_waiting, refusals) {}

  std::string name;  // as it was asked for
  Phase phase = Phase::kSeeking;
  std::shared_ptr<LoadState> load = std::make_shared<LoadState>();
  WaitingRequests waiting;
  std::deque<std::string> names;  // found without a look-up, oldest first; no other slot has them

  std::shared_ptr<const ServedModel> served;  // from kWaiting on
  bool sized = false;                         // as ModelEntry's
  std::optional<Clock::time_point> memory_deadline;
  Clock::time_point load_begin;
  std::int64_t kv_bytes = 0;
  bool comes_back = false;  // its device was lost: it gets what it had
  std::shared_ptr<const engine::EngineCounters> counters;  // of the engines that it has lost

  std::unique_ptr<engine::Engine> engine;    // kReady
  std::shared_ptr<ModelRoute> route;         // kReady
  std::vector<ServedAdapter> adapters;       // from kReady on they have been read, or dropped
  int num_adapters_read = 0;                 // jobs that read one by request
  std::shared_ptr<const LoadedTexts> texts;  // from kReady on, also while it comes back
  // Cancels that came after the engine had closed and before it reported that it is lost.
  std::vector<StreamKey> late_cancels;

  void count_waiting() { load->num_waiting = static_cast<int>(waiting.size()); }
};

// What routes of a registry with that mailbox ask goes to its actor.
std::shared_ptr<RouteOwner> make_route_owner(std::shared_ptr<Mailbox> actor);

// Owner: Registry, which runs run() on a thread; all else is called there, by messages. It never
// waits for a disk, a network, an engine or a lock that is held for long: that is done by jobs, on
// threads of their own.
class RegistryActor {
 public:
  struct Options {
    bool is_auto = true;
    AutoOptions limits;
    OnlyModel only;  // not auto
  };
  RegistryActor(ModelFactory& factory, Options options, std::shared_ptr<Mailbox> mailbox,
                PublishedDirectory& published, RefusalCounts& refusals);

  // Until it has been stopped and all jobs have ended.
  void run();

  // registry_actor.cpp: requests.
  // `checked`: limits that the request has been checked against, or null. Moved from where taken.
  Submission submit(Request& request, const engine::ModelLimits* checked);
  void cancel(StreamKey key);
  // What is known of a name that has been looked up.
  Result<ModelStatus> status_of(const std::string& name, const Result<ServedModel>& found);
  void stop(Clock::time_point deadline);

  // adapters.cpp
  void load_adapter(const AdapterSource& source, const std::string& base, bool may_replace,
                    const Registry::AdapterDone& done);
  void unload_adapter(const std::string& name, const Registry::AdapterDone& done);

  // model_loading.cpp: what jobs and engines report.
  void progressed(ModelSlot& slot);
  void found(const std::shared_ptr<ModelSlot>& slot, Result<ServedModel> served);
  void loaded(const std::shared_ptr<ModelSlot>& slot,
              Result<std::unique_ptr<scheduler::ModelAgent>> agent);
  void lost(const std::shared_ptr<ModelSlot>& slot, std::vector<Request> unanswered);
  void look_for_memory_again() { look_again_ = true; }

 private:
  using Slot = std::shared_ptr<ModelSlot>;

  // registry_actor.cpp
  // False if it threw: the message's work may not have been done.
  bool handle(const Mailbox::Message& message);
  void publish();
  // Runs `work` on a new thread, and then `then` on the actor's, even if `work` throws.
  Result<void> start_job(std::function<void()> work, Mailbox::Message then);
  Result<Slot> begin(const std::string& name);
  Result<void> keep(ModelSlot& slot, Request& request);
  void remove(ModelSlot& slot);
  void remember_name(ModelSlot& slot, const std::string& name);
  void remember_failure(const std::string& name, const std::string& error);
  void forget_failure(const std::string& name);

  // adapters.cpp
  using AdapterRead = std::function<void(RegistryActor&, Result<std::shared_ptr<const Adapter>>)>;
  Result<Slot> slot_for(const AdapterSource& source, const std::string& base,
                        bool may_replace) const;
  Result<void> make_place(ModelSlot& slot);
  Result<void> read_adapter(const Slot& slot, const AdapterSource& source, AdapterRead done);
  Result<void> add_adapter(const Slot& slot, const AdapterSource& source, bool may_replace,
                           std::shared_ptr<const Adapter> adapter);
  Result<bool> give_adapter(const Slot& slot, Request& request);
  Result<void> read_again(const Slot& slot, ServedAdapter& adapter);
  void submit_waiting(ModelSlot& slot, const ServedAdapter& adapter);
  std::vector<Request> give_adapters(const ModelSlot& slot, std::vector<Request>& requests);
  void submit_again(const ModelSlot& slot, std::vector<Request>& requests);

  // model_loading.cpp
  Result<void> seek(const Slot& slot);
  Result<ServedModel> fetch(const Slot& slot);
  void add_found(const Slot& slot, ServedModel served);
  void merge(ModelSlot& from, ModelSlot& into);
  bool remove_if_not_waited_for(ModelSlot& slot);
  void fail(ModelSlot& slot, const Error& error);
  void start_load(const Slot& slot, std::int64_t kv_bytes);
  Result<void> start_engine(const Slot& slot, std::unique_ptr<scheduler::ModelAgent> agent);
  // Starts the next load or unloading if none is under way.
  void start_next();
  void act(const Slot& slot);
  MemoryState memory_state(std::vector<ModelSlot*>& loaded) const;
  void unload(ModelSlot& slot, const std::string& why);
  void unload_idle();
  void retire(std::unique_ptr<engine::Engine> engine, Clock::time_point deadline,
              Mailbox::Message then);
  std::optional<Clock::time_point> next_due() const;

  ModelFactory& factory_;
  const Options options_;
  const std::shared_ptr<Mailbox> mailbox_;
  const std::shared_ptr<RouteOwner> link_;  // also cancels streams that have waited
  PublishedDirectory& published_;
  RefusalCounts& refusals_;
  std::shared_ptr<const Directory> directory_;  // the latest
  bool changed_ = true;                         // since it was published
  bool stopping_ = false;
  std::atomic<bool> gives_up_ = false;  // stopping: jobs that read adapters should end

  std::vector<Slot> slots_;  // by age
  struct Failure {
    std::string name;
    std::string error;
  };
  std::deque<Failure> failures_;  // oldest first

  std::list<runtime::Thread> jobs_;
  int num_adapter_jobs_ = 0;
  int num_seeks_ = 0;                  // jobs that seek
  std::atomic<int> num_fetching_ = 0;  // of them, those whose model is not on this machine
  // One is loaded or unloaded at a time, so that each finds the memory as the last one left it.
  bool busy_ = false;
  bool look_again_ = false;  // something has changed that may free memory
};

}  // namespace lmtp::registry
