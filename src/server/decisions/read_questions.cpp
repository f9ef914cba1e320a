#include "read_questions.h"

#include <set>
#include <string>
#include <utility>

#include "lmtp/base/text.h"

namespace lmtp::server {
namespace {

bool is_content(const OrderedJson& value) { return value.is_string() || value.is_structured(); }

Result<void> read_predicate(const OrderedJson& criteria, Question& question) {
  question.options = {{"true", {}}, {"false", {}}};
  if (criteria.is_null()) return {};
  const Error wrong{ErrorCode::kInvalid,
                    R"(criteria: allowed is an object of "true" and "false", each a text)"};
  if (!criteria.is_object()) return wrong;
  for (const auto& [name, description] : criteria.items()) {
    if ((name != "true" && name != "false") ||
        !(description.is_null() || is_content(description))) {
      return wrong;
    }
    question.options[name == "true" ? 0 : 1].description = description;
  }
  return {};
}

Result<void> read_choice(const OrderedJson& criteria, Question& question) {
  if (!criteria.is_object() || criteria.empty()) {
    return Error{ErrorCode::kInvalid,
                 "criteria: needed is an object of options, each with a description or null"};
  }
  for (const auto& [name, description] : criteria.items()) {
    if (name.empty()) {
      return Error{ErrorCode::kInvalid, "criteria: has an option without a name; needed is one"};
    }
    if (!description.is_null() && !is_content(description)) {
      return Error{ErrorCode::kInvalid, "criteria." + quoted_name(name) +
                                            ": allowed are a text, an object, a list and null"};
    }
    question.options.push_back({name, description});
  }
  return {};
}

Result<void> read_levels(const OrderedJson& criteria, Question& question) {
  if (!criteria.is_array() || criteria.empty()) {
    return Error{ErrorCode::kInvalid, "criteria: needed is a list of levels, the lowest first"};
  }
  std::set<std::string> known;
  for (const OrderedJson& level : criteria) {
    const std::string number = std::to_string(question.options.size());
    const std::string text = content_text(level);
    if (!is_content(level) || text.empty() || !known.insert(text).second) {
      return Error{ErrorCode::kInvalid,
                   "criteria[" + number +
                       "]: needed is a level, a text that is not empty and not another one's"};
    }
    question.options.push_back({number, level});
  }
  return {};
}

Result<void> read_criteria(const OrderedJson& criteria, Question& question) {
  if (criteria.is_structured() && criteria.size() > text::kOptionsMax) {
    return Error{ErrorCode::kInvalid, "criteria: has " + std::to_string(criteria.size()) +
                                          " options; allowed are at most " +
                                          std::to_string(text::kOptionsMax)};
  }
  switch (question.kind) {
    case QuestionKind::kPredicate:
      return read_predicate(criteria, question);
    case QuestionKind::kChoice:
      return read_choice(criteria, question);
    case QuestionKind::kScore:
      break;
  }
  return read_levels(criteria, question);
}

Result<Question> read_question(const std::string& id, const OrderedJson& given) {
  Question question;
  question.id = id;
  const auto type = given.is_object() ? given.find("type") : given.end();
  const bool has_type = given.is_object() && type != given.end() && type->is_string();
  if (has_type && *type == "choice") {
    question.kind = QuestionKind::kChoice;
  } else if (has_type && *type == "score") {
    question.kind = QuestionKind::kScore;
  } else if (!has_type || *type != "noul") {
    return Error{ErrorCode::kInvalid, "type: allowed are noul, choice and score"};
  }
  OrderedJson criteria;
  for (const auto& [key, value] : given.items()) {
    if (key == "instructions") {
      if (!value.is_null() && !is_content(value)) {
        return Error{ErrorCode::kInvalid, "instructions: allowed are a text, an object and a list"};
      }
      question.instructions = value;
    } else if (key == "criteria") {
      criteria = value;
    } else if (key != "type") {
      return Error{ErrorCode::kInvalid,
                   "has " + quoted_name(key) + "; allowed are type, instructions and criteria"};
    }
  }
  if (auto read = read_criteria(criteria, question); !read) return read.error();
  return question;
}

void write_probabilities(const Question& question, const TypedAnswer& answer, JsonWriter& json) {
  json.key("probabilities").begin_object();
  for (std::size_t i = 0; i < question.options.size(); ++i) {
    json.text_key(question.options[i].name).value(answer.probabilities[i]);
  }
  json.end_object();
}

void write_answer(const Question& question, const TypedAnswer& answer, JsonWriter& json) {
  json.begin_object();
  switch (question.kind) {
    case QuestionKind::kPredicate:
      json.field("type", "noul").field("noul", answer.score);
      break;
    case QuestionKind::kChoice:
      json.field("type", "choice").field("choice", question.options[answer.best].name);
      json.field("confidence", answer.confidence);
      write_probabilities(question, answer, json);
      break;
    case QuestionKind::kScore:
      json.field("type", "score").field("score", answer.score).key("legend").begin_object();
      for (const AnswerOption& option : question.options) {
        json.text_key(option.name).raw(option.description.dump());
      }
      json.end_object().field("confidence", answer.confidence);
      write_probabilities(question, answer, json);
      break;
  }
  json.end_object();
}

}  // namespace

Result<std::vector<Question>> read_questions(const OrderedJson& given) {
  std::vector<Question> questions;
  QuestionMistakes mistakes;
  for (const auto& [id, one] : given.items()) {
    auto question = read_question(id, one);
    if (!question) mistakes.add("question " + quoted_name(id), question.error().message);
    questions.push_back(question ? std::move(*question) : Question());
  }
  mistakes.check(questions);
  if (!mistakes.empty()) return mistakes.error();
  return questions;
}

void write_diagnostics(const TypedAnswer& answer, JsonWriter& json) {
  json.begin_object().given_field("label_mass", answer.label_mass);
  json.given_field("argmax_is_label", answer.argmax_is_label).end_object();
}

void write_systemone(std::span<const Question> questions, std::span<const TypedAnswer> answers,
                     JsonWriter& json) {
  json.begin_object();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    write_answer(questions[i], answers[i], json.text_key(questions[i].id));
  }
  json.end_object();
}

void write_all_diagnostics(std::span<const Question> questions,
                           std::span<const TypedAnswer> answers, JsonWriter& json) {
  json.begin_object();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    write_diagnostics(answers[i], json.text_key(questions[i].id));
  }
  json.end_object();
}

}  // namespace lmtp::server
