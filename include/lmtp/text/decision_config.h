// How a model is asked for decisions, by the files of its folder: docs/decisions.md. The files are
// those of transformers (from 5.23 on), decision.json and decision_template.jinja.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/text/chat_template.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::text {

// Predicates are System One's "noul".
enum class QuestionKind { kPredicate, kChoice, kScore };
inline constexpr int kNumQuestionKinds = 3;
inline constexpr std::size_t kOptionsMax = 255;  // of a question

// What is taken in the place of the folder's own.
struct DecisionOptions {
  std::string chat_template_file;                                 // empty: the folder's
  std::array<double, kNumQuestionKinds> temperature = {0, 0, 0};  // 0: decision.json's
};

// "1.5", or by kind, "noul=1.5,choice=0.8"; the error says what is allowed.
Result<std::array<double, kNumQuestionKinds>> parse_decision_temperature(const std::string& text);

// Immutable once read; any thread.
struct DecisionConfig {
  // By kind, one for each option, in the order in which the template gets these.
  std::array<std::vector<std::string>, kNumQuestionKinds> labels;
  std::array<double, kNumQuestionKinds> temperature = {1, 1, 1};  // > 0
  bool false_first = false;  // a predicate's options, as the template gets them
  // What writes a prompt of `state` and `question`, or of `questions`; null: docs/decisions.md's
  // layout in the model's chat template.
  std::shared_ptr<const ChatTemplate> chat_template;
  bool asks_all_at_once = false;  // the template reads `questions`

  const std::vector<std::string>& labels_of(QuestionKind kind) const {
    return labels[static_cast<std::size_t>(kind)];
  }
  double temperature_of(QuestionKind kind) const {
    return temperature[static_cast<std::size_t>(kind)];
  }
};

// A model's, or why it takes none.
using LoadedDecisions = Result<std::shared_ptr<const DecisionConfig>>;

// A folder without the files has the defaults: Yes and No, A to Z. The error names the file and
// what is wrong there.
LoadedDecisions read_decision_config(const std::string& folder, const DecisionOptions& options,
                                     std::shared_ptr<const tokenizer::Tokenizer> tokenizer);

// The defaults.
std::shared_ptr<const DecisionConfig> default_decisions();

}  // namespace lmtp::text
