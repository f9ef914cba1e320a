// What is done about memory when a model is to be loaded: a pure function over numbers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "lmtp/base/runtime.h"
#include "lmtp/registry/model_factory.h"

namespace lmtp::registry {

// A model that has memory, or that gets back what it had when its device comes back.
struct LoadedModel {
  std::int64_t held_bytes = 0;      // what unloading it gives back, at most
  std::int64_t promised_bytes = 0;  // of that, what it has not taken yet
  bool idle = false;                // it may be unloaded
  runtime::Clock::time_point last_used;
};

struct MemoryState {
  std::optional<std::int64_t> free_bytes;  // nullopt if the system does not say
  int max_models = 1;
  std::vector<LoadedModel> loaded;
  bool is_only = false;  // a static server's model: tried even if it seems too large
};

// Load the model, with a KV cache of that size.
struct LoadNow {
  std::int64_t kv_bytes = 0;
};
// Unload the idle model that was used least recently; then decide again.
struct UnloadFirst {
  std::size_t which = 0;  // of MemoryState::loaded
};
// Wait: it may fit once models that are in use have become idle.
struct WaitForMemory {};
// It does not fit even with all others unloaded.
struct TooLarge {
  std::int64_t needed_bytes = 0;
  std::int64_t free_bytes = 0;  // with all others unloaded
};
using MemoryDecision = std::variant<LoadNow, UnloadFirst, WaitForMemory, TooLarge>;

MemoryDecision decide_memory(const MemoryNeed& need, const MemoryState& state);

}  // namespace lmtp::registry
