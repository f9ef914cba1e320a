// Directory: a snapshot of the registry's models and of the names that lead to them. Immutable; the
// actor publishes another one when something has changed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/registry/loaded_texts.h"
#include "lmtp/registry/registry.h"
#include "model_route.h"

namespace lmtp::registry {

struct ModelSlot;

// How far a model has been loaded. Written by its job and by the actor; read by any thread.
struct LoadState {
  // Of download and loading together; goes back only if the model's device is lost.
  std::atomic<int> percent = 0;
  std::atomic<int> num_waiting = 0;
  std::atomic<bool> downloads = false;
  std::atomic<std::int64_t> bytes_done = 0;
  std::atomic<std::int64_t> bytes_total = 0;
  std::atomic<bool> given_up = false;  // no request waits for it: the job should end soon

  // Sets `percent` if `to` is more; whether it was.
  bool raise(int to);
};

// An adapter of a model. Owner: its slot; the directory has copies.
struct ServedAdapter {
  // What the copies share.
  struct Use {
    std::atomic<std::int64_t> last = 0;  // by Clock. Any thread
    // Of the actor's thread.
    bool is_being_read = false;
    std::weak_ptr<const Adapter> dropped;
  };

  AdapterSource source;
  // Null: it is read with the model; or it came by request and was dropped, and is read again when
  // it is asked for.
  std::shared_ptr<const Adapter> adapter;
  bool by_request = false;
  std::shared_ptr<Use> use = std::make_shared<Use>();

  void touch() const { use->last = Clock::now().time_since_epoch().count(); }
};
// Among ServedAdapters, const or not. Null: there is none of that name.
template <typename Adapters>
auto* find_adapter(Adapters& adapters, const std::string& name) {
  const auto found = std::ranges::find_if(
      adapters, [&](const ServedAdapter& one) { return one.source.name == name; });
  return found == adapters.end() ? nullptr : &*found;
}

// A name that is being sought, or a model.
struct ModelEntry {
  std::string name;
  std::shared_ptr<const ServedModel> served;  // null: not found yet
  engine::ModelLimits limits_at_most;         // before its memory is known; vocab_size 0: not found
  bool sized = false;                         // its memory is known: served->limits are final
  std::shared_ptr<ModelRoute> route;          // null: not ready
  std::shared_ptr<const LoadedTexts> texts;   // null without a route
  std::vector<ServedAdapter> adapters;        // by whose names it is found, too
  bool comes_back = false;                    // it was ready until its device was lost
  // While it comes back: what its earlier engines have counted. Null: nothing.
  std::shared_ptr<const engine::EngineCounters> counters;
  std::shared_ptr<const LoadState> load;
  std::shared_ptr<ModelSlot> slot;  // used by the actor alone

  // What a request can be checked against now; null: nothing is known yet.
  const engine::ModelLimits* limits() const;
  ModelStatus status(bool stopping) const;
};

// Upper bounds of its limits, whatever memory it gets.
engine::ModelLimits limits_at_most(const ServedModel& served);

struct Directory {
  bool is_auto = false;
  bool stopping = false;
  std::string only_name;     // not auto: as clients are told it
  bool hides_path = false;   // ModelDescription's, before the model has been found too
  std::string default_name;  // auto: of requests that name none; empty: they are refused
  std::string only_failure;  // not auto: why there is no model any more
  std::vector<std::shared_ptr<const ModelEntry>> entries;
  std::unordered_map<std::string, std::shared_ptr<const ModelEntry>> names;

  // What a name means: an entry; null if there is none yet, and an auto server may look the name
  // up (default_name if it is empty); or why it is refused.
  using Meaning = std::variant<std::shared_ptr<const ModelEntry>, Refusal>;
  Meaning find(const std::string& name) const;
  // Whether a request for that entry, no adapter of it, goes by the model's own name from now on.
  bool renames(const std::string& name, const ModelEntry& entry) const;
  Error unknown_name(const std::string& name) const;
  // Of the models that are ready.
  std::string names_ready() const;

 private:
  Meaning find_default() const;
};

// The latest Directory. Any thread; the lock is held for the copy of a pointer.
class PublishedDirectory {
 public:
  std::shared_ptr<const Directory> get() const {
    const std::lock_guard lock(mutex_);
    return directory_;
  }
  void set(std::shared_ptr<const Directory> directory) {
    const std::lock_guard lock(mutex_);
    directory_.swap(directory);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Directory> directory_ = std::make_shared<Directory>();
};

}  // namespace lmtp::registry
