#include "answer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "error.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/base/runtime.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"
#include "lmtp/text/stream_text.h"

namespace lmtp::server {
namespace {

using Clock = runtime::Clock;

// By so much at a time what is held is counted towards what all connections hold.
constexpr std::size_t kTgiHeldBytesStep = std::size_t{64} << 10;

std::optional<float> finite_logprob(float logprob) {
  return std::isfinite(logprob) ? std::optional(logprob) : std::nullopt;
}

JsonWriter compact(std::string& out) { return JsonWriter(out, JsonWriter::Style::kCompact); }

std::string ms_text(Clock::duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

struct Sample {
  explicit Sample(text::TokenDecoder::Options options) : decoder(std::move(options)) {}

  text::TokenDecoder decoder;
  std::string text;
  std::string tokens;      // as JSON, where the answer has details
  std::string top_tokens;  // the same
  std::int64_t num_tokens = 0;
  double sum_logprobs = 0.0;
  std::string_view reason;  // empty: it has not ended

  std::size_t num_bytes() const { return text.size() + tokens.size() + top_tokens.size(); }
  double mean_logprob() const {
    return sum_logprobs / static_cast<double>(std::max(num_tokens, std::int64_t{1}));
  }
};

std::string_view tgi_reason(const Reply& reply) {
  if (reply.token.finish_reason == FinishReason::kLength) return "length";
  return reply.stop_text ? "stop_sequence" : "eos_token";
}

// Owned by the generation; the connection's strand.
class TgiAnswer : public GenerationListener {
 public:
  TgiAnswer(ServerContext& context, TgiRequest request, std::shared_ptr<HttpResponder> responder)
      : context_(context),
        request_(std::move(request)),
        responder_(std::move(responder)),
        held_(context.write_queues) {}

  Result<void> on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                          SamplingParams& params) override;
  void on_prompt_token(int prompt, TokenEvent event) override;
  void on_reply(Reply reply) override;
  Result<void> on_step() override;
  void on_end() override;
  void on_error(const Error& error, bool no_model) override;
  // Of a stream, before its first event too.
  void keep_alive();

 private:
  void begin();
  Result<void> fit(const engine::ModelLimits& limits, std::vector<TokenId>& prompt,
                   SamplingParams& params) const;
  static void write_token(TokenId token, std::string_view text, float logprob, bool is_special,
                          JsonWriter& json);
  void write_tops(const TokenEvent& event, JsonWriter& json) const;
  void append_event(const Reply& reply, const Sample& sample, std::string_view text);
  std::optional<std::uint64_t> seed_of(std::size_t sample) const;
  std::string full_text(const Sample& sample) const;
  void write_sequence(const Sample& sample, JsonWriter& json) const;
  void write_details(const Sample& best, JsonWriter& json) const;
  std::string head_type() const;
  std::vector<HttpField> times(const Sample& best) const;
  void write_events();
  void send_whole();

  ServerContext& context_;
  const TgiRequest request_;
  const std::shared_ptr<HttpResponder> responder_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point queued_ = begin_;              // as token ids
  std::optional<Clock::time_point> started_;       // the first token
  std::string model_ = request_.generation.model;  // once the prompt is token ids, its own name
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::uint64_t seed_ = 0;
  std::size_t num_prompt_tokens_ = 0;
  std::string prefill_;  // as JSON
  std::vector<Sample> samples_;
  bool is_begun_ = false;
  std::string events_;  // of this step
  // Of the samples, where the answer is not streamed.
  std::size_t num_held_ = 0;
  MemoryLimit::Part held_;
};

// What TGI's router checks once the prompt is token ids.
Result<void> TgiAnswer::fit(const engine::ModelLimits& limits, std::vector<TokenId>& prompt,
                            SamplingParams& params) const {
  const std::int64_t max_total = limits.total_tokens_max();
  const std::int64_t max_input = limits.input_tokens_max();
  if (const auto truncate = request_.truncate) {
    if (*truncate == 0 || *truncate > max_input) {
      return Error{ErrorCode::kInvalid, "`truncate` must be strictly positive and less than " +
                                            std::to_string(max_input) +
                                            ". Given: " + std::to_string(*truncate)};
    }
    const auto num_kept = static_cast<std::size_t>(*truncate);
    if (prompt.size() > num_kept) prompt.erase(prompt.begin(), prompt.end() - *truncate);
  }
  const auto num_prompt = static_cast<std::int64_t>(prompt.size());
  const std::int64_t num_sure =
      request_.max_new_tokens ? std::min(*request_.max_new_tokens, kTgiNewTokens) : 0;
  if (num_sure > 0 && num_prompt + num_sure > max_total) {
    return Error{ErrorCode::kTooLong,
                 "`inputs` tokens + `max_new_tokens` must be <= " + std::to_string(max_total) +
                     ". Given: " + std::to_string(num_prompt) + " `inputs` tokens and " +
                     std::to_string(num_sure) + " `max_new_tokens`"};
  }
  if (num_prompt > max_input) {
    return Error{ErrorCode::kTooLong, "`inputs` must have less than " + std::to_string(max_input) +
                                          " tokens. Given: " + std::to_string(num_prompt)};
  }
  params.max_tokens = static_cast<int>(
      std::min(request_.max_new_tokens.value_or(kTgiNewTokens), max_total - num_prompt));
  return {};
}

Result<void> TgiAnswer::on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                                   SamplingParams& params) {
  std::vector<TokenId>& prompt = prompts.front();
  if (auto fits = fit(model.limits, prompt, params); !fits) return fits;
  queued_ = Clock::now();
  model_ = model.name;
  tokenizer_ = *model.tokenizer;
  seed_ = params.seed;
  num_prompt_tokens_ = prompt.size();
  text::TokenDecoder::Options decoder{tokenizer_, false, false};
  decoder.at_start = text::is_without_text(decoder, prompt);
  for (int i = 0; i < request_.generation.num_samples; ++i) samples_.emplace_back(decoder);
  if (request_.generation.scores_prompts && !prompt.empty()) {
    JsonWriter json = compact(prefill_);
    write_tgi_token(prompt.front(), tokenizer_->decode(std::span(prompt).first(1)), json);
    json.field("logprob", nullptr).end_object();
  }
  return {};
}

void TgiAnswer::on_prompt_token(int /*prompt*/, TokenEvent event) {
  const std::size_t num_before = prefill_.size();
  JsonWriter json = compact(prefill_);
  write_tgi_token(event.token, tokenizer_->decode({&event.token, 1}), json);
  json.field("logprob", finite_logprob(event.logprob)).end_object();
  num_held_ += (prefill_.size() - num_before) * samples_.size();
}

void TgiAnswer::write_token(TokenId token, std::string_view text, float logprob, bool is_special,
                            JsonWriter& json) {
  write_tgi_token(token, text, json);
  json.field("logprob", finite_logprob(logprob)).field("special", is_special).end_object();
}

void TgiAnswer::write_tops(const TokenEvent& event, JsonWriter& json) const {
  json.begin_array();
  const std::span<const TokenLogprob> tops(*event.top_logprobs);
  const auto num_tops = static_cast<std::size_t>(request_.top_n_tokens);
  for (const TokenLogprob& top : tops.first(std::min(tops.size(), num_tops))) {
    write_token(top.token, tokenizer_->decode({&top.token, 1}), top.logprob,
                tokenizer_->is_special(top.token), json);
  }
  json.end_array();
}

void TgiAnswer::on_reply(Reply reply) {
  Sample& sample = samples_[static_cast<std::size_t>(reply.token.sample)];
  const std::size_t num_before = sample.num_bytes();
  if (!started_) started_ = Clock::now();
  sample.num_tokens = reply.num_tokens;
  sample.sum_logprobs += static_cast<double>(reply.token.logprob);
  sample.text += reply.take_content();
  if (reply.token.finish_reason != FinishReason::kNone) sample.reason = tgi_reason(reply);
  const std::string text = sample.decoder.push(reply.token.token);
  if (request_.streams) {
    append_event(reply, sample, text);
  } else if (request_.details) {
    JsonWriter tokens = compact(sample.tokens);
    write_token(reply.token.token, text, reply.token.logprob, reply.is_special, tokens);
    JsonWriter tops = compact(sample.top_tokens);
    if (request_.top_n_tokens > 0) write_tops(reply.token, tops);
  }
  num_held_ += sample.num_bytes() - num_before;
}

void TgiAnswer::append_event(const Reply& reply, const Sample& sample, std::string_view text) {
  JsonWriter json = compact(events_.append("data:"));
  json.begin_object().field("index", sample.num_tokens).key("token");
  write_token(reply.token.token, text, reply.token.logprob, reply.is_special, json);
  if (request_.top_n_tokens > 0) write_tops(reply.token, json.key("top_tokens"));
  const bool is_last = !sample.reason.empty();
  json.key("generated_text");
  is_last ? json.value(full_text(sample)) : json.value(nullptr);
  json.key("details");
  if (is_last && request_.details) {
    json.begin_object().field("finish_reason", sample.reason);
    json.field("generated_tokens", sample.num_tokens).field("seed", seed_of(0));
    json.field("input_length", num_prompt_tokens_).end_object();
  } else {
    json.value(nullptr);
  }
  json.end_object();
  events_ += "\n\n";
}

// Without sampling a seed chooses nothing.
std::optional<std::uint64_t> TgiAnswer::seed_of(std::size_t sample) const {
  return request_.is_sampled ? std::optional(seed_ + sample) : std::nullopt;
}

std::string TgiAnswer::full_text(const Sample& sample) const {
  return request_.return_full_text ? *request_.inputs + sample.text : sample.text;
}

Result<void> TgiAnswer::on_step() {
  if (request_.streams) {
    write_events();
    return {};
  }
  if (num_held_ < held_.bytes() + kTgiHeldBytesStep) return {};
  // It must fit into the queue of what waits to be written.
  if (num_held_ > context_.options.max_write_queue_bytes / 2) {
    return Error{ErrorCode::kInvalid,
                 "the answer is too long to be sent as a whole; stream it, or ask for fewer "
                 "`max_new_tokens` or `top_n_tokens`"};
  }
  if (held_.set(num_held_)) return {};
  return Error{ErrorCode::kOverloaded, "overloaded: whole answers take too much memory"};
}

std::string TgiAnswer::head_type() const {
  const auto status = context_.generation.models.of(responder_->caller()).status(model_);
  return status && status->ok() ? (*status)->description.device : "cpu";
}

void TgiAnswer::write_events() {
  if (events_.empty()) return;
  begin();
  responder_->write(events_);
  events_.clear();
}

void TgiAnswer::begin() {
  if (std::exchange(is_begun_, true)) return;
  responder_->begin({200,
                     "text/event-stream",
                     "",
                     {{"x-compute-type", head_type()},
                      {"x-compute-characters", std::to_string(num_characters(*request_.inputs))},
                      {"X-Accel-Buffering", "no"}}});
}

void TgiAnswer::keep_alive() {
  begin();
  responder_->write(":\n\n");
}

std::vector<HttpField> TgiAnswer::times(const Sample& best) const {
  const Clock::time_point now = Clock::now();
  const Clock::duration total = now - begin_;
  const Clock::duration inference = now - *started_;
  return {{"x-compute-type", head_type()},
          {"x-compute-time", number_text(std::chrono::duration<double>(total).count())},
          {"x-compute-characters", std::to_string(num_characters(*request_.inputs))},
          {"x-total-time", ms_text(total)},
          {"x-validation-time", ms_text(queued_ - begin_)},
          {"x-queue-time", ms_text(*started_ - queued_)},
          {"x-inference-time", ms_text(inference)},
          {"x-time-per-token", ms_text(inference / std::max(best.num_tokens, std::int64_t{1}))},
          {"x-prompt-tokens", std::to_string(num_prompt_tokens_)},
          {"x-generated-tokens", std::to_string(best.num_tokens)}};
}

// What Details and BestOfSequence have in common.
void TgiAnswer::write_sequence(const Sample& sample, JsonWriter& json) const {
  const auto index = static_cast<std::size_t>(&sample - samples_.data());
  json.field("finish_reason", sample.reason).field("generated_tokens", sample.num_tokens);
  json.field("seed", seed_of(index));
  const auto list = [&json](std::string_view name, const std::string& items) {
    json.key(name).begin_array().out() += items;
    json.end_array();
  };
  list("prefill", prefill_);
  list("tokens", sample.tokens);
  if (!sample.top_tokens.empty()) list("top_tokens", sample.top_tokens);
}

void TgiAnswer::write_details(const Sample& best, JsonWriter& json) const {
  json.key("details").begin_object();
  write_sequence(best, json);
  if (samples_.size() > 1) {
    json.key("best_of_sequences").begin_array();
    for (const Sample& sample : samples_) {
      if (&sample == &best) continue;
      json.begin_object().field("generated_text", full_text(sample));
      write_sequence(sample, json);
      json.end_object();
    }
    json.end_array();
  }
  json.end_object();
}

void TgiAnswer::send_whole() {
  const auto best = std::ranges::max_element(samples_, {}, &Sample::mean_logprob);
  std::string body;
  JsonWriter json = compact(body);
  if (request_.in_array) json.begin_array();
  json.begin_object().field("generated_text", full_text(*best));
  if (request_.details) write_details(*best, json);
  json.end_object();
  if (request_.in_array) json.end_array();
  responder_->send({200, "application/json", std::move(body), times(*best)});
}

void TgiAnswer::on_end() {
  if (!request_.streams) return send_whole();
  responder_->end();
}

void TgiAnswer::on_error(const Error& error, bool no_model) {
  const TgiError told = tgi_error(error, no_model);
  if (!is_begun_) return responder_->send(tgi_response(told));
  responder_->write("data:" + tgi_error_json(told) + "\n\n");
  responder_->end();
}

}  // namespace

void write_tgi_token(TokenId token, std::string_view text, JsonWriter& json) {
  json.begin_object().field("id", token).field("text", text);
}

void answer_tgi(ServerContext& context, TgiRequest request,
                const std::shared_ptr<HttpResponder>& responder) {
  GenerationRequest generation = std::move(request.generation);
  request.generation = {};
  request.generation.model = generation.model;
  request.generation.num_samples = generation.num_samples;
  request.generation.scores_prompts = generation.scores_prompts;
  const bool streams = request.streams;
  const auto answer = std::make_shared<TgiAnswer>(context, std::move(request), responder);
  if (streams) {
    responder->on_silence(context.options.timeouts.keep_alive, [weak = std::weak_ptr(answer)] {
      if (const auto held = weak.lock()) held->keep_alive();
    });
  }
  generate(context.generation, std::move(generation), responder, answer);
}

}  // namespace lmtp::server
