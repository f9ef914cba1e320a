// Directory: a snapshot of the registry's models and of the names that lead to them. Immutable; the
// actor publishes another one when something has changed.
#pragma once

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
#include "lmtp/registry/registry.h"
#include "model_route.h"

namespace lmtp::registry {

struct ModelSlot;

// How far a model is. Written by the job that brings it, and by the actor; read by anyone.
struct LoadState {
  // Of download and loading together; goes back only where the model's device is lost.
  std::atomic<int> percent = 0;
  std::atomic<int> num_waiting = 0;
  std::atomic<bool> downloads = false;
  std::atomic<std::int64_t> bytes_done = 0;
  std::atomic<std::int64_t> bytes_total = 0;
  std::atomic<bool> given_up = false;  // no request waits for it: the job should end soon

  // Whether that is more than before.
  bool raise(int to);
};

// A name that is being sought, or a model.
struct ModelEntry {
  std::string name;
  std::shared_ptr<const ServedModel> served;  // null: not found yet
  engine::ModelLimits limits_at_most;         // before its memory is known; vocab_size 0: not found
  bool sized = false;                         // its memory is known: served->limits are final
  std::shared_ptr<ModelRoute> route;          // null: not ready
  std::shared_ptr<const LoadedTokenizer> tokenizer;  // where there is a route
  bool comes_back = false;                           // it was ready until its device was lost
  // While it comes back: what its engines before have counted. Null: nothing.
  std::shared_ptr<const engine::EngineCounters> counters;
  std::shared_ptr<const LoadState> load;
  std::shared_ptr<ModelSlot> slot;  // the actor's alone

  // What a request can be checked against now; null: nothing is known yet.
  const engine::ModelLimits* limits() const;
  ModelStatus status(bool stopping) const;
};

// The most that may turn out to be served, whatever memory it gets.
engine::ModelLimits limits_at_most(const ServedModel& served);

struct Directory {
  bool is_auto = false;
  bool stopping = false;
  std::string only_name;     // not auto
  std::string default_name;  // auto: of requests that name none; empty: they are refused
  std::string only_failure;  // not auto: why there is no model any more
  std::vector<std::shared_ptr<const ModelEntry>> entries;
  std::unordered_map<std::string, std::shared_ptr<const ModelEntry>> names;

  // Where a name leads: an entry, or nowhere (null): in an auto server it may be sought under that
  // name, which is default_name where none is given.
  using Meaning = std::variant<std::shared_ptr<const ModelEntry>, Refusal>;
  Meaning find(const std::string& name) const;
  Error unknown_name(const std::string& name) const;
  // Of the models that are ready.
  std::string names_ready() const;

 private:
  Meaning find_sole() const;
};

// The latest of them. Any thread; the lock is held for the copy of a pointer.
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

bool has_control_character(const std::string& name);

}  // namespace lmtp::registry
