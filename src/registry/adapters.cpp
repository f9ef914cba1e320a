// How adapters come and go while their model is served.
#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "lmtp/base/text.h"
#include "load_agent.h"
#include "registry_actor.h"

namespace lmtp::registry {
namespace {

constexpr std::size_t kNameBytesMax = 256;

// Those that the model is served with from its start; before its weights, since what is wrong with
// one is known sooner.
Result<std::vector<ServedAdapter>> read_adapters(const ServedModel& served) {
  std::vector<ServedAdapter> adapters;
  for (const AdapterSource& source : served.adapters) {
    if (!served.load_adapter) return Error{ErrorCode::kInvalid, "it takes no adapters"};
    auto adapter = guarded([&] { return served.load_adapter(source, false); });
    if (!adapter) {
      return Error{adapter.error().code,
                   "adapter " + quoted_name(source.name) + ": " + adapter.error().message};
    }
    adapters.push_back({source, *std::move(adapter)});
  }
  return adapters;
}

}  // namespace

Result<std::unique_ptr<scheduler::ModelAgent>> load_agent(const ModelSlot& slot,
                                                          std::int64_t kv_bytes,
                                                          const scheduler::LoadProgress& progress,
                                                          std::vector<ServedAdapter>& adapters) {
  const ServedModel& served = *slot.served;
  const auto is_read = [](const ServedAdapter& one) { return one.adapter != nullptr; };
  if (!std::ranges::all_of(adapters, is_read)) {
    auto read = read_adapters(served);
    if (!read) return read.error();
    adapters = *std::move(read);
  }
  auto agent = served.load(kv_bytes, progress);
  if (!agent) return agent;
  for (const ServedAdapter& one : adapters) {
    const Result<void> fits =
        engine::check_adapter(*one.adapter, (*agent)->info().num_blocks, served.limits);
    if (!fits) return fits.error();
  }
  return agent;
}

// The model that it is for, if it can be added now.
Result<RegistryActor::Slot> RegistryActor::slot_for(const AdapterSource& source,
                                                    const std::string& base) const {
  if (source.name.empty() || source.name.size() > kNameBytesMax ||
      has_control_character(source.name)) {
    return Error{ErrorCode::kInvalid, "lora_name: allowed are names of 1 to " +
                                          std::to_string(kNameBytesMax) +
                                          " bytes without control characters"};
  }
  if (directory_->names.contains(source.name)) {
    return Error{ErrorCode::kInvalid,
                 "lora_name: " + quoted_name(source.name) + " is served already; unload it first"};
  }
  const Directory::Meaning meaning = directory_->find(base);
  if (const auto* refusal = std::get_if<Refusal>(&meaning)) return refusal->error;
  const auto& entry = std::get<0>(meaning);
  if (entry == nullptr || entry->slot->phase != Phase::kReady) {
    return Error{ErrorCode::kUnavailable,
                 "base_model_name: the model is not loaded; load it first"};
  }
  const ServedModel& served = *entry->served;
  if (!served.load_adapter) {
    return Error{ErrorCode::kInvalid,
                 "lora_name: " + quoted_name(entry->name) + " takes no adapters"};
  }
  if (entry->slot->adapters.size() >= served.adapters_max) {
    return Error{ErrorCode::kOverloaded,
                 "lora_name: " + std::to_string(served.adapters_max) +
                     " adapters are served (--max-cpu-loras); unload one first"};
  }
  return entry->slot;
}

void RegistryActor::load_adapter(const AdapterSource& source, const std::string& base,
                                 const Registry::AdapterDone& done) {
  const Result<Slot> found = slot_for(source, base);
  if (!found) return done(found.error());
  if (num_adapter_jobs_ >= kAdapterJobsMax) {
    return done(Error{ErrorCode::kOverloaded, "overloaded: " + std::to_string(kAdapterJobsMax) +
                                                  " adapters are being read; retry later"});
  }
  using Loaded = Result<std::shared_ptr<const Adapter>>;
  const auto adapter = std::make_shared<Loaded>(Error{ErrorCode::kUnavailable, "no memory"});
  const Slot& slot = *found;
  const Result<void> started = start_job(
      [served = slot->served, source, adapter] {
        *adapter = guarded([&] { return served->load_adapter(source, true); });
      },
      [slot, source, adapter, done](RegistryActor& actor) {
        --actor.num_adapter_jobs_;
        actor.add_adapter(*slot, source, std::move(*adapter), done);
      });
  if (!started) return done(started.error());
  ++num_adapter_jobs_;
}

void RegistryActor::add_adapter(ModelSlot& slot, const AdapterSource& source,
                                Result<std::shared_ptr<const Adapter>> adapter,
                                const Registry::AdapterDone& done) {
  if (!adapter) return done(adapter.error());
  // Meanwhile another may have been added, or the model unloaded.
  const Result<Slot> found = slot_for(source, slot.served->description.name);
  if (!found) return done(found.error());
  if (found->get() != &slot) {
    return done(Error{ErrorCode::kUnavailable, "the model was unloaded meanwhile; retry"});
  }
  const Result<void> fits =
      engine::check_adapter(**adapter, slot.engine->stats().agent.num_blocks, slot.served->limits);
  if (!fits) return done(fits);
  slot.adapters.push_back({source, *std::move(adapter)});
  changed_ = true;
  publish();
  log::info("loaded adapter " + quoted_name(source.name) + " of " +
            quoted_name(slot.served->description.name));
  done({});
}

void RegistryActor::unload_adapter(const std::string& name, const Registry::AdapterDone& done) {
  for (const Slot& slot : slots_) {
    if (slot->phase != Phase::kReady) continue;
    const auto erased = std::erase_if(
        slot->adapters, [&](const ServedAdapter& one) { return one.source.name == name; });
    if (erased == 0) continue;
    changed_ = true;
    publish();
    log::info("unloaded adapter " + quoted_name(name));
    return done({});
  }
  done(Error{ErrorCode::kNotFound, "lora_name: " + quoted_name(name) +
                                       " is no adapter that is served; GET /v1/models lists them"});
}

}  // namespace lmtp::registry
