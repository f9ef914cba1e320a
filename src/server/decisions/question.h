// Typed questions about a state, as every protocol's door reads them: docs/decisions.md.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "lmtp/text/decision_config.h"

namespace lmtp::server {

using text::QuestionKind;

inline constexpr std::size_t kQuestionsMax = 400;      // of a request
inline constexpr std::size_t kOptionsOfAllMax = 4096;  // of a request's questions together

// What one may answer.
struct AnswerOption {
  std::string name;         // of a score its level's number; of a predicate "true" or "false"
  OrderedJson description;  // a text, or JSON; null: none. Of a score the level
  bool is_boolean = false;  // OpenAI's choices true and false
};

struct Question {
  std::string id;  // System One's key, or OpenAI's name
  bool has_id = true;
  QuestionKind kind = QuestionKind::kPredicate;
  OrderedJson instructions;           // as a description
  std::vector<AnswerOption> options;  // true before false, levels from the lowest on
};

// How answers are read.
enum class Scoring {
  kAuto,        // each question by its labels where these can be read, else by its options
  kLabel,       // by the log probabilities of the options' labels as the first token of the reply
  kOption,      // by those of the options' whole texts
  kOptionMean,  // by the same, divided by the number of tokens
};
// "auto", "label", "option", "option_mean".
std::optional<Scoring> scoring_by_name(std::string_view name);
inline constexpr std::string_view kScoringNames = "auto, label, option, option_mean";

struct DecisionRequest {
  std::string model;
  OrderedJson state;                      // a text or JSON; null where there are messages
  std::string_view state_name = "state";  // as the protocol calls it, or the messages; for errors
  // A chat, for the model's template; null: none. Contents are null, texts, or lists of text parts.
  OrderedJson messages = nullptr;
  std::string system;  // that comes before the state; empty: none
  std::vector<Question> questions;
  Scoring scoring = Scoring::kAuto;
  OrderedJson template_kwargs = OrderedJson::object();
  bool diagnoses = false;
  std::string cache_salt = {};  // Request's

  std::size_t num_bytes = 0;              // of the body
  std::vector<std::string> unknown_keys;  // likewise: ignored, and named in the log
};

// The questions that are wrong, all of them; empty: none. Owner: the reading of one body.
class QuestionMistakes {
 public:
  void add(const std::string& question, const std::string& what);
  // What is wrong with the questions together.
  void check(const std::vector<Question>& questions);
  bool empty() const { return text_.empty(); }
  Error error() const;

 private:
  std::string text_;
  std::size_t num_more_ = 0;  // that the text does not have
};

// A text as it is, other JSON as Python's json.dumps writes it (ensure_ascii=False); null is empty.
std::string content_text(const OrderedJson& content);

}  // namespace lmtp::server
