#include "token_lists.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"

namespace lmtp::server {
namespace {

// What has probability 0, as in vLLM: JSON has no infinities.
constexpr float kLogprobMin = -9999.0F;

void append_logprob(float logprob, std::string& out) {
  out += number_text(std::isfinite(logprob) ? logprob : kLogprobMin);
}

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

void separate(std::string& list) {
  if (!list.empty()) list += ", ";
}

std::span<const TokenLogprob> tops_of(const TokenEvent& event) {
  if (!event.top_logprobs) return {};
  return *event.top_logprobs;
}

}  // namespace

std::string ids_json(std::span<const TokenId> ids) {
  std::string out = "[";
  for (const TokenId id : ids) {
    if (out.size() > 1) out += ", ";
    out += std::to_string(id);
  }
  return out + "]";
}

TokenLists::TokenLists(const AnswerOptions& answer, text::TokenDecoder::Options decoder)
    : answer_(&answer), tokenizer_(decoder.tokenizer), decoder_(std::move(decoder)) {}

void TokenLists::add(const TokenEvent& event) {
  if (answer_->token_ids) {
    separate(ids_);
    ids_ += std::to_string(event.token);
  }
  if (!answer_->logprobs) return;
  if (answer_->is_chat) {
    add_chat(event);
  } else {
    add_completion(event, true);
  }
}

void TokenLists::append_token(TokenId token, std::string& out) const {
  if (answer_->names_tokens_ids) {
    return append_json_string("token_id:" + std::to_string(token), out);
  }
  const std::string_view bytes = tokenizer_->token_bytes(token);
  append_json_string(is_utf8(bytes) ? bytes : bytes_text(bytes), out);
}

void TokenLists::add_completion(const TokenEvent& event, bool has_logprob) {
  for (std::string* list : {&tokens_, &logprobs_, &tops_, &offsets_}) separate(*list);
  append_token(event.token, tokens_);
  offsets_ += std::to_string(num_characters_);
  num_characters_ += num_characters(decoder_.push(event.token));
  if (!has_logprob) {
    logprobs_ += "null";
    tops_ += "null";
    return;
  }
  append_logprob(event.logprob, logprobs_);
  tops_ += '{';
  bool has_own = false;
  std::set<std::string> names;  // several tokens may have one text: the best of them has it here
  const auto append = [&](const TokenLogprob& top) {
    std::string name;
    append_token(top.token, name);
    if (!names.insert(name).second) return;
    if (tops_.back() != '{') tops_ += ", ";
    tops_ += name + ": ";
    append_logprob(top.logprob, tops_);
  };
  for (const TokenLogprob& top : tops_of(event)) {
    has_own = has_own || top.token == event.token;
    append(top);
  }
  if (!has_own) append({event.token, event.logprob});
  tops_ += '}';
}

void TokenLists::append_chat_token(TokenId token, float logprob, std::string& out) const {
  const std::string_view bytes = tokenizer_->token_bytes(token);
  out += R"({"token": )";
  append_token(token, out);
  out += R"(, "logprob": )";
  append_logprob(logprob, out);
  out += R"(, "bytes": [)";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(static_cast<unsigned char>(bytes[i]));
  }
  out += ']';
}

void TokenLists::add_chat(const TokenEvent& event) {
  separate(content_);
  append_chat_token(event.token, event.logprob, content_);
  content_ += R"(, "top_logprobs": [)";
  const auto tops = tops_of(event);
  const auto num_top = static_cast<std::size_t>(answer_->num_top);
  for (std::size_t i = 0; i < std::min(tops.size(), num_top); ++i) {
    if (i > 0) content_ += ", ";
    append_chat_token(tops[i].token, tops[i].logprob, content_);
    content_ += '}';
  }
  content_ += "]}";
}

void TokenLists::take(std::string& out) {
  out += R"(, "logprobs": )";
  if (!answer_->logprobs) {
    out += "null";
  } else if (answer_->is_chat) {
    out += R"({"content": [)" + content_ + R"(], "refusal": null})";
  } else {
    out += R"({"tokens": [)" + tokens_ + R"(], "token_logprobs": [)" + logprobs_ +
           R"(], "top_logprobs": [)" + tops_ + R"(], "text_offset": [)" + offsets_ + "]}";
  }
  if (answer_->token_ids) out += R"(, "token_ids": [)" + ids_ + "]";
  for (std::string* list : {&ids_, &tokens_, &logprobs_, &tops_, &offsets_, &content_}) {
    list->clear();
  }
}

std::size_t TokenLists::num_bytes() const {
  return ids_.size() + tokens_.size() + logprobs_.size() + tops_.size() + offsets_.size() +
         content_.size();
}

}  // namespace lmtp::server
