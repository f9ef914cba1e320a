#include "sample_text.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace lmtp::server {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

std::string Reply::take_content() {
  std::string text;
  for (ReplyEvent& event : events) {
    auto* content = std::get_if<Content>(&event);
    if (content == nullptr) continue;
    if (text.empty()) {
      text = std::move(content->text);
    } else {
      text += content->text;
    }
  }
  return text;
}

namespace {

std::shared_ptr<const std::vector<TokenId>> special_tokens_of(
    const std::vector<std::string>& texts, const tokenizer::Tokenizer& tokenizer) {
  std::vector<TokenId> special;
  for (const std::string& text : texts) (void)text::mark_special(tokenizer, text, &special);
  if (special.empty()) return nullptr;
  return std::make_shared<const std::vector<TokenId>>(std::move(special));
}

}  // namespace

SampleText::SampleText(const registry::ReadyModel& model, std::span<const TokenId> prompt,
                       std::size_t num_resumed, const SamplingParams& params, TextOptions options)
    : decoder_{*model.tokenizer, options.skip_special_tokens, false,
               special_tokens_of(options.markers, **model.tokenizer)},
      include_stop_(options.include_stop),
      tokens_(prompt.begin(), prompt.end()),
      num_prompt_(prompt.size()),
      num_before_(prompt.size() - num_resumed) {
  decoder_.at_start = is_without_text(decoder_, prompt.first(num_before_));
  const bool cuts = options.cuts_end_token && !include_stop_;
  if (!options.stop.empty() || cuts || options.format) {
    Ends ends{params.stop_token_ids, {}, std::move(options.format), {}, nullptr};
    const std::vector<TokenId>& eos = model.limits.eos_ids;
    if (!params.ignore_eos) ends.ids.insert(ends.ids.end(), eos.begin(), eos.end());
    if (cuts) {
      ends.cut_ids = params.stop_token_ids;
      for (const auto* ids : {&eos, &model.answer_end_ids}) {
        ends.cut_ids.insert(ends.cut_ids.end(), ids->begin(), ids->end());
      }
    }
    if (!options.stop.empty()) {
      ends.strings = std::make_shared<const text::StopStrings>(std::move(options.stop));
      ends.checker.emplace(decoder_, ends.strings, prompt.last(num_resumed));
    }
    ends_ = std::make_shared<const Ends>(std::move(ends));
  }
  begin_text();
}

SampleText::SampleText(const SampleText& other)
    : decoder_(other.decoder_),
      include_stop_(other.include_stop_),
      tokens_(other.tokens_),
      num_prompt_(other.num_prompt_),
      num_before_(other.num_before_),
      ends_(other.ends_),
      text_(other.text_),
      reader_(other.reader_ != nullptr ? other.reader_->clone() : nullptr),
      num_calls_(other.num_calls_) {}

void SampleText::begin_text() {
  const auto generated = std::span<const TokenId>(tokens_).subspan(num_before_);
  const bool is_read = ends_ != nullptr && ends_->format;
  text_.emplace(decoder_, ends_ != nullptr ? ends_->strings : nullptr, include_stop_,
                is_read ? std::span<const TokenId>() : generated);
  if (!is_read) return;
  reader_ = ends_->format();
  num_calls_ = 0;
  ReplyEvents said;  // already
  for (const TokenId token : generated) {
    read_piece(text_->push(token, FinishReason::kNone).text, {.token = token},
               decoder_.tokenizer->is_special(token), said);
    said.clear();
  }
}

void SampleText::read_piece(std::string text, const TokenEvent& token, bool is_special,
                            ReplyEvents& events) {
  reader_->read(std::move(text), token, is_special, events);
  num_calls_ += static_cast<int>(std::ranges::count_if(
      events, [](const ReplyEvent& event) { return std::holds_alternative<CallBegins>(event); }));
}

void SampleText::backtrack(std::size_t num_tokens) {
  if (num_tokens == 0) return;
  tokens_.resize(tokens_.size() - num_tokens);
  num_prompt_ = std::min(num_prompt_, tokens_.size());
  num_before_ = std::min(num_before_, tokens_.size());
  decoder_.at_start =
      is_without_text(decoder_, std::span<const TokenId>(tokens_).first(num_before_));
  begin_text();
}

std::shared_ptr<StopChecker> SampleText::make_stop_checker() const {
  if (ends_ == nullptr || !ends_->checker) return nullptr;
  return std::make_shared<text::TextStopChecker>(*ends_->checker);
}

Reply SampleText::read(TokenEvent event) {
  backtrack(static_cast<std::size_t>(event.num_backtracked));
  const TokenId token = event.token;
  const bool is_last = event.finish_reason != FinishReason::kNone;
  const bool by_token =
      is_last && ends_ != nullptr && contains(ends_->ids, token);  // not by a stop string
  if (token != kNoToken) tokens_.push_back(token);
  // What has ended the sample is no stop string.
  const bool by_other = by_token || (is_last && reader_ != nullptr && reader_->in_call());
  auto piece = text_->push(token, by_other ? FinishReason::kLength : event.finish_reason);
  Reply reply{.token = std::move(event)};
  reply.is_special = token != kNoToken && decoder_.tokenizer->is_special(token);
  reply.num_prompt_tokens = static_cast<int>(num_prompt_);
  reply.num_tokens = static_cast<int>(tokens_.size() - num_prompt_);
  reply.stop_text = std::move(piece.stop_text);
  if (is_last && !reply.stop_text) cut_end_token(reply, piece.text);
  if (reader_ != nullptr) {
    reply.is_reasoning = reader_->in_reasoning();
    reply.num_calls_before = num_calls_;
    read_piece(std::move(piece.text), reply.token, reply.is_special, reply.events);
    reply.is_reasoning = reply.is_reasoning || reader_->in_reasoning();
  } else if (!piece.text.empty()) {
    reply.events.emplace_back(Content{std::move(piece.text)});
  }
  return reply;
}

void SampleText::cut_end_token(const Reply& reply, std::string& text) const {
  const TokenId token = reply.token.token;
  if (ends_ == nullptr || !contains(ends_->cut_ids, token)) return;
  if (reply.token.finish_reason != FinishReason::kStop) return;
  if (reply.is_special && decoder_.skip_special_tokens) return;
  const std::string_view bytes = decoder_.tokenizer->token_bytes(token);
  if (text.ends_with(bytes)) text.resize(text.size() - bytes.size());
}

}  // namespace lmtp::server
