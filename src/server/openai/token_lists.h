// The log probabilities of an answer, in the form of either endpoint.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "lmtp/base/ids.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/request/event.h"
#include "lmtp/text/stream_text.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "request.h"

namespace lmtp::server {

// What has not been sent yet of one choice's tokens. Copied for another choice.
// Owner: the answer; the connection's strand.
class TokenLists {
 public:
  // `at_start`: as text::TokenDecoder::Options has it.
  TokenLists(const AnswerOptions& answer, text::TokenDecoder::Options decoder);

  void add(const TokenEvent& event);
  // `has_logprob`: false for the first one.
  void add_prompt_token(const TokenEvent& event, bool has_logprob) {
    add_completion(event, has_logprob);
  }

  // An entry of vLLM's prompt_logprobs: the token and num_top of the best, each with its rank.
  void write_ranked(const TokenEvent& event, std::size_t num_top, std::string& out) const;

  // The fields logprobs and token_ids, as far as they are asked for; what comes next is counted on
  // from there.
  void take(JsonWriter& json);

  // The objects of a chat's tokens alone, with commas between them.
  std::string take_content() { return std::exchange(content_, {}); }

  std::size_t num_bytes() const;

 private:
  void add_completion(const TokenEvent& event, bool has_logprob);
  void add_chat(const TokenEvent& event);
  std::string name_of(TokenId token) const;
  // Its object, which is left open.
  void write_chat_token(TokenId token, float logprob, JsonWriter& json) const;

  const AnswerOptions* answer_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  text::TokenDecoder decoder_;
  std::size_t num_characters_ = 0;  // of the text before the next token
  std::string ids_;
  // Of completions.
  std::string tokens_;
  std::string logprobs_;
  std::string tops_;
  std::string offsets_;
  std::string content_;  // of chats
};

}  // namespace lmtp::server
