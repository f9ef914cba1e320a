#include "token_lists.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"

namespace lmtp::server {
namespace {

// What has probability 0, as in vLLM: JSON has no infinities.
constexpr float kLogprobMin = -9999.0F;

float finite(float logprob) { return std::isfinite(logprob) ? logprob : kLogprobMin; }

// "bytes:\xe2\x82", as OpenAI writes a token that is not a text.
std::string bytes_text(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += "\\x";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::span<const TokenLogprob> tops_of(const TokenEvent& event) {
  if (!event.top_logprobs) return {};
  return *event.top_logprobs;
}

}  // namespace

TokenLists::TokenLists(const AnswerOptions& answer, text::TokenDecoder::Options decoder)
    : answer_(&answer), tokenizer_(decoder.tokenizer), decoder_(std::move(decoder)) {}

void TokenLists::add(const TokenEvent& event) {
  if (answer_->token_ids) JsonWriter(ids_).value(event.token);
  if (!answer_->logprobs) return;
  if (answer_->is_chat) {
    add_chat(event);
  } else {
    add_completion(event, true);
  }
}

std::string TokenLists::name_of(TokenId token) const {
  if (answer_->names_tokens_ids) return "token_id:" + std::to_string(token);
  const std::string_view bytes = tokenizer_->token_bytes(token);
  return is_utf8(bytes) ? std::string(bytes) : bytes_text(bytes);
}

void TokenLists::add_completion(const TokenEvent& event, bool has_logprob) {
  JsonWriter(tokens_).value(name_of(event.token));
  JsonWriter(offsets_).value(num_characters_);
  num_characters_ += num_characters(decoder_.push(event.token));
  JsonWriter logprobs(logprobs_);
  JsonWriter tops(tops_);
  if (!has_logprob) {
    logprobs.value(nullptr);
    tops.value(nullptr);
    return;
  }
  logprobs.value(finite(event.logprob));
  tops.begin_object();
  bool has_own = false;
  std::set<std::string> names;  // several tokens may have one text: the best of them has it here
  const auto append = [&](const TokenLogprob& top) {
    const auto [name, is_new] = names.insert(name_of(top.token));
    if (is_new) tops.text_key(*name).value(finite(top.logprob));
  };
  const auto given = tops_of(event);
  const auto num_top = static_cast<std::size_t>(answer_->num_top);
  for (const TokenLogprob& top : given.first(std::min(given.size(), num_top))) {
    has_own = has_own || top.token == event.token;
    append(top);
  }
  if (!has_own) append({event.token, event.logprob});
  tops.end_object();
}

void TokenLists::write_ranked(const TokenEvent& event, std::size_t num_top,
                              std::string& out) const {
  JsonWriter json(out);
  json.begin_object();
  const auto write = [&](const TokenLogprob& one, std::size_t rank) {
    std::string text;
    append_valid_utf8(tokenizer_->token_bytes(one.token), text);
    json.key(std::to_string(one.token)).begin_object().field("logprob", finite(one.logprob));
    json.field("rank", rank).field("decoded_token", text).end_object();
  };
  const auto tops = tops_of(event);
  const auto best = tops.first(std::min(tops.size(), num_top));
  const auto own = std::ranges::find(best, event.token, &TokenLogprob::token);
  const auto own_rank = own != best.end() ? static_cast<std::size_t>(own - best.begin()) + 1
                                          : static_cast<std::size_t>(event.measured.rank);
  write({event.token, event.logprob}, own_rank);
  for (std::size_t i = 0; i < best.size(); ++i) {
    if (best[i].token != event.token) write(best[i], i + 1);
  }
  json.end_object();
}

void TokenLists::write_chat_token(TokenId token, float logprob, JsonWriter& json) const {
  json.begin_object().field("token", name_of(token)).field("logprob", finite(logprob));
  json.key("bytes").begin_array();
  for (const char byte : tokenizer_->token_bytes(token)) {
    json.value(int{static_cast<unsigned char>(byte)});
  }
  json.end_array();
}

void TokenLists::add_chat(const TokenEvent& event) {
  JsonWriter json(content_);
  write_chat_token(event.token, event.logprob, json);
  json.key("top_logprobs").begin_array();
  const auto tops = tops_of(event);
  const auto num_top = static_cast<std::size_t>(answer_->num_top);
  for (const TokenLogprob& top : tops.first(std::min(tops.size(), num_top))) {
    write_chat_token(top.token, top.logprob, json);
    json.end_object();
  }
  json.end_array().end_object();
}

void TokenLists::take(JsonWriter& json) {
  json.key("logprobs");
  const auto list = [&json](std::string_view name, const std::string& items) {
    json.key(name).begin_array().out() += items;
    json.end_array();
  };
  if (!answer_->logprobs) {
    json.value(nullptr);
  } else {
    json.begin_object();
    if (answer_->is_chat) {
      list("content", content_);
      json.field("refusal", nullptr);
    } else {
      list("tokens", tokens_);
      list("token_logprobs", logprobs_);
      list("top_logprobs", tops_);
      list("text_offset", offsets_);
    }
    json.end_object();
  }
  if (answer_->token_ids) list("token_ids", ids_);
  for (std::string* text : {&ids_, &tokens_, &logprobs_, &tops_, &offsets_, &content_}) {
    text->clear();
  }
}

std::size_t TokenLists::num_bytes() const {
  return ids_.size() + tokens_.size() + logprobs_.size() + tops_.size() + offsets_.size() +
         content_.size();
}

}  // namespace lmtp::server
