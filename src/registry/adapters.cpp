// How adapters come and go while their model is served: by request, and those that came by request
// also by themselves, since a model holds --max-cpu-loras at a time (ServedModel::adapters_max).
#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "lmtp/base/text.h"
#include "lmtp/engine/refusals.h"
#include "load_agent.h"
#include "registry_actor.h"

namespace lmtp::registry {
namespace {

constexpr std::size_t kNameBytesMax = 256;
// By whose names a model is found, whether their weights are in memory or not.
constexpr std::size_t kAdapterNamesMax = 4096;
// What refers to an adapter that nothing uses: the slot and the directory.
constexpr long kIdleOwners = 2;

// Before the model's weights, since what is wrong with an adapter is known sooner.
Result<void> read_adapters(const ModelSlot& slot, std::vector<ServedAdapter>& adapters) {
  const ServedModel& served = *slot.served;
  for (ServedAdapter& one : adapters) {
    if (one.adapter != nullptr || one.by_request) continue;
    const std::string name = "adapter " + quoted_name(one.source.name) + ": ";
    if (!served.load_adapter) return Error{ErrorCode::kInvalid, name + "the model takes none"};
    if (std::ranges::find(served.names, one.source.name) != served.names.end()) {
      return Error{ErrorCode::kInvalid,
                   name + "the model itself has this name; give the adapter another"};
    }
    auto adapter = guarded([&] {
      return served.load_adapter(one.source, {.goes_on = [&] { return !slot.load->given_up; }});
    });
    if (!adapter) return Error{adapter.error().code, name + adapter.error().message};
    one.adapter = *std::move(adapter);
  }
  return {};
}

Error unloaded(const std::string& name) {
  return {ErrorCode::kNotFound, "model: the adapter " + quoted_name(name) + " was unloaded"};
}

}  // namespace

Result<std::unique_ptr<scheduler::ModelAgent>> load_agent(const ModelSlot& slot,
                                                          std::int64_t kv_bytes,
                                                          const scheduler::LoadProgress& progress,
                                                          std::vector<ServedAdapter>& adapters) {
  const ServedModel& served = *slot.served;
  if (const Result<void> read = read_adapters(slot, adapters); !read) return read.error();
  auto agent = served.load(kv_bytes, progress);
  if (!agent) return agent;
  for (const ServedAdapter& one : adapters) {
    if (one.adapter == nullptr) continue;
    const scheduler::AgentInfo info = (*agent)->info();
    const Result<void> fits =
        engine::check_adapter(*one.adapter, info.num_blocks, info.kv_layout, served.limits);
    if (!fits) return fits.error();
  }
  return agent;
}

// The model that it is for, if it can be added now, or read again for its name.
Result<RegistryActor::Slot> RegistryActor::slot_for(const AdapterSource& source,
                                                    const std::string& base,
                                                    bool may_replace) const {
  if (stopping_) return engine::shutting_down();
  const std::string field = "lora_name: ";
  const std::string name = quoted_name(source.name);
  if (source.name.empty() || source.name.size() > kNameBytesMax ||
      has_control_character(source.name)) {
    return Error{ErrorCode::kInvalid, field + "allowed are names of 1 to " +
                                          std::to_string(kNameBytesMax) +
                                          " bytes without control characters"};
  }
  const Directory::Meaning meaning = directory_->find(base);
  if (const auto* refusal = std::get_if<Refusal>(&meaning)) return refusal->error;
  const auto& entry = std::get<0>(meaning);
  if (entry == nullptr || entry->slot->phase != Phase::kReady) {
    return Error{ErrorCode::kUnavailable,
                 "base_model_name: the model is not loaded; load it first"};
  }
  if (!entry->served->load_adapter) {
    return Error{ErrorCode::kInvalid, field + quoted_name(entry->name) + " takes no adapters"};
  }
  const auto taken = directory_->names.find(source.name);
  if (taken == directory_->names.end()) {
    if (source.name == options_.limits.default_model.name) {
      return Error{ErrorCode::kInvalid,
                   field + name + " is the name of a model; allowed are others"};
    }
    if (entry->slot->adapters.size() < kAdapterNamesMax) return entry->slot;
    return Error{ErrorCode::kInvalid, field + "the model has " + std::to_string(kAdapterNamesMax) +
                                          " adapters, more are not allowed; unload one first"};
  }
  if (find_adapter(taken->second->adapters, source.name) == nullptr) {
    return Error{ErrorCode::kInvalid, field + name + " is the name of a model; allowed are others"};
  }
  if (!may_replace) {
    return Error{ErrorCode::kInvalid, field + name +
                                          " is an adapter already; unload it first, or replace it "
                                          "by \"load_inplace\": true"};
  }
  if (taken->second == entry) return entry->slot;
  return Error{ErrorCode::kInvalid, field + name + " is an adapter of " +
                                        quoted_name(taken->second->name) + "; unload it first"};
}

// Drops the adapter that was used least recently of those that came by request and that nothing
// uses, until one more may be held.
Result<void> RegistryActor::make_place(ModelSlot& slot) {
  const std::size_t most = slot.served->adapters_max;
  const auto is_held = [](const ServedAdapter& one) { return one.adapter != nullptr; };
  for (;;) {
    const auto num_held = std::ranges::count_if(slot.adapters, is_held) + slot.num_adapters_read;
    if (static_cast<std::size_t>(num_held) < most) return {};
    ServedAdapter* oldest = nullptr;
    bool may_go = slot.num_adapters_read > 0;  // one day
    for (ServedAdapter& one : slot.adapters) {
      may_go = may_go || (is_held(one) && one.by_request);
      if (!is_held(one) || !one.by_request || one.adapter.use_count() > kIdleOwners) continue;
      if (oldest == nullptr || one.use->last < oldest->use->last) oldest = &one;
    }
    const std::string held =
        std::to_string(most) + " adapters are held in memory (--max-cpu-loras)";
    if (oldest == nullptr && may_go) {
      return Error{ErrorCode::kOverloaded, "overloaded: " + held + ", all in use; retry later"};
    }
    if (oldest == nullptr) {
      return Error{ErrorCode::kInvalid,
                   "lora_name: " + held + ", all by --lora-modules; allow more of them"};
    }
    log::info("dropped adapter " + quoted_name(oldest->source.name) + " until it is asked for");
    oldest->use->dropped = oldest->adapter;
    oldest->adapter.reset();
    changed_ = true;
    publish();
  }
}

// Runs `done` on this thread with what was read.
Result<void> RegistryActor::read_adapter(const Slot& slot, const AdapterSource& source,
                                         AdapterRead done) {
  if (num_adapter_jobs_ >= kAdapterJobsMax) {
    return Error{ErrorCode::kOverloaded, "overloaded: " + std::to_string(kAdapterJobsMax) +
                                             " adapters are being read; retry later"};
  }
  if (Result<void> place = make_place(*slot); !place) return place;
  const scheduler::AgentInfo info = slot->engine->stats().agent;
  const int blocks_max =
      engine::adapter_blocks_max(info.num_blocks, info.kv_layout, slot->served->limits);
  const auto adapter = std::make_shared<Result<std::shared_ptr<const Adapter>>>(
      Error{ErrorCode::kUnavailable, "no memory"});
  Result<void> started = start_job(
      [this, served = slot->served, source, adapter, blocks_max] {
        // A name that a request could load as a model stays that model's.
        if (options_.is_auto && guarded([&] { return factory_.find(source.name); }).ok()) {
          *adapter = Error{ErrorCode::kInvalid, "lora_name: " + quoted_name(source.name) +
                                                    " is the name of a model; allowed are others"};
          return;
        }
        *adapter = guarded([&] {
          return served->load_adapter(source, {.by_request = true,
                                               .blocks_max = blocks_max,
                                               .goes_on = [this] { return !gives_up_; }});
        });
      },
      [slot, adapter, done = std::move(done)](RegistryActor& actor) {
        --actor.num_adapter_jobs_;
        --slot->num_adapters_read;
        done(actor, std::move(*adapter));
      });
  if (!started) return started;
  ++num_adapter_jobs_;
  ++slot->num_adapters_read;
  return {};
}

void RegistryActor::load_adapter(const AdapterSource& source, const std::string& base,
                                 bool may_replace, const Registry::AdapterDone& done) {
  const Result<Slot> found = slot_for(source, base, may_replace);
  if (!found) return done(found.error());
  const Slot& slot = *found;
  const Result<void> started = read_adapter(
      slot, source,
      [slot, source, may_replace, done](RegistryActor& actor,
                                        const Result<std::shared_ptr<const Adapter>>& adapter) {
        done(adapter ? actor.add_adapter(slot, source, may_replace, *adapter)
                     : Result<void>(adapter.error()));
      });
  if (!started) done(started.error());
}

Result<void> RegistryActor::add_adapter(const Slot& slot, const AdapterSource& source,
                                        bool may_replace, std::shared_ptr<const Adapter> adapter) {
  // Meanwhile another may have been added, or the model unloaded.
  const Result<Slot> found = slot_for(source, slot->served->description.name, may_replace);
  if (!found) return found.error();
  if (*found != slot) {
    return Error{ErrorCode::kUnavailable, "the model was unloaded meanwhile; retry"};
  }
  const scheduler::AgentInfo info = slot->engine->stats().agent;
  Result<void> fits =
      engine::check_adapter(*adapter, info.num_blocks, info.kv_layout, slot->served->limits);
  if (!fits) return fits;
  std::erase_if(slot->adapters,
                [&](const ServedAdapter& one) { return one.source.name == source.name; });
  slot->adapters.push_back({source, std::move(adapter), true});
  slot->adapters.back().touch();
  submit_waiting(*slot, slot->adapters.back());
  changed_ = true;
  publish();
  log::info("loaded adapter " + quoted_name(source.name) + " of " +
            quoted_name(slot->served->description.name));
  return {};
}

void RegistryActor::unload_adapter(const std::string& name, const Registry::AdapterDone& done) {
  for (const Slot& slot : slots_) {
    if (find_adapter(slot->adapters, name) == nullptr) continue;
    if (stopping_ || slot->phase != Phase::kReady) {
      return done(stopping_ ? engine::shutting_down()
                            : Error{ErrorCode::kUnavailable,
                                    "lora_name: its model is being loaded; retry later"});
    }
    std::erase_if(slot->adapters,
                  [&](const ServedAdapter& one) { return one.source.name == name; });
    changed_ = true;
    publish();
    for (const Request& request : slot->waiting.take(name)) {
      end_stream(request, unloaded(name), refusals_);
    }
    slot->count_waiting();
    log::info("unloaded adapter " + quoted_name(name));
    return done({});
  }
  done(Error{ErrorCode::kNotFound, "lora_name: " + quoted_name(name) +
                                       " is no adapter that is served; GET /v1/models lists them"});
}

// Whether the request has the adapter that it names, if any; else it waits until that has been
// read again, behind those that wait for it already. REQUIRES: the slot is ready.
Result<bool> RegistryActor::give_adapter(const Slot& slot, Request& request) {
  if (request.adapter != nullptr) return true;
  ServedAdapter* const found = find_adapter(slot->adapters, request.model);
  if (found == nullptr) return true;
  found->touch();
  if (found->adapter == nullptr) {
    if (request.kind == RequestKind::kAwaitModel) return true;
    if (!found->use->is_being_read) {
      if (Result<void> begun = read_again(slot, *found); !begun) return begun.error();
    }
    if (found->adapter == nullptr) {
      if (Result<void> kept = keep(*slot, request); !kept) return kept.error();
      return false;
    }
  }
  request.adapter = found->adapter;
  return true;
}

// An adapter that was dropped. Where streams that ran with it then still do, it is there at once.
Result<void> RegistryActor::read_again(const Slot& slot, ServedAdapter& adapter) {
  if (auto alive = adapter.use->dropped.lock()) {
    if (Result<void> place = make_place(*slot); !place) return place;
    adapter.adapter = std::move(alive);
    changed_ = true;
    return {};
  }
  Result<void> started = read_adapter(
      slot, adapter.source,
      [slot, use = adapter.use](RegistryActor& actor, Result<std::shared_ptr<const Adapter>> read) {
        use->is_being_read = false;
        const auto found = std::ranges::find(slot->adapters, use, &ServedAdapter::use);
        if (found == slot->adapters.end()) return;  // it was unloaded, or replaced
        if (!read) {
          const Error error{read.error().code,
                            "model: the adapter " + quoted_name(found->source.name) +
                                " cannot be read again: " + read.error().message};
          for (const Request& request : slot->waiting.take(found->source.name)) {
            end_stream(request, error, actor.refusals_);
          }
          return slot->count_waiting();
        }
        found->adapter = *std::move(read);
        actor.changed_ = true;
        actor.submit_waiting(*slot, *found);
      });
  if (started) adapter.use->is_being_read = true;
  return started;
}

// In the order in which they came, and before it is published that others need not wait.
void RegistryActor::submit_waiting(ModelSlot& slot, const ServedAdapter& adapter) {
  if (slot.phase != Phase::kReady || slot.route == nullptr) return;  // they wait for the model
  for (Request& request : slot.waiting.take(adapter.source.name)) {
    request.adapter = adapter.adapter;
    const Result<void> taken = guarded([&]() -> Result<void> {
      const Result<bool> submitted = submit_to(*slot.route, request);
      if (!submitted) return submitted.error();
      return *submitted ? Result<void>() : keep(slot, request);
    });
    if (!taken) end_stream(request, taken.error(), refusals_);
  }
  slot.count_waiting();
}

// Takes out those whose adapter has to be read again. As if nothing threw: where there is no memory
// these end.
std::vector<Request> RegistryActor::give_adapters(const ModelSlot& slot,
                                                  std::vector<Request>& requests) {
  const auto waits = [](const Request& request) { return request.sink == nullptr; };
  std::vector<Request> later;
  for (Request& request : requests) {
    const ServedAdapter* const found = find_adapter(slot.adapters, request.model);
    if (request.adapter != nullptr || found == nullptr) continue;
    request.adapter = found->adapter;
    if (request.adapter != nullptr) continue;
    const Result<void> kept = guarded([&]() -> Result<void> {
      later.push_back(std::move(request));
      return {};
    });
    if (kept) continue;
    end_stream(request, kept.error(), refusals_);
    request.sink = nullptr;
  }
  std::erase_if(requests, waits);
  return later;
}

void RegistryActor::submit_again(const ModelSlot& slot, std::vector<Request>& requests) {
  for (Request& request : requests) {
    const Result<void> taken = guarded([&]() -> Result<void> {
      const Submission submitted = submit(request, &slot.served->limits);
      const auto* refused = std::get_if<Refusal>(&submitted);
      return refused != nullptr ? Result<void>(refused->error) : Result<void>();
    });
    if (!taken) end_stream(request, taken.error(), refusals_);
  }
}

}  // namespace lmtp::registry
