#include "plan.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "layout.h"
#include "lmtp/base/text.h"
#include "lmtp/request/error_text.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kOwnTokensMax = std::size_t{4} << 20;
// The state in the prompts of all questions, which are encoded one by one.
constexpr std::size_t kTextBytesOfAllMax = std::size_t{64} << 20;

std::string name_of(const Question& question, std::size_t index) {
  return question.has_id ? "question " + quoted_name(question.id)
                         : "questions[" + std::to_string(index) + "]";
}

}  // namespace

// Makes a plan. Owner: the call.
class DecisionPlanner {
 public:
  DecisionPlanner(const registry::ReadyModel& model, const DecisionRequest& request,
                  DecisionPlan& plan)
      : request_(request),
        config_(**model.decisions),
        context_length_(model.limits.context_length),
        prompts_(model, request),
        tokens_(**model.tokenizer),
        plan_(plan) {}

  Result<void> make() {
    const std::size_t num_bytes = std::max(prompts_.state_bytes(), std::size_t{1});
    if (num_bytes * request_.questions.size() > kTextBytesOfAllMax) {
      return Error{ErrorCode::kInvalid,
                   "questions: has " + std::to_string(request_.questions.size()) +
                       ", each of which is written after the state; with so long a state allowed "
                       "are at most " +
                       std::to_string(std::max(kTextBytesOfAllMax / num_bytes, std::size_t{1}))};
    }
    std::vector<Question> questions = request_.questions;
    for (Question& question : questions) {
      if (is_reversed(question)) std::swap(question.options[0], question.options[1]);
    }
    if (config_.chat_template != nullptr && config_.asks_all_at_once && wants_labels()) {
      if (auto written = write_all(questions); !written) return written;
    }
    QuestionMistakes mistakes;
    for (std::size_t i = 0; i < questions.size(); ++i) {
      auto asked = ask(questions[i], i);
      if (asked) {
        if (auto added = plan_.add(std::move(*asked)); !added) return added;
      } else if (asked.error().code == ErrorCode::kConstraint) {
        mistakes.add(name_of(questions[i], i), asked.error().message);
      } else {  // of all questions
        return asked.error();
      }
    }
    return mistakes.empty() ? Result<void>() : mistakes.error();
  }

 private:
  using Asked = DecisionPlan::Asked;

  bool is_reversed(const Question& question) const {
    return question.kind == QuestionKind::kPredicate && config_.false_first;
  }
  bool wants_labels() const {
    return request_.scoring == Scoring::kAuto || request_.scoring == Scoring::kLabel;
  }

  std::vector<std::string> labels_of(const Question& question) const {
    const auto& all = config_.labels_of(question.kind);
    const std::size_t num = std::min(all.size(), question.options.size());
    return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(num)};
  }

  Result<void> write_all(const std::vector<Question>& questions) {
    std::vector<std::vector<std::string>> labels;
    for (const Question& question : questions) labels.push_back(labels_of(question));
    auto written = prompts_.by_own_template(questions, labels);
    if (!written) return written.error();
    all_ = std::move(*written);
    return {};
  }

  Result<DecisionPrompt> labelled_prompt(const Question& question,
                                         const std::vector<std::string>& labels,
                                         std::size_t index) {
    if (!all_.empty()) return std::move(all_[index]);
    if (config_.chat_template == nullptr) {
      return prompts_.written(labelled_question(question, labels));
    }
    auto written = prompts_.by_own_template({&question, 1}, {&labels, 1});
    if (!written) return written.error();
    return std::move(written->front());
  }

  // The code kConstraint is of errors of this question alone.
  Result<Asked> ask(const Question& question, std::size_t index) {
    if (!wants_labels()) return ask_options(question);
    auto asked = ask_labels(question, index);
    // Prompts that can't be written are written in no other way.
    const bool goes_on = !asked && asked.error().code == ErrorCode::kConstraint;
    if (!goes_on) return asked;
    if (request_.scoring == Scoring::kAuto) return ask_options(question);
    return Error{
        ErrorCode::kConstraint,
        asked.error().message + "; needed is \"scoring\": \"option\", which reads their texts"};
  }

  Result<Asked> ask_labels(const Question& question, std::size_t index) {
    const std::vector<std::string> labels = labels_of(question);
    if (labels.size() < question.options.size()) {
      return Error{ErrorCode::kConstraint, "has " + std::to_string(question.options.size()) +
                                               " options; allowed are at most " +
                                               std::to_string(labels.size()) +
                                               ", for which this model has labels"};
    }
    auto prompt = labelled_prompt(question, labels, index);
    if (!prompt) return prompt.error();
    if (prompt->in_reasoning) {
      return Error{ErrorCode::kConstraint,
                   "the model's prompt opens a block of reasoning, also with enable_thinking "
                   "false, and a label is read where the reply begins"};
    }
    Asked asked{.prompt = std::move(prompt->ids), .is_reversed = is_reversed(question)};
    prompt->ids = asked.prompt;
    std::vector<std::vector<TokenId>> ids;
    for (const std::string& label : labels) {
      auto added = tokens_.after(*prompt, label);
      if (!added || added->size() != 1 || std::ranges::count(ids, *added) > 0) {
        return Error{ErrorCode::kConstraint, "its label " + quoted_name(label) +
                                                 " is no token of its own at the prompt's end"};
      }
      ids.push_back(std::move(*added));
    }
    return with_candidates(std::move(asked), ids);
  }

  Result<Asked> ask_options(const Question& question) {
    const std::vector<std::string>& labels = config_.labels_of(question.kind);
    auto prompt = prompts_.written(plain_question(question, labels));
    if (!prompt) return prompt.error();
    std::vector<std::vector<TokenId>> ids;
    for (std::size_t i = 0; i < question.options.size(); ++i) {
      const std::string text = option_text(question, i, labels);
      const std::string place = "option " + std::to_string(i);
      if (text.empty()) {
        return Error{ErrorCode::kConstraint, place + ": is empty; needed is a text"};
      }
      auto added = tokens_.after(*prompt, text);
      if (!added) return Error{ErrorCode::kConstraint, place + ": " + added.error().message};
      if (std::ranges::count(ids, *added) > 0) {
        return Error{ErrorCode::kConstraint,
                     place + ": is equal to another one for the model; needed are different texts"};
      }
      ids.push_back(std::move(*added));
    }
    Asked asked{
        .prompt = std::move(prompt->ids), .by_labels = false, .is_reversed = is_reversed(question)};
    return with_candidates(std::move(asked), ids);
  }

  Result<Asked> with_candidates(Asked asked, const std::vector<std::vector<TokenId>>& ids) {
    std::size_t longest = 0;
    for (const auto& one : ids) longest = std::max(longest, one.size());
    if (asked.prompt.size() + longest > static_cast<std::size_t>(context_length_)) {
      return with_field_name(
          request_.state_name,
          {ErrorCode::kInvalid, "has " + std::to_string(asked.prompt.size() + longest) +
                                    " tokens with its question; allowed are at most " +
                                    std::to_string(context_length_) + ", the context"});
    }
    auto candidates = CandidateTrie::make(ids);
    if (!candidates) return Error{ErrorCode::kConstraint, candidates.error().message};
    if (asked.by_labels) {
      for (const auto& one : ids) asked.label_ids.push_back(one.front());
    }
    asked.candidates = std::make_unique<CandidateTrie>(std::move(*candidates));
    return asked;
  }

  const DecisionRequest& request_;
  const text::DecisionConfig& config_;
  const int context_length_;
  DecisionPrompts prompts_;
  AnswerTokens tokens_;
  DecisionPlan& plan_;
  std::vector<DecisionPrompt> all_;  // of the questions; empty: written one by one
};

Result<std::shared_ptr<DecisionPlan>> DecisionPlan::make(const registry::ReadyModel& model,
                                                         const DecisionRequest& request) {
  if (!model.tokenizer) {
    return Error{ErrorCode::kInvalid, "model: has no tokenizer here (" +
                                          model.tokenizer.error().message +
                                          "), which decisions need"};
  }
  if (!model.decisions) return with_field_name("model", model.decisions.error());
  std::shared_ptr<DecisionPlan> plan(new DecisionPlan(request, *model.decisions));
  if (auto made = DecisionPlanner(model, request, *plan).make(); !made) return made.error();
  return plan;
}

Result<void> DecisionPlan::add(Asked asked) {
  num_prompt_tokens_ += static_cast<std::int64_t>(asked.prompt.size());
  if (asked_.empty()) first_prompt_ = asked.prompt;
  const auto [of_first, own] = std::ranges::mismatch(first_prompt_, asked.prompt);
  asked.num_shared = static_cast<std::size_t>(of_first - first_prompt_.begin());
  asked.prompt = {own, asked.prompt.end()};
  num_own_tokens_ += asked.prompt.size();
  if (num_own_tokens_ > kOwnTokensMax) {
    return Error{ErrorCode::kInvalid,
                 "questions: have more than " + std::to_string(kOwnTokensMax) +
                     " tokens beside what their prompts begin with alike; ask fewer at a time, "
                     "allowed are so many"};
  }
  ready_.insert(asked_.size());
  asked_.push_back(std::move(asked));
  return {};
}

std::optional<ScoreOfRow> DecisionPlan::next() {
  while (!ready_.empty()) {
    const std::size_t question = *ready_.begin();
    Asked& asked = asked_[question];
    const auto row = asked.candidates->next_row();
    if (!row) {
      ready_.erase(question);
      continue;
    }
    const auto shared = first_prompt_.begin() + static_cast<std::ptrdiff_t>(asked.num_shared);
    std::vector<TokenId> prompt(first_prompt_.begin(), shared);
    prompt.insert(prompt.end(), asked.prompt.begin(), asked.prompt.end());
    ScoreOfRow score = asked.candidates->score_of(*row, prompt);
    score.row = rows_.size();
    if (question > 0 && *row == 0) score.part_tokens = static_cast<int>(asked.prompt.size());
    rows_.push_back({question, *row});
    score.top_logprobs = diagnoses_ && asked.by_labels ? 1 : 0;
    return score;
  }
  return std::nullopt;
}

void DecisionPlan::give_back(std::size_t row) {
  asked_[rows_[row].question].candidates->return_row(rows_[row].row);
  ready_.insert(rows_[row].question);
}

void DecisionPlan::read(std::size_t row, const TokenEvent& event) {
  Row& of = rows_[row];
  Asked& asked = asked_[of.question];
  if (!std::exchange(of.is_read, true) && of.row == 0) {
    num_cached_tokens_ += std::max(event.num_cached, 0);
  }
  if (asked.by_labels && event.top_logprobs) asked.best_token = event.top_logprobs->data()->token;
  asked.candidates->read(of.row, event);
}

void DecisionPlan::end(std::size_t row) {
  asked_[rows_[row].question].candidates->end_row(rows_[row].row);
  ready_.insert(rows_[row].question);
}

Result<std::vector<TypedAnswer>> DecisionPlan::answers(
    const std::vector<Question>& questions) const {
  std::vector<TypedAnswer> answers;
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    const Asked& asked = asked_[i];
    const auto read = asked.candidates->logprobs();
    if (!read) return read.error();
    std::vector<double> logprobs;
    for (const CandidateLogprob& one : *read) {
      if (std::isnan(one.logprob)) {
        return Error{ErrorCode::kInternal, "the model gives log probabilities that are no numbers"};
      }
      logprobs.push_back(is_mean_ ? one.logprob / one.num_tokens : one.logprob);
    }
    if (asked.is_reversed) std::swap(logprobs[0], logprobs[1]);
    answers.push_back(answer_of(questions[i], logprobs, asked.by_labels,
                                config_->temperature_of(questions[i].kind)));
    if (asked.best_token) {
      answers.back().argmax_is_label = std::ranges::count(asked.label_ids, *asked.best_token) > 0;
    }
  }
  return answers;
}

}  // namespace lmtp::server
