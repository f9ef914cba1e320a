// From a question to the token ids that a model reads before it answers.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generation/intake.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/registry/models.h"
#include "lmtp/text/chat_template.h"
#include "question.h"

namespace lmtp::server {

struct DecisionPrompt {
  std::vector<TokenId> ids;   // up to where the answer begins
  bool is_plain = false;      // the model has no chat template: an answer begins with a space
  bool in_reasoning = false;  // its end leaves a block of reasoning open
  bool is_own = false;        // of the folder's own template: labels are tokens by themselves
};

// Writes one request's questions, one after the other, each after its state. Owner: the call; any
// thread. What it is made of outlives it.
class DecisionPrompts {
 public:
  DecisionPrompts(const registry::ReadyModel& model, const DecisionRequest& request);

  // That each prompt has beside its question.
  std::size_t state_bytes() const;

  // By the layout, as the model's chat template has it. `question`: layout.h's text.
  Result<DecisionPrompt> written(const std::string& question);
  // By the template of the model's own folder, read at each of its marks; one for each question.
  // REQUIRES: DecisionConfig::chat_template. `labels`: of each of the questions.
  Result<std::vector<DecisionPrompt>> by_own_template(
      std::span<const Question> questions, std::span<const std::vector<std::string>> labels);

 private:
  Result<text::RenderedChat> rendered(const std::string& question);
  Result<text::RenderedChat> rendered_with(const OrderedJson& messages, bool* is_refused) const;
  OrderedJson with_question(const std::string& question) const;
  Error about_state(Error error) const;

  const registry::ReadyModel& model_;
  const DecisionRequest& request_;
  std::string state_;          // where no messages are written
  bool has_messages_ = false;  // and the template takes them as they are
  bool has_written_ = false;   // a question, with which that was decided
};

// What the tokenizer makes of answers at a prompt's end. Owner: one request; one thread.
class AnswerTokens {
 public:
  explicit AnswerTokens(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The ids that a text adds after the prompt, whose own stay as they are; the error says that they
  // do not, without naming the text.
  Result<std::vector<TokenId>> after(const DecisionPrompt& prompt, const std::string& text);

 private:
  // The end of a prompt's text that is encoded anew with what follows.
  struct Tail {
    std::vector<TokenId> ids;
    std::string text;
  };
  const Tail& tail_of(std::span<const TokenId> prompt);

  const tokenizer::Tokenizer& tokenizer_;
  Tail tail_;
};

}  // namespace lmtp::server
