#include "run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "error.h"
#include "generation/encode_text.h"
#include "generation/fresh.h"
#include "generation/json_fields.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/protocol/codec.h"

namespace lmtp::server {
namespace {

// In the place of a controller: its argument is the prompt, and the model alone goes on.
constexpr std::string_view kNoController = "none";
constexpr std::string_view kBacktrackMark = " ↩ ";
constexpr std::int64_t kCostOfSampled = 2;  // of one that was put there: 1

// A sample, and what has come of it since the last event.
struct Fork {
  bool has_ended = false;
  bool has_news = false;
  std::optional<int> fork_of = {};
  std::string text = {};
  std::string error = {};
  std::string logs = {};
  std::string storage = {};  // of a JSON list what is between the brackets
  std::int64_t micros = 0;
  std::string_view reason = {};
};

// Owned by the generation; the connection's strand.
class Run : public GenerationListener {
 public:
  Run(std::string id, bool is_controlled, std::shared_ptr<HttpResponder> responder)
      : id_(std::move(id)), is_controlled_(is_controlled), responder_(std::move(responder)) {}

  Result<void> on_prompts(const registry::ReadyModel& model, Prompts& /*prompts*/,
                          SamplingParams& /*params*/) override {
    model_ = model.name;
    eos_ids_ = model.limits.eos_ids;
    return {};
  }
  void on_prompt_token(int /*prompt*/, TokenEvent /*event*/) override {}
  void on_reply(Reply reply) override;
  void on_forked(const SampleForked& fork) override {
    forks_.emplace_back();
    Fork& news = news_of(fork.sample);
    news.fork_of = fork.fork_of;
    if (fork.num_backtracked > 0) news.text += kBacktrackMark;
  }
  void on_output(const ControllerOutput& output) override;
  void on_sample_error(int sample, const Error& error) override {
    end(news_of(sample), "fail", error.message);
  }
  Result<void> on_step() override {
    begin();
    write_news();
    return {};
  }
  void on_end() override {
    responder_->write("data: [DONE]\n\n");
    responder_->end();
  }
  void on_error(const Error& error, bool no_model) override;

 private:
  Fork& news_of(int sample) {
    Fork& fork = forks_[static_cast<std::size_t>(sample)];
    fork.has_news = true;
    return fork;
  }
  static void end(Fork& fork, std::string_view reason, std::string_view error = {}) {
    fork.has_ended = true;
    fork.reason = reason;
    fork.error = error;
  }
  std::string_view reason_of(const TokenEvent& last) const;
  void begin();
  void write_news();

  const std::string id_;
  const bool is_controlled_;
  const std::shared_ptr<HttpResponder> responder_;
  std::string model_;
  std::vector<TokenId> eos_ids_;
  bool is_begun_ = false;
  std::vector<Fork> forks_{1};
  std::int64_t num_sampled_ = 0;
  std::int64_t num_put_ = 0;
};

std::string_view Run::reason_of(const TokenEvent& last) const {
  if (last.finish_reason == FinishReason::kLength) return "length";
  const bool is_eos = std::ranges::find(eos_ids_, last.token) != eos_ids_.end();
  return is_eos || !is_controlled_ ? "eos" : "aici-stop";
}

void Run::on_reply(Reply reply) {
  const TokenEvent& event = reply.token;
  Fork& fork = news_of(event.sample);
  if (event.num_backtracked > 0) fork.text += kBacktrackMark;
  fork.text += reply.take_content();
  if (event.finish_reason != FinishReason::kNone) end(fork, reason_of(event));
  if (event.token == kNoToken) return;
  ++(event.is_appended || event.is_forced ? num_put_ : num_sampled_);
}

void Run::on_output(const ControllerOutput& output) {
  if (output.logs.empty() && output.storage.empty()) return;
  Fork& fork = news_of(output.sample);
  fork.logs += output.logs;
  fork.micros += output.micros;
  if (output.storage.empty()) return;
  if (!fork.storage.empty()) fork.storage += ", ";
  fork.storage.append(output.storage, 1, output.storage.size() - 2);
}

void Run::begin() {
  if (std::exchange(is_begun_, true)) return;
  responder_->begin({200, "text/event-stream", "", {{"X-Accel-Buffering", "no"}}});
  std::string head = "data: ";
  JsonWriter json(head);
  json.begin_object().field("object", "initial-run").field("id", id_);
  json.field("created", unix_seconds()).field("model", model_).end_object();
  responder_->write(head + "\n\n");
}

void Run::write_news() {
  std::string out = "data: ";
  JsonWriter json(out);
  json.begin_object().field("object", "run").key("forks").begin_array();
  bool has_news = false;
  for (std::size_t i = 0; i < forks_.size(); ++i) {
    Fork& fork = forks_[i];
    if (!fork.has_news) continue;
    has_news = true;
    json.begin_object().field("index", i).field("text", fork.text).field("error", fork.error);
    json.field("logs", fork.logs).key("storage").begin_array().out() += fork.storage;
    json.end_array().field("micros", fork.micros).given_field("fork_of", fork.fork_of);
    if (!fork.reason.empty()) json.field("finish_reason", fork.reason);
    json.end_object();
    fork = {.has_ended = fork.has_ended};
  }
  if (!has_news) return;
  json.end_array().key("usage").begin_object().field("sampled_tokens", num_sampled_);
  json.field("ff_tokens", num_put_).field("cost", kCostOfSampled * num_sampled_ + num_put_);
  json.end_object().end_object();
  responder_->write(out + "\n\n");
}

void Run::on_error(const Error& error, bool no_model) {
  if (!is_begun_) return responder_->send(aici_error(error, no_model));
  for (std::size_t i = 0; i < forks_.size(); ++i) {
    if (!forks_[i].has_ended) end(news_of(static_cast<int>(i)), "abort", error.message);
  }
  write_news();
  on_end();
}

// Text is the argument itself; of anything else it is the JSON.
// Not as it was parsed, which has sorted its keys.
std::string text_of_arg(const JsonFields& fields, const std::string& body) {
  const Json* const arg = fields.find("controller_arg");
  if (arg == nullptr) return {};
  if (arg->is_string()) return arg->get<std::string>();
  const auto raw = protocol::find_raw_field(body, "controller_arg");
  return raw ? std::string(*raw) : arg->dump();
}

// What a model goes on from has a token.
Result<Prompts> encode_prompt(const registry::ReadyModel& model, const std::string& text) {
  auto ids = encode_text(model.tokenizer, "prompt", text, {});
  if (!ids) return ids.error();
  if (!ids->empty()) return Prompts{std::move(*ids)};
  const TokenId bos = (*model.tokenizer)->bos_id();
  if (bos >= 0) return Prompts{{bos}};
  auto space = encode_text(model.tokenizer, "prompt", " ", {});
  if (!space) return space.error();
  return Prompts{std::move(*space)};
}

}  // namespace

Result<GenerationRequest> read_run(const std::string& body) {
  const auto root = parse_json_object(body, "body", NonFinite::kRefused);
  if (!root) return root.error();
  JsonFields fields(*root);
  GenerationRequest request;
  const std::string* const controller = fields.text("controller");
  if (!fields.failed() && (controller == nullptr || controller->empty())) {
    fields.fail("controller", "is missing; allowed is a tag, a module's id, or none");
  }
  if (const std::string* model = fields.text("model")) request.model = *model;
  const std::string* prompt = fields.text("prompt");
  fields.params({kTopLogprobsName}, request.params);
  if (fields.whole(kTopLogprobsName, 0, kMaxTopLogprobs).value_or(0) > 0) {
    fields.fail(kTopLogprobsName,
                "is not supported: events have no log probabilities; leave it out");
  }
  request.to_context_end = fields.given(kMaxTokensName) == nullptr;
  if (fields.failed() || controller == nullptr) return fields.error();
  std::string arg = text_of_arg(fields, body);
  request.unknown_keys = fields.unknown_keys();
  std::string text = prompt != nullptr ? *prompt : std::string();
  if (*controller == kNoController) {
    text += arg;
  } else {
    request.controller = {*controller, std::move(arg), {}};
  }
  request.num_bytes = text.size();
  request.make_prompts = [text = std::move(text)](const registry::ReadyModel& model) {
    return encode_prompt(model, text);
  };
  return request;
}

void answer_run(ServerContext& context, GenerationRequest request,
                const std::shared_ptr<HttpResponder>& responder) {
  const std::string id = responder->begin_id("run-");
  const bool is_controlled = request.controller.has_value();
  if (is_controlled) request.controller->request_id = id;
  generate(context.generation, std::move(request), responder,
           std::make_shared<Run>(id, is_controlled, responder));
}

}  // namespace lmtp::server
