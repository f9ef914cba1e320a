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
#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"
#include "lmtp/text/stream_text.h"
#include "net/memory_limit.h"

namespace lmtp::server {
namespace {

using Clock = std::chrono::steady_clock;

// By so much at a time what is held is counted towards what all connections hold.
constexpr std::size_t kTgiHeldBytesStep = std::size_t{64} << 10;

void append_tgi_logprob(float logprob, std::string& out) {
  out += std::isfinite(logprob) ? number_text(logprob) : "null";
}

std::string ms_text(Clock::duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

struct Sample {
  explicit Sample(text::TokenDecoder::Options options) : decoder(std::move(options)) {}

  text::TokenDecoder decoder;
  std::string text;
  std::string tokens;      // as JSON, where the answer has details
  std::string top_tokens;  // as well
  std::int64_t num_tokens = 0;
  double sum_logprobs = 0.0;
  std::string_view reason;  // as JSON

  std::size_t num_bytes() const { return text.size() + tokens.size() + top_tokens.size(); }
  double mean_logprob() const {
    return sum_logprobs / static_cast<double>(std::max(num_tokens, std::int64_t{1}));
  }
};

std::string_view tgi_reason(const GeneratedToken& token) {
  if (token.event.finish_reason == FinishReason::kLength) return R"("length")";
  return token.stop_text ? R"("stop_sequence")" : R"("eos_token")";
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
  void on_token(GeneratedToken token) override;
  Result<void> on_step() override;
  void on_end() override;
  void on_error(const Error& error, bool no_model) override;
  // Of a stream, before its first event too.
  void keep_alive();

 private:
  void begin();
  Result<void> fit(const engine::ModelLimits& limits, std::vector<TokenId>& prompt,
                   SamplingParams& params) const;
  void append_token(TokenId token, std::string_view text, float logprob, std::string& out) const;
  void append_tops(const TokenEvent& event, std::string& out) const;
  void append_event(const GeneratedToken& token, const Sample& sample, std::string_view text);
  std::string seed_json(std::size_t sample) const;
  std::string full_text(const Sample& sample) const;
  void append_sequence(const Sample& sample, std::string& out) const;
  void append_details(std::size_t best, std::string& out) const;
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
    append_tgi_token(prompt.front(), tokenizer_->decode(std::span(prompt).first(1)), prefill_);
    prefill_ += R"(,"logprob":null})";
  }
  return {};
}

void TgiAnswer::on_prompt_token(int /*prompt*/, TokenEvent event) {
  const std::size_t num_before = prefill_.size();
  prefill_ += ',';
  append_tgi_token(event.token, tokenizer_->decode({&event.token, 1}), prefill_);
  prefill_ += R"(,"logprob":)";
  append_tgi_logprob(event.logprob, prefill_);
  prefill_ += '}';
  num_held_ += (prefill_.size() - num_before) * samples_.size();
}

void TgiAnswer::append_token(TokenId token, std::string_view text, float logprob,
                             std::string& out) const {
  append_tgi_token(token, text, out);
  out += R"(,"logprob":)";
  append_tgi_logprob(logprob, out);
  out += R"(,"special":)";
  out += tokenizer_->is_special(token) ? "true}" : "false}";
}

void TgiAnswer::append_tops(const TokenEvent& event, std::string& out) const {
  out += '[';
  const auto num_tops = static_cast<std::size_t>(request_.top_n_tokens);
  for (std::size_t i = 0; i < std::min(event.top_logprobs->size(), num_tops); ++i) {
    const TokenLogprob& top = (*event.top_logprobs)[i];
    if (i > 0) out += ',';
    append_token(top.token, tokenizer_->decode({&top.token, 1}), top.logprob, out);
  }
  out += ']';
}

void TgiAnswer::on_token(GeneratedToken token) {
  Sample& sample = samples_[static_cast<std::size_t>(token.event.sample)];
  const std::size_t num_before = sample.num_bytes();
  if (!started_) started_ = Clock::now();
  ++sample.num_tokens;
  sample.sum_logprobs += static_cast<double>(token.event.logprob);
  sample.text += token.text;
  if (token.event.finish_reason != FinishReason::kNone) sample.reason = tgi_reason(token);
  const std::string text = sample.decoder.push(token.event.token);
  if (request_.streams) {
    append_event(token, sample, text);
  } else if (request_.details) {
    if (!sample.tokens.empty()) sample.tokens += ',';
    append_token(token.event.token, text, token.event.logprob, sample.tokens);
    if (request_.top_n_tokens > 0) {
      if (!sample.top_tokens.empty()) sample.top_tokens += ',';
      append_tops(token.event, sample.top_tokens);
    }
  }
  num_held_ += sample.num_bytes() - num_before;
}

void TgiAnswer::append_event(const GeneratedToken& token, const Sample& sample,
                             std::string_view text) {
  events_ += R"(data:{"index":)" + std::to_string(sample.num_tokens) + R"(,"token":)";
  append_token(token.event.token, text, token.event.logprob, events_);
  if (request_.top_n_tokens > 0) {
    events_ += R"(,"top_tokens":)";
    append_tops(token.event, events_);
  }
  const bool is_last = !sample.reason.empty();
  events_ += R"(,"generated_text":)";
  if (is_last) {
    append_json_string(full_text(sample), events_);
  } else {
    events_ += "null";
  }
  events_ += R"(,"details":)";
  if (is_last && request_.details) {
    events_ += R"({"finish_reason":)" + std::string(sample.reason) + R"(,"generated_tokens":)" +
               std::to_string(sample.num_tokens) + R"(,"seed":)" + seed_json(0) +
               R"(,"input_length":)" + std::to_string(num_prompt_tokens_) + "}}\n\n";
  } else {
    events_ += "null}\n\n";
  }
}

// Without sampling a seed chooses nothing.
std::string TgiAnswer::seed_json(std::size_t sample) const {
  return request_.is_sampled ? std::to_string(seed_ + sample) : "null";
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
  const auto status = context_.generation.models.status(model_);
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
          {"x-time-per-token", ms_text(inference / best.num_tokens)},
          {"x-prompt-tokens", std::to_string(num_prompt_tokens_)},
          {"x-generated-tokens", std::to_string(best.num_tokens)}};
}

// What Details and BestOfSequence have in common.
void TgiAnswer::append_sequence(const Sample& sample, std::string& out) const {
  const auto index = static_cast<std::size_t>(&sample - samples_.data());
  out += R"("finish_reason":)" + std::string(sample.reason) + R"(,"generated_tokens":)" +
         std::to_string(sample.num_tokens) + R"(,"seed":)" + seed_json(index) + R"(,"prefill":[)" +
         prefill_ + R"(],"tokens":[)" + sample.tokens + "]";
  if (!sample.top_tokens.empty()) out += R"(,"top_tokens":[)" + sample.top_tokens + "]";
}

void TgiAnswer::append_details(std::size_t best, std::string& out) const {
  out += R"(,"details":{)";
  append_sequence(samples_[best], out);
  if (samples_.size() > 1) {
    out += R"(,"best_of_sequences":[)";
    for (const Sample& sample : samples_) {
      if (&sample == &samples_[best]) continue;
      if (out.back() == '}') out += ',';
      out += R"({"generated_text":)";
      append_json_string(full_text(sample), out);
      out += ',';
      append_sequence(sample, out);
      out += '}';
    }
    out += ']';
  }
  out += '}';
}

void TgiAnswer::send_whole() {
  const auto best = std::ranges::max_element(samples_, {}, &Sample::mean_logprob);
  std::string body = request_.in_array ? "[" : "";
  body += R"({"generated_text":)";
  append_json_string(full_text(*best), body);
  if (request_.details) append_details(static_cast<std::size_t>(best - samples_.begin()), body);
  body += request_.in_array ? "}]" : "}";
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

void append_tgi_token(TokenId token, std::string_view text, std::string& out) {
  out += R"({"id":)" + std::to_string(token) + R"(,"text":)";
  append_json_string(text, out);
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
