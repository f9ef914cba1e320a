#include "answer.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "error.h"
#include "generation/fresh.h"
#include "generation/held_answer.h"
#include "lmtp/base/json_writer.h"
#include "token_lists.h"

namespace lmtp::server {
namespace {

std::string_view reason_json(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return R"("stop")";
    case FinishReason::kLength:
      return R"("length")";
    case FinishReason::kNone:
      break;
  }
  return "null";
}

// Owned by the generation; the connection's strand.
class OpenAiAnswer : public GenerationListener {
 public:
  OpenAiAnswer(ServerContext& context, AnswerOptions options, const GenerationRequest& generation,
               std::shared_ptr<HttpResponder> responder)
      : context_(context),
        options_(std::move(options)),
        num_samples_(static_cast<std::size_t>(generation.num_samples)),
        generates_(generation.generates),
        skips_special_tokens_(generation.text.skip_special_tokens),
        responder_(std::move(responder)),
        id_(responder_->begin_id(options_.is_chat ? "chatcmpl-" : "cmpl-")),
        held_(context) {}

  Result<void> on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                          SamplingParams& params) override;
  void on_prompt_token(int prompt, TokenEvent event) override;
  void on_reply(Reply reply) override;
  Result<void> on_step() override;
  void on_end() override;
  void on_error(const Error& error, bool no_model) override;

 private:
  // What of a choice is still to be sent; of a prompt, what echo puts in front of its choices.
  struct Pending {
    std::string text;
    TokenLists lists;

    std::size_t num_bytes() const { return text.size() + lists.num_bytes(); }
  };
  struct Prompt {
    std::string ids;  // as JSON; empty where the answer has none
    Pending echo;
    std::optional<int> num_cached = {};  // of its tokens; not told by all servers
    std::string logprobs = {};           // entries of prompt_logprobs as JSON
  };
  struct Call {
    CallBegins begin;
    std::string arguments = {};  // still to be sent
    bool is_named = false;       // the function that it calls has been sent
    bool is_whole = false;

    bool has_news() const { return !is_named || !arguments.empty(); }
  };
  struct Choice {
    Pending pending;
    std::string reasoning = {};  // still to be sent
    std::vector<Call> calls = {};
    bool is_begun = false;  // some of it has been sent
    FinishReason reason = FinishReason::kNone;
    std::string stop_reason = "null";  // as JSON
    int num_tokens = 0;
    double sum_logprobs = 0.0;
  };

  void add(const Content& event, Choice& choice) const { choice.pending.text += event.text; }
  void add(const Reasoning& event, Choice& choice) const {
    if (options_.gives_reasoning) choice.reasoning += event.text;
  }
  void add(CallBegins& event, Choice& choice) const { choice.calls.push_back({std::move(event)}); }
  void add(const CallArguments& event, Choice& choice) const {
    choice.calls.back().arguments += event.json;
  }
  void add(CallEnds /*event*/, Choice& choice) const { choice.calls.back().is_whole = true; }
  static std::size_t num_bytes_of(const Choice& choice);
  static bool has_news(const Choice& choice);
  std::size_t num_answers() const { return static_cast<std::size_t>(options_.num_answers); }
  Prompt make_prompt(std::size_t at, const std::vector<TokenId>& ids) const;
  static void count_cached(const TokenEvent& event, Prompt& prompt);
  void make_head(const std::string& model_name);
  std::string stop_reason(const Reply& reply) const;
  void write_content(Choice& choice, JsonWriter& json) const;
  void write_calls(Choice& choice, JsonWriter& json) const;
  void write_prompt_logprobs(const Prompt& prompt, JsonWriter& json) const;
  // `index`: of the answer's choices.
  void write_choice(Choice& choice, std::size_t index, JsonWriter& json);
  void append_chunk(Choice& choice, std::size_t index);
  void write_usage(JsonWriter& json) const;
  void write_chunks();
  void send_whole();
  // Best first.
  std::vector<Choice*> best_of(std::size_t prompt);

  ServerContext& context_;
  const AnswerOptions options_;
  const std::size_t num_samples_;
  const bool generates_;  // false: the answer is the prompts alone
  const bool skips_special_tokens_;
  const std::shared_ptr<HttpResponder> responder_;
  const std::string id_;
  std::string head_;  // of the answer, or of each chunk, up to the choices
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::vector<TokenId> stop_ids_;
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;  // [prompts, num_samples_]
  std::int64_t num_prompt_tokens_ = 0;
  std::int64_t num_tokens_ = 0;
  std::int64_t num_reasoning_tokens_ = 0;
  bool is_begun_ = false;
  std::string chunks_;  // of this step
  HeldAnswer held_;     // choices_, where the answer is not streamed
};

Result<void> OpenAiAnswer::on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                                      SamplingParams& params) {
  const auto context = static_cast<std::size_t>(model.limits.total_tokens_max());
  const auto num_new = static_cast<std::size_t>(options_.max_tokens.value_or(0));
  for (const std::vector<TokenId>& ids : prompts) {
    if (ids.size() + num_new <= context) continue;
    return Error{ErrorCode::kTooLong, std::string(options_.is_chat ? "messages" : "prompt") +
                                          ": has " + std::to_string(ids.size()) + " tokens, and " +
                                          std::to_string(num_new) +
                                          " are to be generated; together they may be at most " +
                                          std::to_string(context) + " (the context)"};
  }
  tokenizer_ = *model.tokenizer;
  stop_ids_ = params.stop_token_ids;
  make_head(model.name);
  for (std::size_t at = 0; at < prompts.size(); ++at) {
    num_prompt_tokens_ += static_cast<std::int64_t>(prompts[at].size());
    prompts_.push_back(make_prompt(at, prompts[at]));
    held_.add(prompts_.back().echo.num_bytes() * num_samples_);
    if (auto within = held_.check_length(); !within) return within;
    for (std::size_t i = 0; i < num_samples_; ++i) {
      choices_.push_back({prompts_.back().echo});
    }
  }
  return {};
}

OpenAiAnswer::Prompt OpenAiAnswer::make_prompt(std::size_t at,
                                               const std::vector<TokenId>& ids) const {
  // What is not echoed is before the text, and its length does not count.
  const text::TokenDecoder::Options decoder{tokenizer_, skips_special_tokens_, options_.echo};
  Prompt prompt{{}, {{}, TokenLists(options_, decoder)}};
  if (options_.token_ids) JsonWriter(prompt.ids).value(ids);
  if (options_.prompt_logprobs && !ids.empty()) prompt.logprobs = "null";
  prompt.echo.text = options_.opening;
  if (!options_.echo) return prompt;
  // With text_offset the text is that of the tokens: a normalizer may have changed the client's,
  // and special tokens have none.
  const bool is_given = options_.prompts != nullptr && !options_.logprobs;
  const auto* text = is_given ? std::get_if<std::string>(&options_.prompts->at(at)) : nullptr;
  if (text != nullptr) {
    prompt.echo.text = *text;
  } else {
    text::TokenDecoder whole(decoder);
    for (const TokenId id : ids) prompt.echo.text += whole.push(id);
    prompt.echo.text += whole.finish();
  }
  if (options_.logprobs && !ids.empty()) {
    TokenEvent first;
    first.token = ids.front();
    prompt.echo.lists.add_prompt_token(first, false);
  }
  return prompt;
}

void OpenAiAnswer::make_head(const std::string& model_name) {
  const bool is_chunk = options_.is_chat && options_.streams;
  const std::string_view object = is_chunk           ? "chat.completion.chunk"
                                  : options_.is_chat ? "chat.completion"
                                                     : "text_completion";
  JsonWriter json(head_);
  json.begin_object().field("id", id_).field("object", object).field("created", unix_seconds());
  const CallerModels models = context_.generation.models.of(responder_->caller());
  json.field("model", answered_name(models, options_.model, model_name));
  const auto status = models.status(model_name);
  // What has the same one gives the same answer to the same request, seed included.
  if (status && status->ok() && !(*status)->stats.agent.numerics.empty()) {
    json.field("system_fingerprint", "fp_" + (*status)->stats.agent.numerics);
  }
  json.key("choices").begin_array();
}

// Once for a prompt, however many samples it has: the later ones find there what the first
// computed.
void OpenAiAnswer::count_cached(const TokenEvent& event, Prompt& prompt) {
  if (event.num_cached < 0) return;
  prompt.num_cached = std::min(prompt.num_cached.value_or(event.num_cached), event.num_cached);
}

void OpenAiAnswer::on_prompt_token(int prompt, TokenEvent event) {
  const auto at = static_cast<std::size_t>(prompt);
  count_cached(event, prompts_[at]);
  Pending& echo = prompts_[at].echo;
  if (options_.prompt_logprobs) {
    std::string& ranked = prompts_[at].logprobs;
    const std::size_t num_before = ranked.size();
    // -1 is all that there are.
    echo.lists.write_ranked(event, static_cast<std::size_t>(*options_.prompt_logprobs), ranked);
    held_.add((ranked.size() - num_before) * (options_.is_chat ? 1 : num_samples_));
  }
  if (!options_.echo || !options_.logprobs) return;
  const std::size_t num_before = echo.num_bytes();
  echo.lists.add_prompt_token(event, true);
  held_.add((echo.num_bytes() - num_before) * num_samples_);
  if (event.finish_reason == FinishReason::kNone || !held_.check_length()) return;
  for (std::size_t i = 0; i < num_samples_; ++i) choices_[at * num_samples_ + i].pending = echo;
}

std::string OpenAiAnswer::stop_reason(const Reply& reply) const {
  std::string out;
  JsonWriter json(out);
  if (reply.stop_text) {
    json.value(*reply.stop_text);
  } else if (reply.token.finish_reason == FinishReason::kStop &&
             std::ranges::find(stop_ids_, reply.token.token) != stop_ids_.end()) {
    json.value(reply.token.token);
  } else {
    json.value(nullptr);
  }
  return out;
}

void OpenAiAnswer::on_reply(Reply reply) {
  const auto prompt = static_cast<std::size_t>(reply.prompt);
  count_cached(reply.token, prompts_[prompt]);
  const std::size_t index = prompt * num_samples_ + static_cast<std::size_t>(reply.token.sample);
  Choice& choice = choices_[index];
  choice.reason = reply.token.finish_reason;
  choice.stop_reason = stop_reason(reply);
  num_tokens_ += reply.num_tokens - choice.num_tokens;
  choice.num_tokens = reply.num_tokens;
  choice.sum_logprobs += static_cast<double>(reply.token.logprob);
  num_reasoning_tokens_ += reply.is_reasoning ? 1 : 0;
  const std::size_t num_before = num_bytes_of(choice);
  for (ReplyEvent& event : reply.events) {
    std::visit([&](auto& kind) { add(kind, choice); }, event);
  }
  choice.pending.lists.add(reply.token);
  if (options_.streams) return append_chunk(choice, index);
  held_.add(num_bytes_of(choice) - num_before);
}

std::size_t OpenAiAnswer::num_bytes_of(const Choice& choice) {
  std::size_t num_bytes = choice.pending.num_bytes() + choice.reasoning.size();
  for (const Call& call : choice.calls) {
    num_bytes += sizeof(call) + call.begin.function.size() + call.arguments.size();
  }
  return num_bytes;
}

bool OpenAiAnswer::has_news(const Choice& choice) {
  return !choice.pending.text.empty() || !choice.reasoning.empty() ||
         std::ranges::any_of(choice.calls, &Call::has_news);
}

Result<void> OpenAiAnswer::on_step() {
  auto counted = held_.count();
  if (counted) write_chunks();
  return counted;
}

// The choice's calls, or what is new of them.
void OpenAiAnswer::write_calls(Choice& choice, JsonWriter& json) const {
  json.key("tool_calls").begin_array();
  for (std::size_t i = 0; i < choice.calls.size(); ++i) {
    Call& call = choice.calls[i];
    if (!call.has_news()) continue;
    json.begin_object();
    if (options_.streams) json.field("index", i);
    if (!call.is_named) json.field("id", call.begin.id).field("type", "function");
    json.key("function").begin_object();
    if (!call.is_named) json.field("name", call.begin.function);
    json.field("arguments", call.arguments).end_object().end_object();
    call.arguments.clear();
    call.is_named = true;
  }
  json.end_array();
}

void OpenAiAnswer::write_content(Choice& choice, JsonWriter& json) const {
  if (!options_.is_chat) {
    json.field("text", choice.pending.text);
    return;
  }
  json.key(options_.streams ? "delta" : "message").begin_object();
  const bool begins = !choice.is_begun;
  if (begins) json.field("role", "assistant");
  const bool has_calls = std::ranges::any_of(choice.calls, &Call::has_news);
  const bool has_text = !choice.pending.text.empty();
  if (has_text || (choice.calls.empty() && choice.reasoning.empty())) {
    json.field("content", choice.pending.text);
  } else if (begins) {
    json.field("content", nullptr);
  }
  if (!choice.reasoning.empty()) {
    json.field("reasoning_content", choice.reasoning).field("reasoning", choice.reasoning);
    choice.reasoning.clear();
  }
  if (has_calls) write_calls(choice, json);
  if (begins) json.field("refusal", nullptr);
  json.end_object();
}

void OpenAiAnswer::write_prompt_logprobs(const Prompt& prompt, JsonWriter& json) const {
  if (!options_.prompt_logprobs) return;
  json.key("prompt_logprobs").begin_array().out() += prompt.logprobs;
  json.end_array();
}

void OpenAiAnswer::write_choice(Choice& choice, std::size_t index, JsonWriter& json) {
  json.begin_object().field("index", index);
  write_content(choice, json);
  choice.pending.lists.take(json);
  const std::string& prompt_ids = prompts_[index / num_answers()].ids;
  if (!choice.is_begun && !prompt_ids.empty()) json.raw_field("prompt_token_ids", prompt_ids);
  if (!options_.is_chat) write_prompt_logprobs(prompts_[index / num_answers()], json);
  const bool is_whole = std::ranges::all_of(choice.calls, &Call::is_whole);
  const bool calls = !choice.calls.empty() && is_whole && !options_.call_is_chosen;
  // A stop string may have cut a call.
  if (!is_whole && choice.reason == FinishReason::kStop) choice.reason = FinishReason::kLength;
  json.raw_field("finish_reason", calls && choice.reason == FinishReason::kStop
                                      ? R"("tool_calls")"
                                      : reason_json(choice.reason));
  json.raw_field("stop_reason", choice.stop_reason).end_object();
  choice.pending.text.clear();
  choice.is_begun = true;
}

// A token without text of its own waits for the next one's, where nothing else is told of it.
void OpenAiAnswer::append_chunk(Choice& choice, std::size_t index) {
  const bool has_lists = options_.logprobs || options_.token_ids;
  const bool is_last = choice.reason != FinishReason::kNone;
  if (!has_news(choice) && !has_lists && !is_last) return;
  JsonWriter json(chunks_.append("data: ").append(head_));
  write_choice(choice, index, json);
  json.end_array();
  if (options_.counts_always) {
    write_usage(json);
  } else if (options_.counts_at_end) {
    json.field("usage", nullptr);
  }
  json.end_object();
  chunks_ += "\n\n";
}

void OpenAiAnswer::write_usage(JsonWriter& json) const {
  json.key("usage").begin_object().field("prompt_tokens", num_prompt_tokens_);
  json.field("completion_tokens", num_tokens_);
  json.field("total_tokens", num_prompt_tokens_ + num_tokens_);
  if (num_reasoning_tokens_ > 0) {
    json.key("completion_tokens_details").begin_object();
    json.field("reasoning_tokens", num_reasoning_tokens_).end_object();
  }
  std::optional<std::int64_t> num_cached;
  for (const Prompt& prompt : prompts_) {
    if (prompt.num_cached) num_cached = num_cached.value_or(0) + *prompt.num_cached;
  }
  if (num_cached) {
    json.key("prompt_tokens_details").begin_object();
    json.field("cached_tokens", *num_cached).end_object();
  }
  json.end_object();
}

void OpenAiAnswer::write_chunks() {
  if (chunks_.empty()) return;
  if (!is_begun_) {
    is_begun_ = true;
    responder_->begin({200, "text/event-stream; charset=utf-8", ""});
  }
  responder_->write(chunks_);
  chunks_.clear();
}

std::vector<OpenAiAnswer::Choice*> OpenAiAnswer::best_of(std::size_t prompt) {
  std::vector<Choice*> best;
  for (std::size_t i = 0; i < num_samples_; ++i) {
    best.push_back(&choices_[prompt * num_samples_ + i]);
  }
  if (num_answers() == num_samples_) return best;
  const auto score = [](const Choice* choice) {
    return choice->sum_logprobs / std::max(1, choice->num_tokens);
  };
  std::ranges::stable_sort(best, std::greater(), score);
  best.resize(num_answers());
  return best;
}

void OpenAiAnswer::send_whole() {
  std::string body = head_;
  JsonWriter json(body);
  for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    const std::vector<Choice*> best = best_of(prompt);
    for (std::size_t i = 0; i < best.size(); ++i) {
      write_choice(*best[i], prompt * num_answers() + i, json);
    }
  }
  json.end_array();
  if (options_.is_chat) write_prompt_logprobs(prompts_.front(), json);
  write_usage(json);
  json.end_object();
  body += '\n';
  responder_->send({200, "application/json", std::move(body)});
}

void OpenAiAnswer::on_end() {
  if (!generates_) {
    for (Choice& choice : choices_) choice.reason = FinishReason::kLength;
  }
  if (!options_.streams) return send_whole();
  if (!generates_) {
    for (std::size_t i = 0; i < choices_.size(); ++i) append_chunk(choices_[i], i);
  }
  if (options_.counts_at_end) {
    JsonWriter json(chunks_.append("data: ").append(head_));
    write_usage(json.end_array());
    json.end_object();
    chunks_ += "\n\n";
  }
  chunks_ += "data: [DONE]\n\n";
  write_chunks();
  responder_->end();
}

void OpenAiAnswer::on_error(const Error& error, bool no_model) {
  if (!is_begun_) return responder_->send(openai_error(error, no_model));
  responder_->write("data: " + openai_error_json(error, no_model) + "\n\ndata: [DONE]\n\n");
  responder_->end();
}

}  // namespace

void answer_openai(ServerContext& context, OpenAiRequest request,
                   const std::shared_ptr<HttpResponder>& responder) {
  auto answer = std::make_shared<OpenAiAnswer>(context, std::move(request.answer),
                                               request.generation, responder);
  generate(context.generation, std::move(request.generation), responder, std::move(answer));
}

}  // namespace lmtp::server
