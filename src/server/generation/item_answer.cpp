#include "item_answer.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace lmtp::server {

ItemAnswer::ItemAnswer(ServerContext& context, ItemOptions options,
                       std::shared_ptr<HttpResponder> responder)
    : context_(context),
      options_(std::move(options)),
      responder_(std::move(responder)),
      id_(responder_->begin_id(options_.id_prefix)),
      model_(options_.model),
      held_(context) {}

Result<void> ItemAnswer::on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                                    SamplingParams& params) {
  const auto context = static_cast<std::int64_t>(model.limits.total_tokens_max());
  num_prompt_tokens_ = static_cast<std::int64_t>(prompts.front().size());
  if (num_prompt_tokens_ >= context) {
    // In words by which Anthropic's clients know that they are to shorten the chat.
    return Error{ErrorCode::kTooLong,
                 std::string(options_.prompt_field) +
                     ": prompt is too long: " + std::to_string(num_prompt_tokens_) + " tokens > " +
                     std::to_string(context - 1) + " maximum, one less than the context"};
  }
  const auto num_left = static_cast<int>(context - num_prompt_tokens_);
  fits_ = options_.max_tokens && *options_.max_tokens <= num_left;
  params.max_tokens = fits_ ? *options_.max_tokens : num_left;
  model_ = answered_name(context_.generation.models.of(responder_->caller()), options_.model,
                         model.name);
  return {};
}

void ItemAnswer::on_reply(Reply reply) {
  if (reply.token.num_cached >= 0) {
    num_cached_ = std::min(num_cached_.value_or(reply.token.num_cached), reply.token.num_cached);
  }
  num_tokens_ = reply.num_tokens;
  num_reasoning_tokens_ += reply.is_reasoning ? 1 : 0;
  start();
  const bool is_in_call = is_open_ && items_.back().kind == ReplyItem::Kind::kCall;
  if (!reply.is_reasoning && !reply.is_special && !is_in_call && reply.token.token != kNoToken) {
    const std::string one = logprobs_of(reply.token);
    if (!one.empty()) pending_logprobs_ += (pending_logprobs_.empty() ? "" : ", ") + one;
  }
  for (ReplyEvent& event : reply.events) {
    std::visit([&](auto& kind) { read(kind); }, event);
  }
  reason_ = reply.token.finish_reason;
  if (reply.stop_text) stop_text_ = std::move(reply.stop_text);
  if (reason_ != FinishReason::kNone) close();
}

void ItemAnswer::read(CallBegins& event) {
  open({ReplyItem::Kind::kCall, std::move(event.id), std::move(event.function)});
}

void ItemAnswer::read(CallEnds /*event*/) {
  items_.back().is_whole = true;
  close();
}

void ItemAnswer::add(ReplyItem::Kind kind, std::string_view piece) {
  if (piece.empty()) return;
  if (!is_open_ || items_.back().kind != kind) open({kind});
  held_.add(options_.keeps_items ? piece.size() : 0);
  if (options_.keeps_items) items_.back().text += piece;
  if (kind == ReplyItem::Kind::kText) take_logprobs();
  if (options_.streams) write_piece(items_.back(), items_.size() - 1, piece);
}

// To the text whose piece is written. Of other items nothing is kept: what opened them is no text.
void ItemAnswer::take_logprobs() {
  new_logprobs_ = std::exchange(pending_logprobs_, {});
  if (new_logprobs_.empty()) return;
  std::string& all = items_.back().logprobs;
  held_.add(new_logprobs_.size());
  all += (all.empty() ? "" : ", ") + new_logprobs_;
}

void ItemAnswer::open(ReplyItem item) {
  close();
  if (item.kind != ReplyItem::Kind::kText) pending_logprobs_.clear();
  is_open_ = true;
  held_.add(sizeof(item) + item.function.size());
  items_.push_back(std::move(item));
  if (options_.streams) write_item_start(items_.back(), items_.size() - 1);
}

void ItemAnswer::close() {
  if (!std::exchange(is_open_, false)) return;
  if (options_.streams) write_item_end(items_.back(), items_.size() - 1);
}

// With the first reply, which tells what was found in the cache.
void ItemAnswer::start() {
  if (std::exchange(is_started_, true)) return;
  if (options_.streams) write_start();
}

ReplyEnd ItemAnswer::end() const {
  const auto calls = [](const ReplyItem& item) { return item.kind == ReplyItem::Kind::kCall; };
  const bool is_cut = std::ranges::any_of(
      items_, [&](const ReplyItem& item) { return calls(item) && !item.is_whole; });
  if (reason_ == FinishReason::kLength) return fits_ ? ReplyEnd::kLength : ReplyEnd::kContext;
  if (is_cut) return ReplyEnd::kLength;  // a stop string may have cut it
  if (stop_text_) return ReplyEnd::kStopText;
  return std::ranges::any_of(items_, calls) ? ReplyEnd::kCalls : ReplyEnd::kStop;
}

void ItemAnswer::send_events() {
  if (events_.empty()) return;
  if (!std::exchange(is_begun_, true)) {
    responder_->begin({200, "text/event-stream; charset=utf-8", ""});
  }
  responder_->write(events_);
  events_.clear();
}

Result<void> ItemAnswer::on_step() {
  auto counted = held_.count();
  if (counted) send_events();
  return counted;
}

void ItemAnswer::on_end() {
  if (!options_.streams) return responder_->send({200, "application/json", whole() + "\n"});
  start();
  write_end();
  send_events();
  responder_->end();
}

void ItemAnswer::on_error(const Error& error, bool no_model) {
  if (!is_begun_) return responder_->send(refusal(error, no_model));
  start();
  write_error(error, no_model);
  send_events();
  responder_->end();
}

void ItemAnswer::keep_alive() {
  events_ += silence();
  send_events();
}

void answer_items(ServerContext& context, GenerationRequest request,
                  const std::shared_ptr<HttpResponder>& responder,
                  const std::shared_ptr<ItemAnswer>& answer) {
  if (answer->streams()) {
    responder->on_silence(context.options.timeouts.keep_alive, [weak = std::weak_ptr(answer)] {
      if (const auto held = weak.lock()) held->keep_alive();
    });
  }
  generate(context.generation, std::move(request), responder, answer);
}

}  // namespace lmtp::server
