// How models are looked up, loaded and unloaded.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "lmtp/base/text.h"
#include "lmtp/engine/refusals.h"
#include "load_agent.h"
#include "registry_actor.h"

namespace lmtp::registry {
namespace {

// A job's result until the job sets it.
Error no_memory() { return {ErrorCode::kUnavailable, "no memory"}; }

// Returns memory that free() has kept to the system.
void give_back_memory() { malloc_trim(0); }

LoadedModel memory_of(const ModelSlot& slot) {
  LoadedModel memory;
  if (slot.route == nullptr) {  // it comes back
    memory.held_bytes = memory.promised_bytes = slot.served->memory.weights_bytes + slot.kv_bytes;
    memory.idle = slot.waiting.empty();
    return memory;
  }
  const engine::EngineStats stats = slot.engine->stats();
  const ModelRoute::Usage usage = slot.route->usage();
  memory.held_bytes = slot.served->memory.weights_bytes + stats.agent.kv_bytes;
  // A KV cache that takes memory as it is used: the part that has not been used yet.
  if (stats.agent.num_blocks > 0 && !stats.agent.takes_kv_at_once) {
    memory.promised_bytes = stats.agent.kv_bytes / stats.agent.num_blocks * stats.num_blocks_free;
  }
  memory.idle = usage.num_streams == 0 && slot.waiting.empty();
  memory.last_used = usage.last_used;
  return memory;
}

void check_waiting(ModelSlot& slot, const engine::ModelLimits& limits) {
  slot.waiting.check(limits);
  slot.count_waiting();
}

Error too_large(const std::string& name, const MemoryNeed& need, const TooLarge& memory) {
  return {ErrorCode::kUnavailable,
          quoted_name(name) + " needs about " + gib_text(memory.needed_bytes) +
              " of memory (weights " + gib_text(need.weights_bytes) + "), and " +
              gib_text(memory.free_bytes) +
              " are free; free some, or choose a narrower --dtype or a smaller --kv-cache"};
}

void log_loaded(const ModelSlot& slot) {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - slot.load_begin);
  const scheduler::AgentInfo info = slot.engine->stats().agent;
  log::info("loaded " + quoted_name(slot.served->description.name) + " in " +
            std::to_string(ms.count()) + " ms: " + info.device + ", " + info.dtype + ", KV cache " +
            gib_text(info.kv_bytes) + ", context " +
            std::to_string(slot.served->limits.context_length) + " tokens");
}

}  // namespace

Result<void> RegistryActor::seek(const Slot& slot) {
  const auto result = std::make_shared<Result<ServedModel>>(no_memory());
  Result<void> started = start_job([this, slot, result] { *result = fetch(slot); },
                                   [slot, result](RegistryActor& actor) {
                                     --actor.num_seeks_;
                                     actor.found(slot, std::move(*result));
                                   });
  if (started) ++num_seeks_;
  return started;
}

// Runs as a job. Models on this machine do not wait for downloads, which may take any time. A
// download that no request waits for any more is given up; what has arrived stays on the disk, and
// the next request resumes it.
Result<ServedModel> RegistryActor::fetch(const Slot& slot) {
  const std::string prefix = quoted_name(slot->name) + " cannot be fetched: ";
  const std::string& sought = options_.is_auto ? slot->name : options_.only.name;
  const bool is_here = guarded([&] { return factory_.find(sought); }).ok();
  if (!is_here && ++num_fetching_ > kFetchesMax) {
    --num_fetching_;
    return Error{ErrorCode::kOverloaded, "overloaded: " + std::to_string(kFetchesMax) +
                                             " models are being fetched; retry later"};
  }
  const auto progress = [&](const DownloadState& state) {
    LoadState& load = *slot->load;
    load.bytes_done = state.bytes_done;
    load.bytes_total = state.bytes_total;
    const bool is_first = !load.downloads.exchange(true);
    if (load.raise(state.percent() * kDownloadShare / 100) || is_first) {
      mailbox_->post([slot](RegistryActor& actor) { actor.progressed(*slot); });
    }
    return !load.given_up;
  };
  Result<ServedModel> served = guarded([&] { return factory_.fetch(sought, progress); }, prefix);
  if (!is_here) --num_fetching_;
  return served;
}

void RegistryActor::progressed(ModelSlot& slot) {
  if (slot.phase == Phase::kGone || remove_if_not_waited_for(slot)) return;
  slot.waiting.send_progress(slot.load->percent);
}

// A look-up on this disk and a load go on if no request waits any more: the next may come soon.
bool RegistryActor::remove_if_not_waited_for(ModelSlot& slot) {
  const bool may_go = (slot.phase == Phase::kSeeking && slot.load->downloads) ||
                      (slot.phase == Phase::kWaiting && !slot.comes_back);
  if (!options_.is_auto || !may_go || !slot.waiting.empty()) return false;
  remove(slot);
  return true;
}

void RegistryActor::found(const Slot& slot, Result<ServedModel> served) {
  if (stopping_ || slot->phase == Phase::kGone) return;
  const Result<void> added = guarded([&]() -> Result<void> {
    if (!served) return served.error();
    const auto same = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& other) {
      return other->served != nullptr && other->served->key == served->key;
    });
    if (same != slots_.end()) {
      merge(*slot, **same);
    } else {
      add_found(slot, std::move(*served));
    }
    return {};
  });
  if (!added) fail(*slot, added.error());
}

void RegistryActor::add_found(const Slot& slot, ServedModel served) {
  slot->served = std::make_shared<const ServedModel>(std::move(served));
  slot->phase = Phase::kWaiting;
  for (const AdapterSource& source : slot->served->adapters) {
    slot->adapters.push_back({source, nullptr});
  }
  if (!options_.is_auto) {
    slot->names.clear();
    for (const std::string& name : slot->served->names) remember_name(*slot, name);
  }
  // Requests that would not fit the model's longest context are refused now.
  check_waiting(*slot, slot->sized ? slot->served->limits : limits_at_most(*slot->served));
  changed_ = look_again_ = true;
}

// `from` is the model `into` under another name: its waiting requests move there.
void RegistryActor::merge(ModelSlot& from, ModelSlot& into) {
  const std::deque<std::string> names = from.names;
  const engine::ModelLimits most = into.sized ? into.served->limits : limits_at_most(*into.served);
  remove(from);
  for (const std::string& name : names) remember_name(into, name);
  publish();
  for (Request& request : from.waiting.take_all()) {
    Request answer;  // what an error needs of it, if the engine's queue finds no memory
    answer.key = request.key;
    answer.sink = request.sink;
    const Result<void> outcome = guarded([&]() -> Result<void> {
      if (Result<void> ok = engine::check_request(request, most); !ok) return ok;
      if (into.route != nullptr) {
        const Result<bool> submitted = submit_to(*into.route, request);
        if (!submitted) return submitted.error();
        if (*submitted) return {};
      }
      return keep(into, request);
    });
    if (!outcome) end_stream(answer, outcome.error(), refusals_);
  }
}

// Removes the model: the next request for it begins anew. Whatever throws, its slot is removed and
// its streams are answered.
void RegistryActor::fail(ModelSlot& slot, const Error& error) {
  const bool comes_back = slot.comes_back;
  Error reason{error.code, "no memory"};
  remove(slot);
  (void)guarded([&]() -> Result<void> {
    const std::string& name = slot.served ? slot.served->description.name : slot.name;
    // The reason may be about a path, which clients are not to know.
    const std::string told =
        options_.only.served_names.empty()
            ? error.message
            : quoted_name(name) + " could not be loaded; the server's log says why";
    reason.message = "model: " + told;
    if (comes_back) {
      log::error(quoted_name(name) + " was not loaded again: " + error.message);
    } else if (options_.is_auto && slot.served != nullptr) {
      log::warning(quoted_name(name) + " was not loaded: " + error.message);
    }
    remember_failure(name, told);
    publish();
    return {};
  });
  slot.waiting.end_all(reason, !comes_back);
  if (options_.is_auto) return;
  if (comes_back) {
    if (options_.only.on_gone) options_.only.on_gone(error.message);
  } else if (options_.only.on_loaded) {
    options_.only.on_loaded(error);
  }
}

// One model at a time, in order of age. A model that waits for memory does not hold up those behind
// it that fit beside the models in use, or are no larger than what is idle.
void RegistryActor::start_next() {
  if (busy_ || stopping_) return;
  unload_idle();
  bool waits = false;
  mailbox_->wants_memory = true;  // before the look, so that no end of a stream is missed
  do {
    const bool again = std::exchange(look_again_, false);
    waits = false;
    for (const Slot& slot : std::vector(slots_)) {
      if (busy_) return;
      if (slot->phase != Phase::kWaiting || remove_if_not_waited_for(*slot)) continue;
      const bool late = slot->memory_deadline && Clock::now() >= *slot->memory_deadline;
      if (again || late) {
        const Result<void> acted = guarded([&]() -> Result<void> {
          act(slot);
          return {};
        });
        if (!acted) fail(*slot, acted.error());
      }
      waits |= slot->phase == Phase::kWaiting;
    }
  } while (look_again_ && !busy_);
  mailbox_->wants_memory = waits;
}

void RegistryActor::act(const Slot& slot) {
  if (slot->comes_back) return start_load(slot, slot->kv_bytes);
  if (!slot->memory_deadline) {
    slot->memory_deadline =
        Clock::now() + std::chrono::milliseconds(options_.limits.memory_wait_ms);
  }
  std::vector<ModelSlot*> loaded;
  const MemoryState state = memory_state(loaded);
  const std::string name = slot->served->description.name;
  const MemoryDecision decision = decide_memory(slot->served->memory, state);
  if (const auto* now = std::get_if<LoadNow>(&decision)) {
    start_load(slot, now->kv_bytes);
  } else if (const auto* first = std::get_if<UnloadFirst>(&decision)) {
    unload(*loaded[first->which], "to make room for " + quoted_name(name));
  } else if (const auto* large = std::get_if<TooLarge>(&decision)) {
    fail(*slot, too_large(name, slot->served->memory, *large));
  } else if (Clock::now() >= *slot->memory_deadline) {
    fail(*slot, {ErrorCode::kOverloaded, "overloaded: the models in use leave no room for " +
                                             quoted_name(name) + "; retry later"});
  }
}

MemoryState RegistryActor::memory_state(std::vector<ModelSlot*>& loaded) const {
  MemoryState state;
  state.free_bytes = factory_.free_memory_bytes();
  state.max_models = options_.limits.max_models;
  state.is_only = !options_.is_auto;
  for (const Slot& slot : slots_) {
    if (slot->route == nullptr && !slot->comes_back) continue;
    state.loaded.push_back(memory_of(*slot));
    loaded.push_back(slot.get());
  }
  return state;
}

void RegistryActor::start_load(const Slot& slot, std::int64_t kv_bytes) {
  if (slot->served->context_of && !slot->comes_back) {
    auto sized = std::make_shared<ServedModel>(*slot->served);
    sized->limits.context_length = sized->context_of(kv_bytes);
    slot->served = std::move(sized);
  }
  slot->phase = Phase::kLoading;
  slot->sized = true;
  slot->kv_bytes = kv_bytes;
  slot->memory_deadline.reset();
  slot->load_begin = Clock::now();
  changed_ = true;
  check_waiting(*slot, slot->served->limits);
  using Loaded = Result<std::unique_ptr<scheduler::ModelAgent>>;
  const auto agent = std::make_shared<Loaded>(no_memory());
  const auto texts = slot->texts ? nullptr : std::make_shared<LoadedTexts>();
  const auto adapters = std::make_shared<std::vector<ServedAdapter>>(slot->adapters);
  const auto work = [this, slot, agent, texts, adapters, kv_bytes] {
    const auto read_texts = [&] {
      return guarded([&]() -> Result<void> {
        if (texts != nullptr) *texts = load_texts(*slot->served);
        return {};
      });
    };
    // While the weights are read; on a thread of its own if one can be started.
    runtime::Thread reader;
    const runtime::ScopedJoin joins(reader);
    const Result<void> reads = guarded([&]() -> Result<void> {
      reader = runtime::Thread([&] { (void)read_texts(); });
      return {};
    });
    const auto progress = [&](int percent) {
      LoadState& load = *slot->load;
      const int whole = load.downloads && !slot->comes_back
                            ? kDownloadShare + percent * (100 - kDownloadShare) / 100
                            : percent;
      if (load.raise(whole)) {
        mailbox_->post([slot](RegistryActor& actor) { actor.progressed(*slot); });
      }
      return !load.given_up;
    };
    *agent = guarded([&] { return load_agent(*slot, kv_bytes, progress, *adapters); },
                     "cannot be loaded: ");
    if (!*agent) give_back_memory();
    if (!reads) (void)read_texts();
  };
  const Result<void> started =
      start_job(work, [slot, agent, texts, adapters](RegistryActor& actor) {
        if (texts != nullptr) slot->texts = texts;
        slot->adapters = *adapters;
        actor.loaded(slot, std::move(*agent));
      });
  if (!started) return fail(*slot, started.error());
  busy_ = true;
}

void RegistryActor::loaded(const Slot& slot, Result<std::unique_ptr<scheduler::ModelAgent>> agent) {
  busy_ = false;
  look_again_ = true;
  if (stopping_) return;
  if (!agent) return fail(*slot, agent.error());
  const bool comes_back = slot->comes_back;
  const Result<void> started = guarded([&] { return start_engine(slot, std::move(*agent)); });
  if (!started) return fail(*slot, started.error());
  if (!options_.is_auto && !comes_back && options_.only.on_loaded) options_.only.on_loaded({});
}

Result<void> RegistryActor::start_engine(const Slot& slot,
                                         std::unique_ptr<scheduler::ModelAgent> agent) {
  const auto back = std::make_shared<std::vector<Request>>();
  Mailbox::Message is_lost = [weak = std::weak_ptr(slot), back](RegistryActor& actor) {
    if (const Slot lost = weak.lock()) actor.lost(lost, std::move(*back));
  };
  auto engine = std::make_unique<engine::Engine>(
      std::move(agent), slot->served->limits, slot->served->options,
      [mailbox = mailbox_, back, is_lost](std::vector<Request> unanswered) mutable {
        *back = std::move(unanswered);
        mailbox->report(std::move(is_lost));
      },
      slot->counters != nullptr ? *slot->counters : engine::EngineCounters());
  slot->route =
      std::make_shared<ModelRoute>(engine->instance(), options_.limits.max_waiting_requests, link_);
  // From here on nothing throws: the model is ready.
  slot->engine = std::move(engine);
  slot->phase = Phase::kReady;
  slot->comes_back = false;
  slot->load->percent = 100;
  forget_failure(slot->served->description.name);
  changed_ = true;
  // Before any stream ends, so that who sees an end finds the model ready, and in the log.
  (void)guarded([&]() -> Result<void> {
    if (options_.is_auto) log_loaded(*slot);
    publish();
    return {};
  });
  slot->waiting.answer_awaiting();
  std::vector<Request> waiting = slot->waiting.take_all();
  std::vector<Request> later = give_adapters(*slot, waiting);
  if (!slot->route->hand_over(waiting)) {
    // A new engine cannot have stopped yet, so it has found no memory.
    slot->waiting.put_back(std::move(waiting));
    slot->waiting.end_all(no_memory(), false);
  }
  submit_again(*slot, later);
  slot->count_waiting();
  return {};
}

// The device of an engine was lost, with all that the model had there: the model is loaded again in
// its turn, in the same way as at first. Requests that the engine had not begun wait for that; the
// others have been answered.
void RegistryActor::lost(const Slot& slot, std::vector<Request> unanswered) {
  const std::shared_ptr<ModelRoute> route = slot->route;
  slot->engine.reset();  // its last act was this message
  slot->route.reset();
  slot->load->percent = 0;
  if (slot->phase != Phase::kGone) {
    slot->phase = Phase::kWaiting;
    slot->comes_back = true;
  }
  changed_ = look_again_ = true;
  (void)guarded([&]() -> Result<void> {
    slot->counters = std::make_shared<const engine::EngineCounters>(route->engine().stats());
    publish();
    log::error(quoted_name(slot->served->description.name) + ": the device is lost");
    return {};
  });
  for (Request& request : unanswered) {
    route->release(request);
    const Result<void> kept = guarded([&]() -> Result<void> {
      if (stopping_) return engine::shutting_down();
      if (std::erase(slot->late_cancels, request.key) > 0) {
        return Error{ErrorCode::kCancelled, "cancelled"};
      }
      if (request.model.empty()) request.model = slot->served->description.name;  // for notices
      return keep(*slot, request);
    });
    if (!kept) end_stream(request, kept.error(), refusals_);
  }
  slot->count_waiting();
  slot->late_cancels.clear();
}

void RegistryActor::unload(ModelSlot& slot, const std::string& why) {
  if (!slot.waiting.empty()) return;
  const std::string name = slot.served->description.name;
  if (slot.route != nullptr && !slot.route->close_if_idle()) {
    look_again_ = true;  // it has just got a request: another may be idle
    return;
  }
  std::unique_ptr<engine::Engine> engine = std::move(slot.engine);
  remove(slot);
  if (engine == nullptr) return;
  // If this throws, the engine's destructor has ended it.
  retire(std::move(engine), Clock::now(), [name, why](RegistryActor& actor) {
    actor.busy_ = false;
    actor.look_again_ = true;
    log::info("unloaded " + quoted_name(name) + " " + why);
  });
  busy_ = true;
}

void RegistryActor::unload_idle() {
  const std::chrono::milliseconds idle_max(options_.limits.unload_after_ms);
  for (const Slot& slot : idle_max.count() > 0 ? slots_ : std::vector<Slot>()) {
    if (busy_ || slot->route == nullptr || !slot->waiting.empty()) continue;
    const ModelRoute::Usage usage = slot->route->usage();
    if (usage.num_streams > 0 || usage.last_used + idle_max > Clock::now()) continue;
    unload(*slot, "after " + std::to_string(idle_max.count() / 1000) + " s of rest");
  }
}

// Ends the engine in a job, since that takes as long as a step.
void RegistryActor::retire(std::unique_ptr<engine::Engine> engine, Clock::time_point deadline,
                           Mailbox::Message then) {
  const auto ending = std::make_shared<std::unique_ptr<engine::Engine>>(std::move(engine));
  const auto work = [ending, deadline] {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    (*ending)->stop(std::max(0, static_cast<int>(left.count())));
    ending->reset();
    give_back_memory();
  };
  if (start_job(work, then)) return;
  work();
  mailbox_->report(std::move(then));
}

// When a model may have been idle for long enough, or has waited for memory for too long. A request
// only moves this to a later time, so it needs no message.
std::optional<Clock::time_point> RegistryActor::next_due() const {
  if (busy_ || stopping_) return std::nullopt;
  const std::chrono::milliseconds idle_max(options_.limits.unload_after_ms);
  std::optional<Clock::time_point> due;
  const auto by = [&due](Clock::time_point time) { due = due ? std::min(*due, time) : time; };
  for (const Slot& slot : slots_) {
    if (slot->memory_deadline) by(*slot->memory_deadline);
    if (slot->route == nullptr || !slot->waiting.empty() || idle_max.count() <= 0) continue;
    const ModelRoute::Usage usage = slot->route->usage();
    by((usage.num_streams > 0 ? Clock::now() : usage.last_used) + idle_max);
  }
  return due;
}

}  // namespace lmtp::registry
