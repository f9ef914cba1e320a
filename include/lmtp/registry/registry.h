// Registry: from the name in a request to the engine that serves it. It loads models on demand,
// reports progress to the requests that wait, and unloads idle models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lmtp/base/batch_limits.h"
#include "lmtp/base/result.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/engine/engine.h"
#include "lmtp/registry/model_factory.h"
#include "lmtp/registry/refusal_counts.h"
#include "lmtp/registry/stream_canceller.h"
#include "lmtp/request/request.h"

namespace lmtp::registry {

// Jobs at a time, each with a thread: of names that are looked up, and besides of models that are
// downloaded because they are not on this machine.
inline constexpr int kLoadersMax = 8;
inline constexpr int kFetchesMax = 8;
// Adapters that are read at a time by request.
inline constexpr int kAdapterJobsMax = 4;
// MODEL_INFOs about models that are not loaded, waiting for the disk.
inline constexpr std::size_t kLookupsMax = 64;
// Names under which one loaded model is found at once; with others it is looked up anew each time.
inline constexpr std::size_t kNamesPerModelMax = 32;
// Failed loads whose reason MODEL_INFO still shows.
inline constexpr std::size_t kFailuresMax = 64;
// Tokens and biases of requests that wait for one model, in bytes.
inline constexpr std::size_t kWaitingBytesMax = std::size_t{128} << 20;
// How long a model waits for memory that models in use hold.
inline constexpr int kMemoryWaitMsMax = 60'000;
// Waiting streams get a notice of progress at most so often.
inline constexpr int kNoticeIntervalMs = 250;
// Where a model is downloaded first, the download is this many percent of the whole, and the
// loading is the rest.
inline constexpr int kDownloadShare = 90;

enum class ModelState { kUnloaded, kLoading, kReady, kFailed, kStopping };

// What is known of a model now.
struct ModelStatus {
  ModelState state = ModelState::kUnloaded;
  int progress_percent = 0;
  std::optional<DownloadState> download;  // while one runs
  std::string error;                      // why the last loading failed; empty otherwise
  ModelDescription description;           // only the name, while the model is not yet found
  engine::ModelLimits limits;
  engine::EngineStats stats;  // without an engine: num_waiting, the rest zero
  std::vector<AdapterSource> adapters;
};

// What a request's text is resolved with.
struct ReadyModel {
  std::string name;  // its own, or its adapter's, whatever the request called it
  engine::ModelLimits limits;
  LoadedTokenizer tokenizer;
  text::LoadedChatTemplate chat_template;
  // Null: there is no tokenizer, whose bytes grammars are about.
  std::shared_ptr<constraint::GrammarCompiler> grammars = nullptr;
  LoadedControllers controllers = kNoControllers;
};

// Why a request was not taken; no event will come for it.
struct Refusal {
  Error error;
  bool no_model = false;  // the model is not served here, or was not named
};
// Taken: events will come, and cancel goes there.
using Submission = std::variant<std::shared_ptr<StreamCanceller>, Refusal>;

struct AutoOptions {
  int max_models = 3;                // loaded at a time
  std::int64_t unload_after_ms = 0;  // idle for so long: unloaded; 0: never
  // For one model; more are refused.
  std::size_t max_waiting_requests = kDefaultConcurrentRequests;
  std::int64_t memory_wait_ms = kMemoryWaitMsMax;  // for the models in use
  // For requests without a name while no model is loaded. If it has no name, they are refused.
  ModelDescription default_model = {};
};

// A static server's one model.
struct OnlyModel {
  std::string name;
  std::optional<ServedModel> found;  // nothing: fetch() brings it
  std::size_t max_waiting_requests = kDefaultConcurrentRequests;
  // Called with the outcome of the loading, on the actor's thread; not where stopped before.
  std::function<void(const Result<void>&)> on_loaded;
  // Called with the reason, on the actor's thread, where the model does not come back after its
  // device was lost: there is nothing to serve from then on.
  std::function<void(const std::string& reason)> on_gone;
};

// Owner: main. Constructor, stop() and destructor from one thread; the rest from any.
class Registry {
 public:
  // Serves whatever the factory knows; loads by request.
  Registry(std::unique_ptr<ModelFactory> factory, AutoOptions options);
  // Serves one model alone and begins to load it.
  Registry(std::unique_ptr<ModelFactory> factory, OnlyModel model);
  // As stop(0).
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Checks the request and hands it to the engine of its model; if the model is not loaded, it is
  // loaded and the request waits. An empty name means the only loaded model, or, if none is loaded,
  // AutoOptions::default_model.
  // A request that was taken ends by its last token, or by a StreamError, once.
  // The limits of its account hold here: models, streams at a time, tokens a minute.
  // REQUIRES: the key is unique among live streams.
  Submission submit(Request&& request);

  // The name under which a stream of a request for `name` can be edited as long as it lives: the
  // model's own, where `name` is that of an adapter, which may be unloaded; else `name`.
  std::string lasting_name(const std::string& name) const;

  // Forks (Request::fork) of one live stream, by the lasting name of its model: all of them are
  // taken, and begin with the same tokens, or none. REQUIRES: not empty; as submit().
  Submission submit_forks(std::vector<Request> forks);
  // Edits a live stream, by the lasting name of its model. Where an error comes back no event does.
  Result<void> backtrack(const std::string& model, Backtrack command);

  // Whether a model may be asked for with that account by that name (as submit() reads it); the
  // error says by which ones. For what is answered without submit().
  Result<void> check_access(const Account& account, const std::string& name) const;

  // What submit() has refused, and what it has taken and ended before an engine had it. Protocols
  // add the requests that they refuse by themselves.
  RefusalCounts& refusals();
  const RefusalCounts& refusals() const;

  // The limits of requests for that model (while it is being loaded, its context may still turn out
  // shorter); nullopt if they are not known yet. Does not block. A server of one model knows no
  // others: it gives that model's for any name.
  std::optional<engine::ModelLimits> limits_of(const std::string& name) const;

  // The model of that name (as submit() reads it), if it is ready. Does not block. If it is not,
  // RequestKind::kAwaitModel waits for it; it may be unloaded again when that is answered.
  std::optional<ReadyModel> ready_model(const std::string& name) const;

  // Does not block: what is known without looking at the disk; nullopt if that is not enough.
  std::optional<Result<ModelStatus>> status(const std::string& name) const;

  // Looks the name up on the disk and hands what is known of it to `done`, on another thread; once,
  // or not at all where false is returned: too many are waiting. Never loads anything.
  bool look_up(std::string name, std::function<void(Result<ModelStatus>)> done);

  // Reads an adapter for a model that is ready (`base` empty: the only one) and serves it by its
  // own name from then on, in the place of that model's adapter of this name if it may replace it;
  // or serves it no more. What runs with an adapter that is replaced or unloaded ends with it.
  // `done` is called once, on any thread.
  using AdapterDone = std::function<void(const Result<void>&)>;
  void load_adapter(AdapterSource source, std::string base, bool may_replace,
                    const AdapterDone& done);
  void unload_adapter(std::string name, const AdapterDone& done);

  // The models that are loaded or being loaded.
  std::vector<ModelStatus> list() const;

  // Serves any model, not one alone.
  bool is_auto() const;
  // AutoOptions::default_model; of a server of one model it is empty.
  const ModelDescription& default_model() const;
  // Can it answer now: the one model is ready, or any may be asked for?
  bool healthy() const;

  // Refuses new requests, lets running ones finish for at most `grace_ms`, ends the others and what
  // waits, gives loading up, and joins the threads. Idempotent.
  void stop(int grace_ms);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmtp::registry
