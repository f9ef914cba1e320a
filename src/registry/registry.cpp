// The registry's front: what any thread may call.
#include "lmtp/registry/registry.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "directory.h"
#include "lmtp/base/bounded_queue.h"
#include "lmtp/base/check.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/runtime.h"
#include "lmtp/base/text.h"
#include "lmtp/engine/refusals.h"
#include "lmtp/registry/metered_sink.h"
#include "mailbox.h"
#include "registry_actor.h"

namespace lmtp::registry {
namespace {

// Of a prompt in the log.
constexpr std::size_t kLoggedTokens = 64;
constexpr std::size_t kLoggedPromptBytes = 200;

Error not_running(const StreamKey& key, const Directory& directory) {
  if (directory.stopping) return engine::shutting_down();
  return {ErrorCode::kInvalid, "stream_id: " + std::to_string(key.stream) +
                                   " is not live; allowed are streams that run"};
}

// An engine that takes no edit while the server runs on has lost its device, and has no streams.
Error edit_refused(const Error& error, const StreamKey& key, const Directory& directory) {
  return error.code == ErrorCode::kStopping ? not_running(key, directory) : error;
}

}  // namespace

struct Registry::Impl {
  Impl(std::unique_ptr<ModelFactory> factory_in, RegistryActor::Options options)
      : factory(std::move(factory_in)),
        default_model(options.limits.default_model),
        is_auto(options.is_auto),
        actor(*factory, std::move(options), mailbox, directory, refusals) {
    actor_thread = runtime::Thread([this] { actor.run(); });
    if (is_auto) lookup_thread = runtime::Thread([this] { run_lookups(); });
  }

  struct Lookup {
    std::string name;
    std::function<void(Result<ModelStatus>)> done;
  };
  void run_lookups();
  Result<ModelStatus> look_up(const std::string& name);
  Result<void> check_access(const Account& account, const std::string& name) const;
  void note_prompt(Request& request) const;
  Submission submit_metered(Request& request);
  Submission submit(Request& request);
  // Null where it is not ready.
  std::shared_ptr<const ModelEntry> ready_entry(const std::string& name) const;
  Result<std::shared_ptr<StreamCanceller>> submit_forks(std::vector<Request>& forks);

  const std::unique_ptr<ModelFactory> factory;
  const ModelDescription default_model;
  const bool is_auto;
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  PublishedDirectory directory;
  RefusalCounts refusals;
  BoundedQueue<Lookup> lookups{kLookupsMax};
  RegistryActor actor;  // of actor_thread
  runtime::Thread actor_thread;
  runtime::Thread lookup_thread;  // auto: a server of one model knows it, or nothing
  std::mutex stop_mutex;
};

Registry::Registry(std::unique_ptr<ModelFactory> factory, AutoOptions options) {
  LMTP_CHECK(options.max_models >= 1, options.max_models);
  impl_ = std::make_unique<Impl>(
      std::move(factory),
      RegistryActor::Options{.is_auto = true, .limits = std::move(options), .only = {}});
}

Registry::Registry(std::unique_ptr<ModelFactory> factory, OnlyModel model) {
  AutoOptions limits;
  limits.max_models = 1;
  limits.max_waiting_requests = model.max_waiting_requests;
  impl_ =
      std::make_unique<Impl>(std::move(factory), RegistryActor::Options{.is_auto = false,
                                                                        .limits = std::move(limits),
                                                                        .only = std::move(model)});
}

Registry::~Registry() { stop(0); }

Submission Registry::submit(Request&& request) {
  if (request.caller != nullptr && request.caller->log_prompts) impl_->note_prompt(request);
  Submission submission = impl_->submit_metered(request);
  if (const auto* refusal = std::get_if<Refusal>(&submission)) {
    impl_->refusals.add(request, refusal->error.code);
  }
  return submission;
}

std::string Registry::lasting_name(const std::string& name) const {
  const auto directory = impl_->directory.get();
  const Directory::Meaning meaning = directory->find(name);
  const auto* const found = std::get_if<0>(&meaning);
  const bool is_adapter =
      found != nullptr && *found != nullptr && find_adapter((*found)->adapters, name) != nullptr;
  return is_adapter ? (*found)->name : name;
}

Submission Registry::submit_forks(std::vector<Request> forks) {
  Result<std::shared_ptr<StreamCanceller>> taken = impl_->submit_forks(forks);
  if (taken) return *std::move(taken);
  for (const Request& fork : forks) impl_->refusals.add(fork, taken.error().code);
  return Refusal{taken.error()};
}

Result<std::shared_ptr<StreamCanceller>> Registry::Impl::submit_forks(std::vector<Request>& forks) {
  const auto entry = ready_entry(forks.front().model);
  if (entry == nullptr) return not_running(forks.front().fork->key, *directory.get());
  Account* const account = forks.front().account();
  const StreamKey key = forks.front().fork->key;
  int num_begun = 0;
  const Result<void> taken = guarded([&]() -> Result<void> {
    for (Request& fork : forks) {
      if (Result<void> ok = engine::check_request(fork, *entry->limits()); !ok) return ok;
      if (account == nullptr) continue;
      if (Result<void> ok = account->begin(0); !ok) return ok;
      ++num_begun;
      fork.sink = std::make_shared<MeteredSink>(fork.caller->account, std::move(fork.sink));
    }
    return entry->route->submit_forks(forks);
  });
  if (taken) return std::shared_ptr<StreamCanceller>(entry->route);
  if (num_begun > 0) account->ended(num_begun);
  return edit_refused(taken.error(), key, *directory.get());
}

Result<void> Registry::backtrack(const std::string& model, Backtrack command) {
  const auto entry = impl_->ready_entry(model);
  if (entry == nullptr) return not_running(command.key, *impl_->directory.get());
  const StreamKey key = command.key;
  const Result<void> taken = entry->route->engine().backtrack(std::move(command));
  if (taken) return {};
  return edit_refused(taken.error(), key, *impl_->directory.get());
}

// As text where the model has a tokenizer now, else as token ids.
void Registry::Impl::note_prompt(Request& request) const {
  const auto first =
      std::span(request.prompt).first(std::min(request.prompt.size(), kLoggedTokens));
  const Directory::Meaning meaning = directory.get()->find(request.model);
  const auto* const found = std::get_if<0>(&meaning);
  const ModelEntry* const entry = found != nullptr ? found->get() : nullptr;
  const tokenizer::Tokenizer* tokenizer = nullptr;
  if (entry != nullptr && entry->texts != nullptr && entry->texts->tokenizer) {
    tokenizer = entry->texts->tokenizer->get();
  }
  const auto vocab_size = tokenizer != nullptr ? entry->served->limits.vocab_size : 0;
  const bool are_known =
      std::ranges::all_of(first, [&](TokenId id) { return id >= 0 && id < vocab_size; });
  std::string text;
  if (tokenizer != nullptr && are_known) {
    text = tokenizer->decode(first);
  } else {
    for (const TokenId id : first) text += (text.empty() ? "ids " : " ") + std::to_string(id);
  }
  request.logged_prompt = shortened(text, kLoggedPromptBytes);
}

Submission Registry::Impl::submit_metered(Request& request) {
  return registry::submit_metered(
      request,
      [this](const Account& account, const std::string& name) {
        return check_access(account, name);
      },
      [this](Request& checked) { return submit(checked); });
}

// By the name that was asked for, or by the model's own. What is unknown is told by an error that
// may name others, to those who may know them.
Result<void> Registry::Impl::check_access(const Account& account, const std::string& name) const {
  if (!account.is_limited()) return {};
  const auto published = directory.get();
  const Directory::Meaning meaning = published->find(name);
  const auto* const entry = std::get_if<0>(&meaning);
  const bool is_known = entry != nullptr && *entry != nullptr;
  if (is_known && account.may_use((*entry)->name)) return {};
  const bool is_none = entry == nullptr && !(!is_auto && account.may_use(published->only_name));
  const std::string& asked = name.empty() && !is_known ? default_model.name : name;
  if (!is_none && !asked.empty() && account.may_use(asked)) return {};
  return not_for(account, name);
}

Result<void> Registry::check_access(const Account& account, const std::string& name) const {
  return impl_->check_access(account, name);
}

RefusalCounts& Registry::refusals() { return impl_->refusals; }

const RefusalCounts& Registry::refusals() const { return impl_->refusals; }

// Most requests are for a model that is ready, and do without the actor. The request is checked
// before any lock is taken.
Submission Registry::Impl::submit(Request& request) {
  const auto published = directory.get();
  if (published->stopping) return Refusal{engine::shutting_down()};
  const Directory::Meaning meaning = published->find(request.model);
  if (const auto* refusal = std::get_if<Refusal>(&meaning)) return *refusal;
  const auto& entry = std::get<0>(meaning);
  const engine::ModelLimits* limits = entry != nullptr ? entry->limits() : nullptr;
  if (limits != nullptr) {
    if (const Result<void> ok = engine::check_request(request, *limits); !ok) {
      return Refusal{ok.error()};
    }
  }
  const ServedAdapter* const adapter =
      entry != nullptr ? find_adapter(entry->adapters, request.model) : nullptr;
  if (adapter != nullptr) {
    adapter->touch();
    request.adapter = adapter->adapter;
  } else if (entry != nullptr && published->renames(request.model, *entry)) {
    request.model = entry->name;
  }
  const bool is_there = adapter == nullptr || request.adapter != nullptr;
  if (entry != nullptr && entry->route != nullptr && is_there &&
      request.kind != RequestKind::kAwaitModel) {
    const Result<bool> taken = entry->route->submit(request);
    if (!taken) return Refusal{taken.error()};
    if (*taken) return std::shared_ptr<StreamCanceller>(entry->route);
  }
  const auto answer =
      mailbox->ask([&](RegistryActor& asked) { return asked.submit(request, limits); });
  return answer ? *answer : Refusal{engine::shutting_down()};
}

std::optional<engine::ModelLimits> Registry::limits_of(const std::string& name) const {
  const auto directory = impl_->directory.get();
  const Directory::Meaning meaning = directory->find(name);
  const auto* found = std::get_if<0>(&meaning);
  std::shared_ptr<const ModelEntry> entry = found != nullptr ? *found : nullptr;
  if (entry == nullptr && !impl_->is_auto && !directory->entries.empty()) {
    entry = directory->entries.front();
  }
  if (entry == nullptr || entry->served == nullptr) return std::nullopt;
  return entry->route || entry->comes_back ? entry->served->limits : entry->limits_at_most;
}

std::shared_ptr<const ModelEntry> Registry::Impl::ready_entry(const std::string& name) const {
  const auto published = directory.get();
  const Directory::Meaning meaning = published->find(name);
  const auto* found = std::get_if<0>(&meaning);
  if (published->stopping || found == nullptr || *found == nullptr) return nullptr;
  return (*found)->route != nullptr ? *found : nullptr;
}

std::optional<ReadyModel> Registry::ready_model(const std::string& name) const {
  const auto entry = impl_->ready_entry(name);
  if (entry == nullptr) return std::nullopt;
  const bool is_adapter = find_adapter(entry->adapters, name) != nullptr;
  return ReadyModel{is_adapter ? name : entry->name, entry->served->limits,
                    entry->texts->tokenizer,         entry->texts->chat_template,
                    entry->texts->grammars,          entry->texts->controllers,
                    entry->texts->answer_end_ids,    entry->texts->reply_layout,
                    entry->texts->decisions,         entry->texts->embeddings};
}

std::optional<Result<ModelStatus>> Registry::status(const std::string& name) const {
  const auto directory = impl_->directory.get();
  const Directory::Meaning meaning = directory->find(name);
  if (const auto* refusal = std::get_if<Refusal>(&meaning)) {
    if (impl_->is_auto && !name.empty()) return std::nullopt;
    return refusal->error;
  }
  const auto& entry = std::get<0>(meaning);
  if (entry == nullptr) return std::nullopt;
  return entry->status(directory->stopping);
}

bool Registry::look_up(std::string name, std::function<void(Result<ModelStatus>)> done) {
  Impl::Lookup lookup{std::move(name), std::move(done)};
  if (impl_->lookups.try_push(std::move(lookup))) return true;
  if (!impl_->lookups.closed()) return false;
  lookup.done(engine::shutting_down());  // NOLINT(bugprone-use-after-move): it was not taken
  return true;
}

void Registry::Impl::run_lookups() {
  for (;;) {
    std::vector<Lookup> taken = lookups.wait_drain();
    if (taken.empty()) return;  // it is closed
    for (Lookup& lookup : taken) {
      (void)guarded([&]() -> Result<void> {
        lookup.done(guarded(
            [&] { return look_up(lookup.name.empty() ? default_model.name : lookup.name); }));
        return {};
      });
    }
  }
}

Result<ModelStatus> Registry::Impl::look_up(const std::string& name) {
  if (directory.get()->stopping) return engine::shutting_down();
  Result<ServedModel> found = Error{ErrorCode::kInvalid, "holds a control character"};
  if (!has_control_character(name)) {
    found = guarded([&] { return factory->find(name); }, "cannot be looked up: ");
  }
  const auto answer =
      mailbox->ask([&](RegistryActor& asked) { return asked.status_of(name, found); });
  return answer ? *answer : engine::shutting_down();
}

void Registry::load_adapter(AdapterSource source, std::string base, bool may_replace,
                            const AdapterDone& done) {
  const bool posted = impl_->mailbox->post(
      [source = std::move(source), base = std::move(base), may_replace,
       done](RegistryActor& actor) { actor.load_adapter(source, base, may_replace, done); });
  if (!posted) done(engine::shutting_down());
}

void Registry::unload_adapter(std::string name, const AdapterDone& done) {
  const bool posted = impl_->mailbox->post(
      [name = std::move(name), done](RegistryActor& actor) { actor.unload_adapter(name, done); });
  if (!posted) done(engine::shutting_down());
}

std::vector<ModelStatus> Registry::list() const {
  const auto directory = impl_->directory.get();
  std::vector<ModelStatus> all;
  for (const auto& entry : directory->entries) {
    if (entry->served != nullptr) all.push_back(entry->status(directory->stopping));
  }
  std::sort(all.begin(), all.end(), [](const ModelStatus& a, const ModelStatus& b) {
    return a.description.name < b.description.name;
  });
  return all;
}

bool Registry::is_auto() const { return impl_->is_auto; }

const ModelDescription& Registry::default_model() const { return impl_->default_model; }

bool Registry::healthy() const {
  const auto directory = impl_->directory.get();
  if (directory->stopping || impl_->is_auto) return !directory->stopping;
  return std::any_of(directory->entries.begin(), directory->entries.end(),
                     [](const auto& entry) { return entry->route || entry->comes_back; });
}

void Registry::stop(int grace_ms) {
  const std::lock_guard lock(impl_->stop_mutex);
  if (!impl_->actor_thread.joinable()) return;
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(grace_ms);
  impl_->mailbox->post([deadline](RegistryActor& actor) { actor.stop(deadline); });
  impl_->lookups.close();
  impl_->actor_thread.join();
  if (impl_->lookup_thread.joinable()) impl_->lookup_thread.join();
}

int DownloadState::percent() const {
  if (bytes_total <= 0) return 0;
  const double share = static_cast<double>(bytes_done) / static_cast<double>(bytes_total);
  return static_cast<int>(100.0 * std::clamp(share, 0.0, 1.0));
}

}  // namespace lmtp::registry
