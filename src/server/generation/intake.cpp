#include "intake.h"

#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "controllers.h"
#include "encode_text.h"
#include "lmtp/aici/storage_json.h"
#include "lmtp/base/guarded.h"
#include "lmtp/request/error_text.h"

namespace lmtp::server {
namespace {

// A model that is unloaded so often before a request's text has been encoded is in too much demand.
constexpr int kAwaitsMax = 3;

Intake::Progress refused(Error error) {
  return {.model = {}, .refusal = registry::Refusal{std::move(error)}, .awaited = {}};
}

void sign(const Requester& from, Request& request) {
  request.key.connection = from.key.connection;
  request.sink = from.sink;
  request.caller = from.caller;
  request.others_connected = from.others_connected();
  request.arrival = from.arrival;
}

// For what needs none.
registry::ReadyModel no_model() {
  const Error none{ErrorCode::kInternal, "internal: no model"};
  return {{}, {}, none, none};
}

// Tells a connection, from another thread, that what it waits for is done.
void tell_ready(EventSink& sink, const ModelReady& event) {
  guarded_twice([&] { deliver_now(sink, event); });
}

// Whether the model takes grammars; the error says why it does not.
Result<void> check_grammars(const registry::ReadyModel& model) {
  if (!model.tokenizer) return no_tokenizer("grammar", model.tokenizer.error());
  const Result<void> supported = constraint::grammar_support();
  if (supported) return {};
  return Error{ErrorCode::kInvalid, "grammar: " + supported.error().message + "; leave it out"};
}

// Keeps the sample to the grammar, beside the stops that it has.
Result<void> constrain(const std::shared_ptr<const constraint::CompiledGrammar>& grammar,
                       const std::optional<GrammarTriggers>& triggers, Request& request) {
  const std::span<const TokenId> prompt(request.prompt);
  auto stream =
      constraint::constrain(grammar, prompt.last(static_cast<std::size_t>(request.num_resumed)),
                            std::move(request.stops), triggers, request.params.stop_token_ids);
  if (!stream) return stream.error();
  request.mask_source = std::move(stream->mask_source);
  request.stops = std::move(stream->stops);
  return {};
}

}  // namespace

Error overloaded(const std::string& what) {
  return {ErrorCode::kOverloaded, "overloaded: " + what + "; retry later"};
}

registry::Submission submit(const CallerModels& models, const Requester& from, Request&& request) {
  sign(from, request);
  request.key.stream = from.key.stream;
  return models.submit(std::move(request));
}

registry::Submission submit_forks(const CallerModels& models, const Requester& from,
                                  std::vector<Request> forks) {
  for (Request& fork : forks) sign(from, fork);
  return models.submit_forks(std::move(forks));
}

Intake::Intake(CallerModels models, Encoder& encoder, std::shared_ptr<MemoryLimit::Part> part,
               Needs needs)
    : models_(std::move(models)),
      encoder_(encoder),
      part_(std::move(part)),
      needs_(std::move(needs)) {
  for (const std::string& word : needs_.bad_words) needs_.coded_bytes += 4 * word.size();
}

Intake::~Intake() { part_->replace(counted_bytes_, 0); }

bool Intake::count() {
  std::size_t bytes = num_bytes() + (needs_.grammar ? needs_.grammar->text.size() : 0);
  for (const std::string& word : needs_.bad_words) bytes += word.size();
  if (needs_.controller) bytes += needs_.controller->name.size() + needs_.controller->arg.size();
  if (!part_->replace(counted_bytes_, bytes)) return false;
  counted_bytes_ = bytes;
  return true;
}

Intake::Progress Intake::advance(const Requester& from) {
  // What was begun with a model goes on with it, be it unloaded meanwhile.
  if (std::exchange(encoding_, 0) == 0) model_ = models_.ready_model(needs_.model);
  if (!model_ && needs_.has_model) return await_model(from);
  if (!model_) model_ = no_model();
  if (!encoded_) {
    if (needs_.is_slow || needs_.coded_bytes > kEncodedAtOnceMax) return encode_later(from);
    encoded_ = guarded([&] { return encode_all(*model_); });
  }
  if (!*encoded_) return refused(encoded_->error());
  if (!std::exchange(is_accepted_, true)) {
    if (const auto accepted = accept(*model_, **encoded_); !accepted) {
      return refused(accepted.error());
    }
    bad_words_ = std::move((*encoded_)->bad_words);
    if ((*encoded_)->grammar) needs_.grammar = std::move((*encoded_)->grammar);
    if (!(*encoded_)->grammar_field.empty()) needs_.grammar_field = (*encoded_)->grammar_field;
  }
  if (needs_.grammar) {
    if (grammar_ == nullptr) return compile_later(from);
    const bool is_of_grammar =
        (*grammar_)->ok() || (*grammar_)->error().code == ErrorCode::kInvalid;
    const bool is_found = is_first_grammar_ && (*grammar_)->ok();
    if ((*encoded_)->retry != nullptr && is_of_grammar && !is_found) {
      if (!retried_) return retry_later(from);
      auto other = *std::exchange(retried_, std::nullopt);
      if (!other) return refused(other.error());
      if (*other) {
        needs_.grammar = *std::move(*other);
        is_first_grammar_ = false;
        return compile_later(from);
      }
    }
    (*encoded_)->retry.reset();
    if (!**grammar_) return refused(about_grammar((*grammar_)->error()));
  }
  if (needs_.controller) {
    if (instantiated_ == nullptr) return instantiate_later(from);
    if (const auto taken = take_instance(); !taken) return refused(taken.error());
  }
  part_->replace(std::exchange(counted_bytes_, 0), 0);
  return {.model = std::exchange(model_, std::nullopt), .refusal = {}, .awaited = {}};
}

Result<Encoded> Intake::encode_all(const registry::ReadyModel& model) {
  Result<Encoded> encoded = encode(model);
  if (!encoded || needs_.bad_words.empty()) return encoded;
  auto words = encode_bad_words(model.tokenizer, needs_.bad_words);
  if (!words) return words.error();
  encoded->bad_words = std::move(*words);
  return encoded;
}

Intake::Progress Intake::await_model(const Requester& from) {
  if (++num_awaits_ > kAwaitsMax) {
    return refused(
        {ErrorCode::kUnavailable, "model: was unloaded again before this could be read; retry"});
  }
  if (!count()) return refused(overloaded("what waits for models takes too much memory"));
  Request request;
  request.model = needs_.model;
  request.kind = RequestKind::kAwaitModel;
  registry::Submission submitted = submit(models_, from, std::move(request));
  if (auto* canceller = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submitted)) {
    return {.model = {}, .refusal = {}, .awaited = std::move(*canceller)};
  }
  return {.model = {},
          .refusal = std::get<registry::Refusal>(std::move(submitted)),
          .is_counted = true,
          .awaited = {}};
}

// Another thread has it from here, which tells of the end by ModelReady.
Result<void> Intake::hand_over(const Requester& from) {
  if (!count()) return overloaded("what waits for models takes too much memory");
  // Another model may be the loaded one by the time that this one's work is done.
  if (needs_.model.empty()) needs_.model = model_->name;
  encoding_ = from.encoding;
  return {};
}

// On the encoder's thread.
Intake::Progress Intake::work_later(const Requester& from, std::function<void(Intake&)> work) {
  if (const auto taken = hand_over(from); !taken) return refused(taken.error());
  auto job = [work = std::move(work), weak = weak_from_this(), sink = from.sink,
              event = ModelReady{from.key.stream, encoding_}] {
    const auto kept = weak.lock();
    if (kept == nullptr) return;  // dropped
    work(*kept);
    tell_ready(*sink, event);
  };
  if (encoder_.submit(share_of(from.caller.get(), from.key.connection), std::move(job))) return {};
  return refused(overloaded("long texts wait to be read"));
}

Intake::Progress Intake::encode_later(const Requester& from) {
  return work_later(from, [](Intake& self) {
    self.encoded_ = guarded([&] { return self.encode_all(*self.model_); });
  });
}

Intake::Progress Intake::retry_later(const Requester& from) {
  return work_later(from, [](Intake& self) {
    self.retried_ = guarded([&]() -> Result<std::optional<Grammar>> {
      return (*self.encoded_)->retry->next((*self.grammar_)->ok());
    });
  });
}

Intake::Progress Intake::compile_later(const Requester& from) {
  const Result<void> supported = check_grammars(*model_);
  if (!supported) return refused(about_grammar(supported.error()));
  if (const auto taken = hand_over(from); !taken) return refused(taken.error());
  grammar_ = std::make_shared<std::optional<Compiled>>();
  // It keeps the compiler: where the model is unloaded, that ends on its own thread.
  auto done = [to = grammar_, compiler = model_->grammars, sink = from.sink,
               event = ModelReady{from.key.stream, encoding_}](Compiled compiled) {
    *to = std::move(compiled);
    tell_ready(*sink, event);
  };
  const Grammar& grammar = *needs_.grammar;
  model_->grammars->compile({grammar.kind, grammar.text}, std::move(done),
                            grammar.triggers ? std::vector<TokenId>() : resumed(),
                            share_of(from.caller.get(), from.key.connection));
  return {};
}

Intake::Progress Intake::instantiate_later(const Requester& from) {
  if (!model_->controllers) {
    return refused(with_field_name("controller", model_->controllers.error()));
  }
  if (const auto taken = hand_over(from); !taken) return refused(taken.error());
  const GenerationController& controller = *needs_.controller;
  aici::Runtime& runtime = **model_->controllers;
  instance_ = std::make_shared<aici::Instance>(*model_->controllers, controller.request_id);
  instantiated_ = std::make_shared<std::optional<Result<aici::Instantiated>>>();
  runtime.instantiate(
      {.request_id = controller.request_id,
       .prompt = (*encoded_)->prompts.front(),
       .controller = controller.name,
       .arg = controller.arg,
       .auth = auth_of(from.caller.get(), from.key.connection)},
      [to = instantiated_, sink = from.sink,
       event = ModelReady{from.key.stream, encoding_}](Result<aici::Instantiated> instantiated) {
        *to = std::move(instantiated);
        tell_ready(*sink, event);
      });
  return {};
}

Result<void> Intake::take_instance() {
  Result<aici::Instantiated>& done = **instantiated_;
  if (!done) return with_field_name("controller", done.error());
  begun_.emplace();
  begun_->output.logs = std::move(done->log.logs);
  begun_->output.storage = aici::storage_json(done->log.storage);
  begun_->output.micros = done->log.micros;
  begun_->changes_prompt = take_prompt(*done, (*encoded_)->prompts.front());
  return {};
}

// In the words of the protocol.
Error Intake::about_grammar(Error error) const {
  constexpr std::string_view kField = "grammar";
  if (error.message.starts_with(kField)) {
    error.message.replace(0, kField.size(), needs_.grammar_field);
  }
  return error;
}

// Empty where there are more than the prompt has, which its owner refuses.
std::vector<TokenId> Intake::resumed() const {
  if (needs_.num_resumed == 0) return {};
  const std::vector<TokenId>& prompt = (*encoded_)->prompts.front();
  if (needs_.num_resumed > prompt.size()) return {};
  return {prompt.end() - static_cast<std::ptrdiff_t>(needs_.num_resumed), prompt.end()};
}

registry::Submission Intake::submit_sample(const Requester& from, Request&& request,
                                           const SampleText* text) const {
  if (text != nullptr) request.stops = text->make_stop_checker();
  request.controller = instance_;
  request.params.seed += static_cast<std::uint64_t>(request.key.sample);
  if (grammar_ != nullptr) {
    request.grammar = std::make_shared<const Grammar>(*needs_.grammar);
    if (const auto fits = constrain(***grammar_, needs_.grammar->triggers, request); !fits) {
      sign(from, request);
      models_.refusals().add(request, fits.error().code);
      return registry::Refusal{about_grammar(fits.error())};
    }
  }
  if (bad_words_ != nullptr) {
    request.mask_source = without(bad_words_, std::move(request.mask_source));
    request.bad_words = bad_words_;
  }
  return submit(models_, from, std::move(request));
}

}  // namespace lmtp::server
