#include "lmtp/balance/remote_models.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/base/text.h"
#include "lmtp/engine/refusals.h"
#include "lmtp/registry/metered_sink.h"
#include "pool.h"

namespace lmtp::balance {
namespace {

using registry::ModelStatus;
using registry::Refusal;
using registry::Submission;

const Error kNoControllers{ErrorCode::kInvalid,
                           "a balancer runs none; ask a worker that was started with --aici"};
const Error kNoEdits{ErrorCode::kInvalid,
                     "FORK and BACKTRACK: not through a balancer; send a new GENERATE with the "
                     "tokens that it should begin with, or ask a worker itself"};
const Error kNoEmbeddings{ErrorCode::kInvalid,
                          "embeddings: not through a balancer; ask a worker itself"};
const Error kNoAdapters{ErrorCode::kInvalid,
                        "a balancer loads no adapters; ask each of the workers"};

}  // namespace

std::string WorkerAddress::name() const { return address_text(host, port); }

Result<WorkerAddress> parse_worker_address(const std::string& text) {
  WorkerAddress address;
  const Error wrong{ErrorCode::kInvalid, "'" + text +
                                             "' is no worker; write HOST:PORT, [ADDRESS]:PORT or "
                                             "unix:PATH"};
  if (text.starts_with(kUnixScheme)) {
    if (text.size() == kUnixScheme.size()) return wrong;
    address.host = text;
    return address;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return wrong;
  address.host = text.substr(0, colon);
  const bool is_bracketed = address.host.starts_with('[') && address.host.ends_with(']');
  if (is_bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host.empty() || (!is_bracketed && address.host.find(':') != std::string::npos)) {
    return wrong;
  }
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, address.port);
  if (parsed.ec != std::errc() || parsed.ptr != end || address.port == 0) return wrong;
  return address;
}

struct RemoteModels::Impl {
  explicit Impl(BalanceOptions options)
      : pool(std::make_shared<Pool>(std::move(options), refusals)) {
    texts.controllers = kNoControllers;
  }

  ModelStatus status() const {
    ModelStatus status = pool->status();
    status.answer_end_ids = texts.answer_end_ids;
    if (texts.tokenizer) status.reply_layout = texts.reply_layout;
    return status;
  }

  // As the workers are asked: they know which names the model answers to.
  std::string name_of(const std::string& asked) const {
    const bool is_any = registry::is_any_model(asked) && !pool->has_adapter(asked);
    return asked.empty() || is_any ? pool->model_name() : asked;
  }

  registry::RefusalCounts refusals;
  registry::LoadedTexts texts;
  const registry::ModelDescription no_model;
  const std::shared_ptr<Pool> pool;
};

RemoteModels::RemoteModels(BalanceOptions options) {
  LMTP_CHECK(!options.workers.empty() && options.workers.size() <= kWorkersMax,
             options.workers.size());
  LMTP_CHECK(options.connections >= 1, options.connections);
  LMTP_CHECK(std::ssize(options.workers) * options.connections <= kLinksMax, options.connections);
  LMTP_CHECK(options.affinity_tokens >= 0, options.affinity_tokens);
  LMTP_CHECK(options.balance_factor >= 1, options.balance_factor);
  LMTP_CHECK(options.max_requests > 0, options.max_requests);
  LMTP_CHECK(options.worker_timeout_ms > 0, options.worker_timeout_ms);
  LMTP_CHECK(options.stall_timeout_ms >= 0, options.stall_timeout_ms);
  LMTP_CHECK(options.shun_ms >= 0, options.shun_ms);
  LMTP_CHECK(options.health_interval_ms > 0, options.health_interval_ms);
  LMTP_CHECK(options.silence_timeout_ms >= options.health_interval_ms, options.silence_timeout_ms);
  impl_ = std::make_unique<Impl>(std::move(options));
  impl_->pool->begin();
}

RemoteModels::~RemoteModels() { stop(0); }

std::optional<Result<void>> RemoteModels::start(int wait_ms) { return impl_->pool->start(wait_ms); }

void RemoteModels::set_texts(registry::LoadedTexts texts) {
  impl_->texts = std::move(texts);
  impl_->texts.controllers = kNoControllers;
}

Submission RemoteModels::submit(Request&& request) {
  if (registry::is_any_model(request.model)) request.model = impl_->name_of(request.model);
  const auto submit = [this](Request& checked) -> Submission {
    if (checked.controller != nullptr) return Refusal{kNoControllers};
    if (checked.kind == RequestKind::kEmbed) return Refusal{kNoEmbeddings};
    if (const auto limits = impl_->pool->limits();
        limits && checked.kind != RequestKind::kAwaitModel) {
      if (const Result<void> ok = engine::check_request(checked, *limits); !ok) {
        return Refusal{ok.error()};
      }
    }
    if (auto refused = impl_->pool->submit(checked)) return Refusal{*std::move(refused)};
    return std::shared_ptr<registry::StreamCanceller>(impl_->pool);
  };
  Submission submission = registry::submit_metered(
      request,
      [this](const Account& account, const std::string& name) {
        return check_access(account, name);
      },
      submit);
  if (const auto* refusal = std::get_if<Refusal>(&submission)) {
    impl_->refusals.add(request, refusal->error.code);
  }
  return submission;
}

std::string RemoteModels::lasting_name(const std::string& name) const { return name; }

Submission RemoteModels::submit_forks(std::vector<Request> forks) {
  for (const Request& fork : forks) impl_->refusals.add(fork, kNoEdits.code);
  return Refusal{kNoEdits};
}

Result<void> RemoteModels::backtrack(const std::string& /*model*/, Backtrack /*command*/) {
  return kNoEdits;
}

Result<void> RemoteModels::check_access(const Account& account, const std::string& name) const {
  const std::string asked = impl_->name_of(name);
  if (account.may_use(asked)) return {};
  return registry::not_for(account, name);
}

registry::RefusalCounts& RemoteModels::refusals() { return impl_->refusals; }
const registry::RefusalCounts& RemoteModels::refusals() const { return impl_->refusals; }

std::optional<engine::ModelLimits> RemoteModels::limits_of(const std::string& /*name*/) const {
  return impl_->pool->limits();
}

std::optional<registry::ReadyModel> RemoteModels::ready_model(const std::string& name) const {
  if (!impl_->pool->is_ready()) return std::nullopt;
  const registry::LoadedTexts& texts = impl_->texts;
  return registry::ReadyModel{impl_->name_of(name), *impl_->pool->limits(), texts.tokenizer,
                              texts.chat_template,  texts.grammars,         texts.controllers,
                              texts.answer_end_ids, texts.reply_layout,     texts.decisions,
                              texts.embeddings};
}

std::optional<Result<ModelStatus>> RemoteModels::status(const std::string& /*name*/) const {
  return impl_->status();
}

// status() always answers.
bool RemoteModels::look_up(std::string /*name*/,
                           std::function<void(Result<ModelStatus>)> /*done*/) {
  return false;
}

void RemoteModels::load_adapter(AdapterSource /*source*/, std::string /*base*/,
                                bool /*may_replace*/, const AdapterDone& done) {
  done(kNoAdapters);
}

void RemoteModels::unload_adapter(std::string /*name*/, const AdapterDone& done) {
  done(kNoAdapters);
}

std::vector<ModelStatus> RemoteModels::list() const { return {impl_->status()}; }

bool RemoteModels::is_auto() const { return false; }

const registry::ModelDescription& RemoteModels::default_model() const { return impl_->no_model; }

bool RemoteModels::healthy() const { return impl_->pool->is_ready(); }

void RemoteModels::stop(int grace_ms) { impl_->pool->stop(grace_ms); }

}  // namespace lmtp::balance
