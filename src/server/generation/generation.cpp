#include "generation.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "controllers.h"
#include "encode_text.h"
#include "grammars.h"
#include "lmtp/aici/instance.h"
#include "lmtp/aici/storage_json.h"
#include "lmtp/base/guarded.h"
#include "lmtp/registry/stream_canceller.h"
#include "lmtp/request/request.h"

namespace lmtp::server {
namespace {

// A model that is unloaded so often before a request's prompts are ids is in too much demand.
constexpr int kAwaitsMax = 3;

using Compiled = constraint::GrammarCompiler::Compiled;

// One HTTP request until its last token, on the strand of its responder. Owned by the sink of its
// sequences, which engines hold, and by the encoder's job.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(const GenerationContext& context, GenerationRequest request,
             std::shared_ptr<HttpResponder> responder, std::shared_ptr<GenerationListener> listener)
      : context_(context),
        request_(std::move(request)),
        responder_(std::move(responder)),
        listener_(std::move(listener)),
        part_(std::in_place, context.waiting) {}

  void start() {
    responder_->on_gone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->end();
    });
    if (auto allowed = check_access(); !allowed) {
      context_.models.refusals().add(allowed.error().code);
      return end(allowed.error(), true);
    }
    if (!part_->set(request_.num_bytes)) {
      return fail({ErrorCode::kOverloaded,
                   "overloaded: what waits for models takes too much memory; retry later"});
    }
    advance();
  }

 private:
  // A sample of a prompt, or a prompt's score.
  struct Sequence {
    StreamKey key;
    std::shared_ptr<registry::StreamCanceller> canceller;  // null: it does not run
    std::optional<SampleText> text;                        // of a sample
  };

  // What is submitted is checked there.
  Result<void> check_access() const {
    const auto caller = responder_->caller();
    if (request_.generates || request_.scores_prompts || caller->account == nullptr) return {};
    return context_.models.check_access(*caller->account, request_.model);
  }

  void advance() {
    auto model = context_.models.ready_model(request_.model);
    if (!model) return await_model();
    if (!request_.is_slow && request_.num_bytes <= kEncodedAtOnceMax) {
      return on_prompts(*model, guarded([&] { return request_.make_prompts(*model); }));
    }
    auto job = [self = shared_from_this(), model = std::move(*model)] {
      auto prompts = std::make_shared<Result<Prompts>>(
          guarded([&] { return self->request_.make_prompts(model); }));
      self->responder_->post(
          [self, model, prompts] { self->on_prompts(model, std::move(*prompts)); });
    };
    if (!context_.encoder.submit(responder_->id(), std::move(job))) {
      fail({ErrorCode::kOverloaded, "overloaded: long texts wait to be read; retry later"});
    }
  }

  void await_model() {
    if (++num_awaits_ > kAwaitsMax) {
      return fail(
          {ErrorCode::kUnavailable, "model: was unloaded again before this could be read; retry"});
    }
    awaited_.key = {responder_->id(), 0};
    submit(RequestKind::kAwaitModel, Request(), awaited_);
  }

  void on_prompts(const registry::ReadyModel& model, Result<Prompts> prompts) {
    if (ended_) return;
    if (!prompts) return fail(prompts.error());
    const std::size_t num_sequences = prompts->size() * num_samples();
    if (num_sequences > kSequencesMax) {
      return fail({ErrorCode::kInvalid, "prompt: asks for " + std::to_string(num_sequences) +
                                            " sequences (prompts times samples), allowed are at "
                                            "most " +
                                            std::to_string(kSequencesMax) +
                                            "; send them in parts"});
    }
    if (!model.tokenizer) return fail(no_tokenizer("prompt", model.tokenizer.error()));
    if (!request_.params.has_seed) {
      request_.params.seed = fresh_seed();
      request_.params.has_seed = true;
    }
    prompts_ = std::move(*prompts);
    const auto held = listener_;  // what it writes may end this
    if (auto taken = listener_->on_prompts(model, prompts_, request_.params); !taken) {
      return fail(taken.error());
    }
    if (ended_) return;
    model.end_answers(request_.params);
    if (request_.controller) return instantiate(model);
    if (!request_.grammar || !request_.generates) return submit_all(model);
    if (auto takes = check_grammars(model); !takes) return fail(of_grammar(takes.error()));
    // The sink owns this until the compiler tells it.
    compiled_ = std::make_shared<std::optional<Compiled>>();
    ready_ = model;
    model.grammars->compile(*request_.grammar, [sink = sink(), to = compiled_](Compiled compiled) {
      *to = std::move(compiled);
      tell_ready(*sink, {});
    });
  }

  void on_compiled() {
    if (!**compiled_) return fail(of_grammar((*compiled_)->error()));
    submit_all(*std::exchange(ready_, std::nullopt));
  }

  // In the words of the protocol.
  Error of_grammar(Error error) const {
    constexpr std::string_view kField = "grammar";
    if (error.message.starts_with(kField)) {
      error.message.replace(0, kField.size(), request_.grammar_field);
    }
    return error;
  }

  void instantiate(const registry::ReadyModel& model) {
    if (!model.controllers) return fail(of_controller(model.controllers.error()));
    const GenerationController& controller = *request_.controller;
    instance_ = std::make_shared<aici::Instance>(*model.controllers, controller.request_id);
    // As compiled_.
    instantiated_ = std::make_shared<std::optional<Result<aici::Instantiated>>>();
    ready_ = model;
    (*model.controllers)
        ->instantiate({.request_id = controller.request_id,
                       .prompt = prompts_.front(),
                       .controller = controller.name,
                       .arg = controller.arg,
                       .auth = auth_of(responder_->caller().get())},
                      [sink = sink(), to = instantiated_](Result<aici::Instantiated> done) {
                        *to = std::move(done);
                        tell_ready(*sink, {});
                      });
  }

  void on_instantiated() {
    Result<aici::Instantiated>& done = **instantiated_;
    if (!done) return fail(of_controller(done.error()));
    take_prompt(*done, prompts_.front());
    listener_->on_output({.logs = std::move(done->log.logs),
                          .storage = aici::storage_json(done->log.storage),
                          .micros = done->log.micros});
    submit_all(*std::exchange(ready_, std::nullopt));
  }

  std::size_t num_samples() const { return static_cast<std::size_t>(request_.num_samples); }

  void submit_all(const registry::ReadyModel& model) {
    request_.make_prompts = nullptr;
    request_.model = model.name;  // while it runs another may become the only one
    context_length_ = model.limits.context_length;
    part_.reset();
    for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
      if (request_.scores_prompts) ++num_left_;
      if (!request_.generates) continue;
      const SampleText text(model, prompts_[prompt], 0, request_.params, request_.text);
      for (int i = 0; i < request_.num_samples; ++i) {
        samples_.push_back({{responder_->id(), static_cast<StreamId>(prompt), i}, nullptr, text});
      }
    }
    num_left_ += samples_.size();
    scores_.resize(prompts_.size());
    for (std::size_t prompt = 0; prompt < prompts_.size() && !ended_; ++prompt) {
      if (request_.scores_prompts) {
        submit_score(prompt);
      } else if (request_.generates) {
        submit_samples(prompt);
      }
    }
    finish_step();
  }

  // The streams 0, 1, ... are the prompts' samples; behind them are the prompts' scores.
  void submit_score(std::size_t prompt) {
    const std::vector<TokenId>& ids = prompts_[prompt];
    if (ids.size() < 2) return end_score(prompt);
    Request request;
    request.prompt = {ids.front()};
    request.scored.assign(ids.begin() + 1, ids.end());
    request.params.top_logprobs = request_.params.top_logprobs;
    scores_[prompt].key = {responder_->id(), static_cast<StreamId>(prompts_.size() + prompt)};
    submit(RequestKind::kScore, std::move(request), scores_[prompt]);
  }

  // Behind the score, the samples find the prompt in the prefix cache.
  void end_score(std::size_t prompt) {
    scores_[prompt].canceller.reset();
    --num_left_;
    if (request_.generates) submit_samples(prompt);
  }

  void submit_samples(std::size_t prompt) {
    for (std::size_t i = 0; i < num_samples() && !ended_; ++i) {
      Sequence& sample = samples_[prompt * num_samples() + i];
      Request request;
      request.prompt = prompts_[prompt];
      request.params = request_.params;
      request.params.seed += i;
      if (!request_.penalizes_prompts) {
        request.params.penalties_from = static_cast<int>(request.prompt.size());
      }
      if (request_.to_context_end) {
        request.params.max_tokens =
            std::max(1, context_length_ - static_cast<int>(request.prompt.size()));
      }
      request.stops = sample.text->make_stop_checker();
      if (compiled_ != nullptr) {
        const Result<void> fits = constrain(***compiled_, request);
        if (!fits) return fail(of_grammar(fits.error()));
        request.grammar = std::make_shared<const Grammar>(*request_.grammar);
      }
      request.controller = std::move(instance_);
      submit(RequestKind::kGenerate, std::move(request), sample);
    }
  }

  std::shared_ptr<EventSink> sink() {
    auto sink = sink_.lock();
    if (!sink) {
      sink = make_event_sink(responder_,
                             [self = shared_from_this()](auto events) { self->on_events(events); });
      sink_ = sink;
    }
    return sink;
  }

  void submit(RequestKind kind, Request request, Sequence& sequence) {
    request.key = sequence.key;
    request.arrival = arrival_;
    request.sink = sink();
    request.model = request_.model;
    request.caller = responder_->caller();
    request.others_connected = responder_->others_connected();
    request.kind = kind;
    registry::Submission submitted = context_.models.submit(std::move(request));
    if (auto* canceller = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submitted)) {
      sequence.canceller = std::move(*canceller);
      return;
    }
    const auto& refusal = std::get<registry::Refusal>(submitted);
    end(refusal.error, refusal.no_model);
  }

  void on_events(std::span<StreamEvent> events) {
    const auto held = listener_;  // what it writes may end this
    for (StreamEvent& event : events) {
      if (ended_) return;
      std::visit([&](auto& kind) { on_event(kind); }, event);
    }
    finish_step();
  }

  void on_event(TokenEvent& event) {
    const bool is_last = event.finish_reason != FinishReason::kNone;
    const auto stream = static_cast<std::size_t>(event.stream_id);
    if (stream >= prompts_.size()) {
      const std::size_t prompt = stream - prompts_.size();
      listener_->on_prompt_token(static_cast<int>(prompt), std::move(event));
      if (is_last) end_score(prompt);
      return;
    }
    Sequence& sample = samples_[stream * num_samples() + static_cast<std::size_t>(event.sample)];
    sample.text->backtrack(static_cast<std::size_t>(event.num_backtracked));
    auto piece = sample.text->push(event.token, event.finish_reason);
    if (is_last) end_sample(sample);
    listener_->on_token({static_cast<int>(stream), std::move(event), std::move(piece.text),
                         std::move(piece.stop_text)});
  }
  void end_sample(Sequence& sample) {
    sample.canceller.reset();
    --num_left_;
  }

  void on_event(const StreamError& event) {
    if (!request_.controller || event.error.code != ErrorCode::kConstraint) {
      return end(event.error, event.no_model);
    }
    end_sample(samples_[static_cast<std::size_t>(event.sample)]);
    listener_->on_sample_error(event.sample, event.error);
  }
  void on_event(const ModelReady& /*event*/) {
    if (compiled_ != nullptr) return on_compiled();
    if (instantiated_ != nullptr) return on_instantiated();
    awaited_.canceller.reset();
    advance();
  }
  void on_event(const LoadingNotice& /*event*/) {}
  void on_event(const StreamNotice& /*event*/) {}
  void on_event(const ForkBegun& /*event*/) {}
  void on_event(const EditRefused& /*event*/) {}
  void on_event(const SampleForked& event) {
    Sequence fork = samples_[static_cast<std::size_t>(event.fork_of)];
    fork.key.sample = event.sample;
    fork.text->backtrack(static_cast<std::size_t>(event.num_backtracked));
    samples_.push_back(std::move(fork));
    ++num_left_;
    listener_->on_forked(event);
  }
  void on_event(const ControllerOutput& event) { listener_->on_output(event); }

  void finish_step() {
    if (ended_ || prompts_.empty() || ready_) return;
    if (auto taken = listener_->on_step(); !taken) return fail(taken.error());
    if (ended_ || num_left_ > 0) return;
    ended_ = true;
    std::exchange(listener_, nullptr)->on_end();
  }

  // Of what no model has.
  void fail(const Error& error) {
    context_.models.refusals().add(error.code);
    end(error, false);
  }

  void end(const Error& error, bool no_model) {
    if (ended_) return;
    const auto listener = listener_;
    end();
    listener->on_error(error, no_model);
  }

  void end() {
    ended_ = true;
    part_.reset();
    ready_.reset();
    instance_.reset();
    listener_.reset();
    const auto cancel = [](Sequence& sequence) {
      if (sequence.canceller != nullptr) sequence.canceller->cancel(sequence.key);
    };
    cancel(awaited_);
    std::ranges::for_each(scores_, cancel);
    std::ranges::for_each(samples_, cancel);
  }

  const GenerationContext& context_;
  GenerationRequest request_;
  const std::shared_ptr<HttpResponder> responder_;
  // Both end on the strand: an engine may hold the sink for longer than there is a server.
  std::shared_ptr<GenerationListener> listener_;
  std::optional<MemoryLimit::Part> part_;
  const std::chrono::steady_clock::time_point arrival_ = std::chrono::steady_clock::now();
  std::weak_ptr<EventSink> sink_;  // engines own it while they have sequences
  int num_awaits_ = 0;
  // While the grammar is being compiled, or the controller instantiated: the model. Once that is
  // told the result has been written.
  std::optional<registry::ReadyModel> ready_;
  std::shared_ptr<aici::Instance> instance_;  // until it is submitted
  std::shared_ptr<std::optional<Result<aici::Instantiated>>> instantiated_;  // null: no controller
  std::shared_ptr<std::optional<Compiled>> compiled_;                        // null: no grammar
  int context_length_ = 0;
  bool ended_ = false;
  Prompts prompts_;
  Sequence awaited_;
  std::vector<Sequence> samples_;  // [prompts, num_samples], or one and its controller's forks
  std::vector<Sequence> scores_;   // [prompts]
  std::size_t num_left_ = 0;       // of both
};

}  // namespace

void generate(const GenerationContext& context, GenerationRequest request,
              std::shared_ptr<HttpResponder> responder,
              std::shared_ptr<GenerationListener> listener) {
  std::make_shared<Generation>(context, std::move(request), std::move(responder),
                               std::move(listener))
      ->start();
}

}  // namespace lmtp::server
