// Models: what a server needs of the models that it serves, wherever they run. The seam between
// protocols and the Registry, which loads them into this process; a balancer has them elsewhere.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/engine/engine.h"
#include "lmtp/registry/model_factory.h"
#include "lmtp/registry/refusal_counts.h"
#include "lmtp/registry/stream_canceller.h"
#include "lmtp/request/request.h"
#include "lmtp/request/sampling_params.h"
#include "lmtp/text/reply_layout.h"

namespace lmtp::registry {

// What TGI's clients send where the user has named no model. A server of one model takes it for
// that one, unless a model or an adapter has this name.
inline bool is_any_model(std::string_view name) { return name == "tgi" || name == "dummy"; }

// MODEL_INFOs about models that are not loaded, waiting for the disk.
inline constexpr std::size_t kLookupsMax = 64;

enum class ModelState { kUnloaded, kLoading, kReady, kFailed, kStopping };

// A server that a balancer sends streams to, as it said last.
struct WorkerStatus {
  std::string name;   // "host:port"
  std::string state;  // as MODEL_INFO names it; "down": it does not answer
  int progress_percent = 0;
  int num_running = 0;
  int num_waiting = 0;
  int num_blocks_free = 0;
};

// What is known of a model now.
struct ModelStatus {
  ModelState state = ModelState::kUnloaded;
  int progress_percent = 0;
  std::optional<DownloadState> download;  // while one runs
  std::string error;                      // why the last loading failed; empty otherwise
  ModelDescription description;           // only the name, while the model is not yet found
  engine::ModelLimits limits;
  engine::EngineStats stats;            // without an engine: num_waiting, the rest zero
  std::vector<TokenId> answer_end_ids;  // ReadyModel's, from when its texts are loaded
  std::shared_ptr<const text::ReplyLayout> reply_layout;  // ReadyModel's; null: not loaded
  std::vector<AdapterSource> adapters;
  std::vector<WorkerStatus> workers;  // of a balancer, whose `stats` are those of all together
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
  // Tokens that end an answer in chats and over HTTP, without ignore_eos, beside limits.eos_ids,
  // which do everywhere (lmtp/text/answer_end.h). Ascending, none of the others.
  std::vector<TokenId> answer_end_ids = {};
  std::shared_ptr<const text::ReplyLayout> reply_layout = text::no_reply_layout();  // never null
  text::LoadedDecisions decisions = text::default_decisions();
  text::LoadedEmbeddings embeddings = text::default_embeddings();

  // Has these end what the params are of.
  void end_answers(SamplingParams& params) const {
    if (params.ignore_eos) return;
    params.stop_token_ids.insert(params.stop_token_ids.end(), answer_end_ids.begin(),
                                 answer_end_ids.end());
  }
};

// Why a request was not taken; no event will come for it.
struct Refusal {
  Error error;
  bool no_model = false;  // the model is not served here, or was not named
};
// Taken: events will come, and cancel goes there.
using Submission = std::variant<std::shared_ptr<StreamCanceller>, Refusal>;

// While others are connected, one share (Request::share) may hold three quarters of max_requests,
// so that there is a place for requests of the others. `num_held`: waiting and running.
Result<void> check_share(const Request& request, std::size_t num_held, std::size_t max_requests);

// Why an account may not ask for a model by that name: the names of other models are not for it.
Error not_for(const Account& account, const std::string& name);

// Owner: main. stop() from its thread; the rest from any.
class Models {
 public:
  virtual ~Models() = default;

  // Checks the request and hands it to the engine of its model; if the model is not loaded, it is
  // loaded and the request waits. An empty name means the only loaded model, or, if none is loaded,
  // AutoOptions::default_model.
  // A request that was taken ends by its last token, or by a StreamError, once.
  // The limits of its account hold here: models, streams at a time, tokens a minute.
  // REQUIRES: the key is unique among live streams.
  virtual Submission submit(Request&& request) = 0;

  // The name under which a stream of a request for `name` can be edited as long as it lives: the
  // model's own, where `name` is that of an adapter, which may be unloaded; else `name`.
  virtual std::string lasting_name(const std::string& name) const = 0;

  // Forks (Request::fork) of one live stream, by the lasting name of its model: all of them are
  // taken, and begin with the same tokens, or none. REQUIRES: not empty; as submit().
  virtual Submission submit_forks(std::vector<Request> forks) = 0;
  // Edits a live stream, by the lasting name of its model. Where an error comes back no event does.
  virtual Result<void> backtrack(const std::string& model, Backtrack command) = 0;

  // Whether a model may be asked for with that account by that name (as submit() reads it); the
  // error says by which ones. For what is answered without submit().
  virtual Result<void> check_access(const Account& account, const std::string& name) const = 0;

  // What submit() has refused, and what it has taken and ended before an engine had it. Protocols
  // add the requests that they refuse by themselves.
  virtual RefusalCounts& refusals() = 0;
  virtual const RefusalCounts& refusals() const = 0;

  // The limits of requests for that model (while it is being loaded, its context may still turn out
  // shorter); nullopt if they are not known yet. Does not block. A server of one model knows no
  // others: it gives that model's for any name.
  virtual std::optional<engine::ModelLimits> limits_of(const std::string& name) const = 0;

  // The model of that name (as submit() reads it), if it is ready. Does not block. If it is not,
  // RequestKind::kAwaitModel waits for it; it may be unloaded again when that is answered.
  virtual std::optional<ReadyModel> ready_model(const std::string& name) const = 0;

  // Does not block: what is known without looking at the disk; nullopt if that is not enough.
  virtual std::optional<Result<ModelStatus>> status(const std::string& name) const = 0;

  // Looks the name up on the disk and hands what is known of it to `done`, on another thread, or on
  // the caller's where the server stops; once, or not at all where false is returned: too many are
  // waiting. Never loads anything.
  virtual bool look_up(std::string name, std::function<void(Result<ModelStatus>)> done) = 0;

  // Reads an adapter for a model that is ready (`base` empty: the only one) and serves it by its
  // own name from then on, in the place of that model's adapter of this name if it may replace it;
  // or serves it no more. What runs with an adapter that is replaced or unloaded ends with it.
  // `done` is called once, on any thread.
  using AdapterDone = std::function<void(const Result<void>&)>;
  virtual void load_adapter(AdapterSource source, std::string base, bool may_replace,
                            const AdapterDone& done) = 0;
  virtual void unload_adapter(std::string name, const AdapterDone& done) = 0;

  // The models that are loaded or being loaded.
  virtual std::vector<ModelStatus> list() const = 0;

  // Serves any model, not one alone.
  virtual bool is_auto() const = 0;
  // AutoOptions::default_model; of a server of one model it is empty.
  virtual const ModelDescription& default_model() const = 0;
  // Can it answer now: the one model is ready, or any may be asked for?
  virtual bool healthy() const = 0;

  // Refuses new requests, lets running ones finish for at most `grace_ms`, ends the others and what
  // waits, gives loading up, and joins the threads. Idempotent.
  virtual void stop(int grace_ms) = 0;
};

}  // namespace lmtp::registry
