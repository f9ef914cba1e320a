#include "generation.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>

#include "encode_text.h"
#include "fresh.h"
#include "lmtp/base/runtime.h"
#include "lmtp/request/error_text.h"
#include "lmtp/request/request.h"
#include "unknown_keys.h"

namespace lmtp::server {
namespace {

class Generation;

// That allows these ids, which ascend.
Result<std::shared_ptr<const TokenMask>> mask_of(const std::vector<TokenId>& ids,
                                                 const SamplingParams& params,
                                                 const engine::ModelLimits& limits) {
  if (ids.back() >= limits.vocab_size) {
    return Error{ErrorCode::kInvalid,
                 "allowed_token_ids: " + beyond_vocabulary(ids.back(), limits.vocab_size)};
  }
  constexpr std::size_t kWordBits = 64;
  auto mask = std::make_shared<TokenMask>();
  mask->num_bytes = (limits.vocab_size + 7) / 8;
  mask->words.resize((static_cast<std::size_t>(limits.vocab_size) + kWordBits - 1) / kWordBits);
  for (const TokenId id : ids) {
    mask->words[static_cast<std::size_t>(id) / kWordBits] |= std::uint64_t{1} << id % kWordBits;
  }
  if (params.min_tokens == 0 ||
      mask->allows_other(params.end_ids(limits.eos_ids), limits.vocab_size)) {
    return std::shared_ptr<const TokenMask>(std::move(mask));
  }
  return Error{ErrorCode::kInvalid,
               "allowed_token_ids: all of them end the answer, and none of those can be drawn "
               "before min_tokens; at least one other is needed"};
}

// What is done before its sequences run.
class PromptIntake final : public Intake {
 public:
  PromptIntake(const GenerationContext& context, Generation& of, GenerationRequest& request);

 private:
  Result<Encoded> encode(const registry::ReadyModel& model) override {
    auto prompts = std::exchange(make_prompts_, nullptr)(model);  // which may hold long texts
    if (!prompts) return prompts.error();
    Encoded encoded{.prompts = std::move(*prompts)};
    if (plan_ == nullptr) return encoded;
    encoded.grammar = std::move(plan_->grammar);
    encoded.retry = std::move(plan_->retry);
    return encoded;
  }
  Result<void> accept(const registry::ReadyModel& model, Encoded& encoded) override;
  std::size_t num_bytes() const override { return num_bytes_; }

  Generation& of_;  // which calls advance() alone
  std::function<Result<Prompts>(const registry::ReadyModel&)> make_prompts_;
  const std::shared_ptr<ReplyPlan> plan_;
  const std::size_t num_bytes_;
};

// One HTTP request until its last token, on the strand of its responder. Owned by the sink of its
// sequences, which engines hold, and by the encoder's job.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(const GenerationContext& context, GenerationRequest request,
             std::shared_ptr<HttpResponder> responder, std::shared_ptr<GenerationListener> listener)
      : context_(context),
        models_(context.models.of(responder->caller())),
        request_(std::move(request)),
        responder_(std::move(responder)),
        listener_(std::move(listener)),
        is_controlled_(request_.controller.has_value()),
        intake_(std::make_shared<PromptIntake>(context, *this, request_)) {}

  void start() {
    responder_->on_gone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->end();
    });
    awaited_.key.connection = responder_->id();
    advance();
  }

  // Of the intake.
  const CallerModels& models() const { return models_; }
  Result<void> accept(const registry::ReadyModel& model, Prompts& prompts) {
    const std::size_t num_sequences = prompts.size() * num_samples();
    if (num_sequences > kSequencesMax) {
      return Error{ErrorCode::kInvalid, "prompt: asks for " + std::to_string(num_sequences) +
                                            " sequences (prompts times samples), allowed are at "
                                            "most " +
                                            std::to_string(kSequencesMax) + "; send them in parts"};
    }
    if (!model.tokenizer) return no_tokenizer("prompt", model.tokenizer.error());
    if (auto few = check_prompt_logprobs(model.limits.vocab_size); !few) return few;
    if (request_.plan != nullptr) {
      request_.text.format = std::move(request_.plan->format);
      request_.text.markers = std::move(request_.plan->markers);
      if (request_.plan->counts_min_tokens) request_.params.min_tokens = 0;
      if (request_.plan->has_no_text) request_.text.stop.clear();
    }
    if (!request_.params.has_seed) {
      request_.params.seed = fresh_seed();
      request_.params.has_seed = true;
    }
    const auto held = listener_;  // what it writes may end this
    if (auto taken = held->on_prompts(model, prompts, request_.params); !taken) return taken;
    if (ended_) return Error{ErrorCode::kCancelled, "cancelled"};
    model.end_answers(request_.params);
    if (request_.allowed_token_ids.empty()) return {};
    auto mask = mask_of(request_.allowed_token_ids, request_.params, model.limits);
    if (!mask) return mask.error();
    request_.params.mask = std::move(*mask);
    return {};
  }

 private:
  // A sample of a prompt, or a prompt's score.
  struct Sequence {
    StreamKey key;
    std::shared_ptr<registry::StreamCanceller> canceller;  // null: it does not run
    std::optional<SampleText> text;                        // of a sample
    bool has_begun = false;                                // of a row: it has had events
  };

  Result<void> check_prompt_logprobs(int vocab_size) {
    if (request_.prompt_logprobs != -1) return {};
    request_.prompt_logprobs = vocab_size;
    if (vocab_size <= kMaxTopLogprobs) return {};
    return Error{ErrorCode::kInvalid, "prompt_logprobs: is -1, which is all of the vocabulary's " +
                                          std::to_string(vocab_size) +
                                          " tokens; allowed are at most " +
                                          std::to_string(kMaxTopLogprobs)};
  }

  void advance() {
    const auto intake = intake_;
    auto progress = intake->advance(requester(awaited_.key));
    awaited_.canceller = std::move(progress.awaited);
    if (ended_) return cancel(awaited_);
    if (progress.refusal) {
      if (!progress.is_counted) context_.models.refusals().add(progress.refusal->error.code);
      return end(progress.refusal->error, progress.refusal->no_model);
    }
    if (progress.model) submit_all(*progress.model);
  }

  std::size_t num_samples() const { return static_cast<std::size_t>(request_.num_samples); }

  void submit_all(const registry::ReadyModel& model) {
    has_begun_ = true;
    prompts_ = std::move(intake_->encoded().prompts);
    if (intake_->begun() != nullptr) listener_->on_output(intake_->begun()->output);
    request_.model = model.name;  // while it runs another may become the only one
    context_length_ = model.limits.context_length;
    if (request_.score_rows != nullptr) {
      submit_rows();
      return finish_step();
    }
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

  // The streams 0, 1, ... are the prompts' samples; after them come the prompts' scores.
  void submit_score(std::size_t prompt) {
    const std::vector<TokenId>& ids = prompts_[prompt];
    if (ids.size() < 2) return end_score(prompt);
    Request request;
    request.prompt = {ids.front()};
    request.scored.assign(ids.begin() + 1, ids.end());
    request.params.top_logprobs =
        std::max(request_.params.top_logprobs, request_.prompt_logprobs.value_or(0));
    request.params.measures.rank = request_.prompt_logprobs.has_value();
    scores_[prompt].key = {responder_->id(), static_cast<StreamId>(prompts_.size() + prompt)};
    submit(RequestKind::kScore, std::move(request), scores_[prompt]);
  }

  // After the score, the samples find the prompt in the prefix cache.
  void end_score(std::size_t prompt) {
    scores_[prompt].canceller.reset();
    --num_left_;
    if (request_.generates) submit_samples(prompt);
  }

  // The streams are the rows: as many as there may be, the others as these end.
  void submit_rows() {
    const auto held = request_.score_rows;  // a refusal may end this
    while (!ended_ && num_left_ < num_rows_max_) {
      std::optional<ScoreOfRow> next = (*held)->next();
      if (!next) return;
      Request request;
      const bool embeds = next->pooling != Pooling::kNone;
      request.kind = embeds ? RequestKind::kEmbed : RequestKind::kScore;
      request.model = request_.model;
      request.key = {responder_->id(), static_cast<StreamId>(next->row)};
      request.prompt = std::move(next->prompt);
      request.scored = std::move(next->scored);
      request.part_tokens = next->part_tokens;
      request.cache_salt = request_.cache_salt;
      request.priority = request_.priority;
      request.params.top_logprobs = next->top_logprobs;
      request.params.logprob_token_ids = std::move(next->listed);
      request.params.pooling = next->pooling;
      if (scores_.size() <= next->row) scores_.resize(next->row + 1);
      Sequence& row = scores_[next->row];
      row.key = request.key;
      auto submitted = server::submit(models_, requester(row.key), std::move(request));
      if (auto* canceller = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submitted)) {
        row.canceller = std::move(*canceller);
        ++num_left_;
        continue;
      }
      const auto& refusal = std::get<registry::Refusal>(submitted);
      if (num_left_ == 0 || refusal.error.code != ErrorCode::kOverloaded) {
        return end(refusal.error, refusal.no_model);
      }
      (*held)->give_back(next->row);
      num_rows_max_ = num_left_;
    }
  }

  void on_row_event(const TokenEvent& event) {
    const auto row = static_cast<std::size_t>(event.stream_id);
    const auto held = request_.score_rows;  // a refusal may end this
    (*held)->read(row, event);
    scores_[row].has_begun = true;
    if (event.finish_reason == FinishReason::kNone) return;
    scores_[row].canceller.reset();
    --num_left_;
    (*held)->end(row);
    submit_rows();
  }

  // Whether the model has refused a row that comes again as the others end.
  bool give_back(const StreamError& event) {
    const auto row = static_cast<std::size_t>(event.stream_id);
    const bool is_awaited = !has_begun_ || row >= scores_.size();
    if (is_awaited || event.error.code != ErrorCode::kOverloaded || scores_[row].has_begun ||
        num_left_ < 2) {
      return false;
    }
    scores_[row].canceller.reset();
    num_rows_max_ = --num_left_;
    (*request_.score_rows)->give_back(row);
    return true;
  }

  void submit_samples(std::size_t prompt) {
    for (std::size_t i = 0; i < num_samples() && !ended_; ++i) {
      Sequence& sample = samples_[prompt * num_samples() + i];
      Request request;
      request.prompt = prompts_[prompt];
      request.params = request_.params;
      if (!request_.penalizes_prompts) {
        request.params.penalties_from = static_cast<int>(request.prompt.size());
      }
      if (request_.to_context_end) {
        request.params.max_tokens =
            std::max(1, context_length_ - static_cast<int>(request.prompt.size()));
      }
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

  Requester requester(StreamKey key) {
    return {.key = key,
            .sink = sink(),
            .caller = responder_->caller(),
            .others_connected = [this] { return responder_->others_connected(); },
            .arrival = arrival_,
            .encoding = ++num_encodings_};
  }

  void submit(RequestKind kind, Request request, Sequence& sequence) {
    request.key = sequence.key;
    request.model = request_.model;
    request.kind = kind;
    request.cache_salt = request_.cache_salt;
    request.priority = request_.priority;
    const Requester from = requester(sequence.key);
    registry::Submission submitted =
        sequence.text ? intake_->submit_sample(from, std::move(request), &*sequence.text)
                      : server::submit(models_, from, std::move(request));
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
    if (request_.score_rows != nullptr) return on_row_event(event);
    const bool is_last = event.finish_reason != FinishReason::kNone;
    const auto stream = static_cast<std::size_t>(event.stream_id);
    if (stream >= prompts_.size()) {
      const std::size_t prompt = stream - prompts_.size();
      listener_->on_prompt_token(static_cast<int>(prompt), std::move(event));
      if (is_last) end_score(prompt);
      return;
    }
    const std::size_t at = stream * num_samples() + static_cast<std::size_t>(event.sample);
    if (at >= samples_.size()) return;  // what told of it was lost
    Sequence& sample = samples_[at];
    Reply reply = sample.text->read(std::move(event));
    reply.prompt = static_cast<int>(stream);
    if (is_last) end_sample(sample);
    listener_->on_reply(std::move(reply));
  }
  void end_sample(Sequence& sample) {
    sample.canceller.reset();
    --num_left_;
  }

  void on_event(const StreamError& event) {
    if (request_.score_rows != nullptr && give_back(event)) return;
    if (!is_controlled_ || event.error.code != ErrorCode::kConstraint) {
      return end(event.error, event.no_model);
    }
    if (event.sample >= std::ssize(samples_)) return;
    end_sample(samples_[static_cast<std::size_t>(event.sample)]);
    listener_->on_sample_error(event.sample, event.error);
  }
  void on_event(const ModelReady& /*event*/) { advance(); }
  void on_event(const LoadingNotice& /*event*/) {}
  void on_event(const StreamNotice& /*event*/) {}
  void on_event(const ForkBegun& /*event*/) {}
  void on_event(const EditRefused& /*event*/) {}
  void on_event(const SampleForked& event) {
    if (event.sample != std::ssize(samples_) || event.fork_of >= event.sample) return;
    Sequence fork = samples_[static_cast<std::size_t>(event.fork_of)];
    fork.key.sample = event.sample;
    fork.text->backtrack(static_cast<std::size_t>(event.num_backtracked));
    samples_.push_back(std::move(fork));
    ++num_left_;
    listener_->on_forked(event);
  }
  void on_event(const ControllerOutput& event) { listener_->on_output(event); }

  void finish_step() {
    if (ended_ || !has_begun_) return;
    if (auto taken = listener_->on_step(); !taken) return fail(taken.error());
    if (ended_ || num_left_ > 0) return;
    ended_ = true;
    intake_.reset();
    std::exchange(listener_, nullptr)->on_end();
    request_.score_rows.reset();
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
    intake_.reset();
    listener_.reset();
    request_.score_rows.reset();
    cancel(awaited_);
    std::ranges::for_each(scores_, cancel);
    std::ranges::for_each(samples_, cancel);
  }

  static void cancel(const Sequence& sequence) {
    if (sequence.canceller != nullptr) sequence.canceller->cancel(sequence.key);
  }

  const GenerationContext& context_;
  const CallerModels models_;
  GenerationRequest request_;
  const std::shared_ptr<HttpResponder> responder_;
  // These end on the strand: an engine may hold the sink for longer than there is a server.
  std::shared_ptr<GenerationListener> listener_;
  const bool is_controlled_;
  std::shared_ptr<PromptIntake> intake_;
  const runtime::Clock::time_point arrival_ = runtime::Clock::now();
  std::weak_ptr<EventSink> sink_;  // engines own it while they have sequences
  std::uint64_t num_encodings_ = 0;
  int context_length_ = 0;
  bool ended_ = false;
  bool has_begun_ = false;  // its sequences have been submitted
  Prompts prompts_;
  Sequence awaited_;
  std::vector<Sequence> samples_;  // [prompts, num_samples], or one and its controller's forks
  std::vector<Sequence> scores_;   // [prompts], or rows
  std::size_t num_left_ = 0;       // of both
  std::size_t num_rows_max_ = kSequencesMax;  // at a time; fewer where the model has taken no more
};

PromptIntake::PromptIntake(const GenerationContext& context, Generation& of,
                           GenerationRequest& request)
    : Intake(of.models(), context.encoder, std::make_shared<MemoryLimit::Part>(context.waiting),
             {.model = request.model,
              .is_slow = request.is_slow,
              .coded_bytes = request.num_bytes,
              .grammar = request.generates ? std::move(request.grammar) : std::nullopt,
              .grammar_field = request.grammar_field,
              .controller = std::move(request.controller),
              .bad_words = std::move(request.bad_words)}),
      of_(of),
      make_prompts_(std::move(request.make_prompts)),
      plan_(request.plan),
      num_bytes_(request.num_bytes) {}

Result<void> PromptIntake::accept(const registry::ReadyModel& model, Encoded& encoded) {
  return of_.accept(model, encoded.prompts);
}

}  // namespace

std::string answered_name(const CallerModels& models, const std::string& asked,
                          const std::string& own) {
  const auto status = models.status(own);
  const bool is_hidden = status && *status && (*status)->description.hides_path;
  return asked.empty() || is_hidden || registry::is_any_model(asked) ? own : asked;
}

void generate(const GenerationContext& context, GenerationRequest request,
              std::shared_ptr<HttpResponder> responder,
              std::shared_ptr<GenerationListener> listener) {
  log_unknown_keys(responder->caller()->route, request.unknown_keys);
  std::make_shared<Generation>(context, std::move(request), std::move(responder),
                               std::move(listener))
      ->start();
}

}  // namespace lmtp::server
