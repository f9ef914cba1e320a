// Requests, names and jobs; what becomes of models is in model_loading.cpp.
#include "registry_actor.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "lmtp/base/text.h"
#include "lmtp/engine/refusals.h"

namespace lmtp::registry {
namespace {

// After a turn that failed for lack of memory the next one comes this soon.
constexpr std::chrono::milliseconds kRetryTime{100};

// A cancel returns when the actor has seen to it, so that a stream of the same id that comes later
// is not taken for this one.
class ActorLink final : public RouteOwner {
 public:
  explicit ActorLink(std::shared_ptr<Mailbox> actor) : actor_(std::move(actor)) {}
  void cancel(StreamKey key) override {
    actor_->ask([key](RegistryActor& actor) {
      actor.cancel(key);
      return true;
    });
  }
  void cancel_later(StreamKey key) override {
    actor_->post([key](RegistryActor& actor) { actor.cancel(key); });
  }
  void became_idle() noexcept override {
    if (!actor_->wants_memory.exchange(false)) return;
    try {
      actor_->post([](RegistryActor& actor) { actor.look_for_memory_again(); });
    } catch (const std::bad_alloc&) {
      actor_->wants_memory = true;  // the next end sends it
    }
  }

 private:
  const std::shared_ptr<Mailbox> actor_;
};

}  // namespace

std::shared_ptr<RouteOwner> make_route_owner(std::shared_ptr<Mailbox> actor) {
  return std::make_shared<ActorLink>(std::move(actor));
}

RegistryActor::RegistryActor(ModelFactory& factory, Options options,
                             std::shared_ptr<Mailbox> mailbox, PublishedDirectory& published,
                             RefusalCounts& refusals)
    : factory_(factory),
      options_(std::move(options)),
      mailbox_(std::move(mailbox)),
      link_(make_route_owner(mailbox_)),
      published_(published),
      refusals_(refusals) {
  if (!options_.is_auto) {
    const std::vector<std::string>& served = options_.only.served_names;
    const auto slot =
        std::make_shared<ModelSlot>(served.empty() ? options_.only.name : served.front(),
                                    options_.limits.max_waiting_requests, refusals_);
    slots_.push_back(slot);
    if (options_.only.found) {
      add_found(slot, *options_.only.found);
    } else {
      for (const std::string& name : served) remember_name(*slot, name);
      remember_name(*slot, options_.only.name);
      remember_name(*slot, std::string(last_component(options_.only.name)));
      const Result<void> started = seek(slot);
      LMTP_CHECK(started.ok(), "the first thread of the process");
    }
  }
  publish();
}

void RegistryActor::run() {
  while (!stopping_ || !jobs_.empty()) {
    std::optional<Clock::time_point> due;
    if (handle([](RegistryActor& actor) { actor.start_next(); })) {
      due = next_due();
    } else {
      look_again_ = true;
      due = Clock::now() + kRetryTime;
    }
    // Taking them needs memory; where there is none they stay where they are.
    (void)guarded([&]() -> Result<void> {
      for (const Mailbox::Message& message :
           due ? mailbox_->queue.wait_drain_until(*due) : mailbox_->queue.wait_drain()) {
        handle(message);
      }
      return {};
    });
  }
  mailbox_->queue.close();
  for (const Mailbox::Message& message : mailbox_->queue.drain()) handle(message);
}

// What throws, for lack of memory as a rule, must not take the other models along.
bool RegistryActor::handle(const Mailbox::Message& message) {
  const Result<void> handled = guarded([&]() -> Result<void> {
    message(*this);
    publish();
    return {};
  });
  if (handled) return true;
  (void)guarded([&]() -> Result<void> {
    log::error("the registry failed: " + handled.error().message);
    return {};
  });
  return false;
}

void RegistryActor::publish() {
  if (!changed_) return;
  auto directory = std::make_shared<Directory>();
  directory->is_auto = options_.is_auto;
  directory->stopping = stopping_;
  directory->hides_path = !options_.only.served_names.empty();
  directory->only_name =
      directory->hides_path ? options_.only.served_names.front() : options_.only.name;
  directory->default_name = options_.limits.default_model.name;
  if (!options_.is_auto && !failures_.empty()) directory->only_failure = failures_.back().error;
  for (const Slot& slot : slots_) {
    auto entry = std::make_shared<ModelEntry>();
    entry->name = slot->served ? slot->served->description.name : slot->name;
    entry->served = slot->served;
    if (slot->served) entry->limits_at_most = limits_at_most(*slot->served);
    entry->sized = slot->sized;
    entry->route = slot->route;
    entry->texts = slot->texts;
    entry->comes_back = slot->comes_back;
    entry->counters = slot->counters;
    entry->load = slot->load;
    entry->slot = slot;
    entry->adapters = slot->adapters;
    for (const std::string& name : slot->names) directory->names[name] = entry;
    for (const ServedAdapter& one : slot->adapters) {
      directory->names.try_emplace(one.source.name, entry);
    }
    directory->entries.push_back(std::move(entry));
  }
  directory_ = directory;
  published_.set(std::move(directory));
  changed_ = false;
}

Result<void> RegistryActor::start_job(std::function<void()> work, Mailbox::Message then) {
  const auto job = jobs_.emplace(jobs_.end());
  try {
    Mailbox::Message done = [job, then = std::move(then)](RegistryActor& actor) {
      job->join();  // it has reported: this does not block
      actor.jobs_.erase(job);
      then(actor);
    };
    *job = runtime::Thread([this, work = std::move(work), done = std::move(done)]() mutable {
      (void)guarded([&]() -> Result<void> {
        work();
        return {};
      });
      mailbox_->report(std::move(done));
    });
  } catch (const std::exception& e) {
    jobs_.erase(job);
    return Error{ErrorCode::kOverloaded,
                 std::string("overloaded: no thread can be started: ") + e.what()};
  }
  return {};
}

Submission RegistryActor::submit(Request& request, const engine::ModelLimits* checked) {
  if (stopping_) return Refusal{engine::shutting_down()};
  publish();  // where that has failed before
  const Directory::Meaning meaning = directory_->find(request.model);
  if (const auto* refusal = std::get_if<Refusal>(&meaning)) return *refusal;
  const auto& entry = std::get<0>(meaning);
  Slot slot = entry != nullptr ? entry->slot : nullptr;
  if (slot == nullptr) {
    if (request.model.empty()) request.model = options_.limits.default_model.name;
    const Result<Slot> begun = begin(request.model);
    if (!begun) return Refusal{begun.error()};
    slot = *begun;
  } else {
    if (request.model.empty()) request.model = entry->name;  // for notices
    const engine::ModelLimits* limits = entry->limits();
    if (limits != nullptr && limits != checked) {
      if (const Result<void> ok = engine::check_request(request, *limits); !ok) {
        return Refusal{ok.error()};
      }
    }
  }
  if (slot->route != nullptr) {
    const Result<bool> given = give_adapter(slot, request);
    if (!given) return Refusal{given.error()};
    if (!*given) return std::shared_ptr<StreamCanceller>(link_);
    const Result<bool> taken = submit_to(*slot->route, request);
    if (!taken) return Refusal{taken.error()};
    if (*taken) return std::shared_ptr<StreamCanceller>(slot->route);
  }
  // Where a model is ready and its engine takes nothing, its device was lost, and the message that
  // says so is on its way.
  if (const Result<void> kept = keep(*slot, request); !kept) return Refusal{kept.error()};
  return std::shared_ptr<StreamCanceller>(link_);
}

Result<void> RegistryActor::keep(ModelSlot& slot, Request& request) {
  if (slot.phase == Phase::kGone) {
    return Error{ErrorCode::kUnavailable, quoted_name(slot.name) + " was unloaded; retry"};
  }
  // Of a model that was ready and is lost, nothing is there any more.
  Result<void> added = slot.waiting.add(request, slot.route ? 0 : slot.load->percent.load());
  slot.count_waiting();
  return added;
}

void RegistryActor::cancel(StreamKey key) {
  for (const Slot& slot : std::vector(slots_)) {
    if (!slot->waiting.cancel(key)) continue;
    slot->count_waiting();
    remove_if_not_waited_for(*slot);
    return;
  }
  // It has been handed to an engine since, or has ended.
  for (const Slot& slot : slots_) {
    if (slot->route == nullptr || slot->route->engine().cancel(key)) continue;
    slot->late_cancels.push_back(key);
  }
}

Result<ModelStatus> RegistryActor::status_of(const std::string& name,
                                             const Result<ServedModel>& found) {
  if (stopping_) return engine::shutting_down();
  const auto named = directory_->names.find(name);
  if (named != directory_->names.end()) return named->second->status(false);
  for (const auto& entry : directory_->entries) {
    if (found && entry->served && entry->served->key == found->key) return entry->status(false);
  }
  if (!found) return Error{found.error().code, "model: " + found.error().message};
  ModelStatus status;
  status.description = found->description;
  status.limits = found->limits;
  const auto failure = std::find_if(failures_.begin(), failures_.end(),
                                    [&](const Failure& f) { return f.name == name; });
  if (failure != failures_.end()) {
    status.state = ModelState::kFailed;
    status.error = failure->error;
  }
  return status;
}

void RegistryActor::stop(Clock::time_point deadline) {
  if (std::exchange(stopping_, true)) return;
  gives_up_ = true;
  changed_ = true;
  Error error{ErrorCode::kStopping, "shutting down"};
  (void)guarded([&]() -> Result<void> {
    error = engine::shutting_down();
    publish();
    return {};
  });
  for (const Slot& slot : slots_) {
    slot->load->given_up = true;
    // What waits for a model that is still being loaded cannot finish in time.
    slot->waiting.end_all(error, false);
    slot->count_waiting();
    if (slot->engine == nullptr) continue;
    // Where that throws, the engine has ended at once.
    (void)guarded([&]() -> Result<void> {
      retire(std::move(slot->engine), deadline, [](RegistryActor&) {});
      return {};
    });
  }
}

Result<RegistryActor::Slot> RegistryActor::begin(const std::string& name) {
  const auto is_loading = [](const Slot& slot) {
    return (slot->phase == Phase::kWaiting || slot->phase == Phase::kLoading) && !slot->comes_back;
  };
  const auto num_busy =
      num_seeks_ - num_fetching_ + std::count_if(slots_.begin(), slots_.end(), is_loading);
  if (num_busy >= kLoadersMax) {
    return Error{ErrorCode::kOverloaded, "overloaded: " + std::to_string(kLoadersMax) +
                                             " models are being sought or loaded; retry later"};
  }
  const auto slot =
      std::make_shared<ModelSlot>(name, options_.limits.max_waiting_requests, refusals_);
  slots_.push_back(slot);
  const Result<void> started = guarded([&] {
    remember_name(*slot, name);
    return seek(slot);
  });
  if (!started) {
    remove(*slot);
    return started.error();
  }
  publish();
  return slot;
}

void RegistryActor::remove(ModelSlot& slot) {
  slot.phase = Phase::kGone;
  slot.load->given_up = true;
  std::erase_if(slots_, [&](const Slot& other) { return other.get() == &slot; });
  changed_ = look_again_ = true;
}

void RegistryActor::remember_name(ModelSlot& slot, const std::string& name) {
  changed_ = true;
  const bool is_known = std::any_of(slots_.begin(), slots_.end(), [&](const Slot& other) {
    return std::find(other->names.begin(), other->names.end(), name) != other->names.end();
  });
  if (is_known) return;
  if (options_.is_auto && slot.names.size() >= kNamesPerModelMax) slot.names.pop_front();
  slot.names.push_back(name);
}

void RegistryActor::remember_failure(const std::string& name, const std::string& error) {
  forget_failure(name);
  if (failures_.size() >= kFailuresMax) failures_.pop_front();
  failures_.push_back({name, error});
  changed_ = true;
}

void RegistryActor::forget_failure(const std::string& name) {
  std::erase_if(failures_, [&](const Failure& failure) { return failure.name == name; });
}

}  // namespace lmtp::registry
