#include "layout.h"

#include <algorithm>
#include <utility>

namespace lmtp::server {
namespace {

void add_line(std::string line, std::string& lines) {
  if (!line.empty()) lines += std::move(line) + "\n";
}

bool are_letters(std::span<const std::string> labels) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i].size() != 1 || labels[i][0] != static_cast<char>('A' + i)) return false;
  }
  return labels.size() <= 26;
}

std::string_view noun_of(const Question& question) {
  return question.kind == QuestionKind::kChoice ? "option" : "level";
}

std::string described(std::string name, const std::string& description) {
  return description.empty() ? std::move(name) : std::move(name) + ": " + description;
}

}  // namespace

std::string labelled_question(const Question& question, std::span<const std::string> labels) {
  std::string text;
  add_line(content_text(question.instructions), text);
  const bool is_predicate = question.kind == QuestionKind::kPredicate;
  const bool says_yes = is_predicate && labels[0] == "Yes" && labels[1] == "No";
  for (std::size_t i = 0; i < question.options.size(); ++i) {
    const AnswerOption& option = question.options[i];
    std::string description = content_text(option.description);
    if (is_predicate) {
      if (description.empty() && !says_yes) description = option.name;
      if (!description.empty()) add_line(labels[i] + ": " + description, text);
    } else {
      const bool is_choice = question.kind == QuestionKind::kChoice;
      add_line(labels[i] + ". " + (is_choice ? described(option.name, description) : description),
               text);
    }
  }
  if (text.empty()) text = "\n";
  if (is_predicate) return text + "Answer " + labels[0] + " or " + labels[1] + " only.";
  return text + "Answer with the " + (are_letters(labels) ? "letter" : "label") + " of the " +
         std::string(noun_of(question)) + " that fits best (" + labels.front() + " to " +
         labels.back() + ") only.";
}

std::string plain_question(const Question& question, std::span<const std::string> labels) {
  if (question.kind == QuestionKind::kPredicate) return labelled_question(question, labels);
  std::string text;
  add_line(content_text(question.instructions), text);
  for (std::size_t i = 0; i < question.options.size(); ++i) {
    const std::string name = option_text(question, i, labels);
    const bool is_choice = question.kind == QuestionKind::kChoice;
    add_line(
        "- " + (is_choice ? described(name, content_text(question.options[i].description)) : name),
        text);
  }
  return text + "Answer with the text of the " + std::string(noun_of(question)) +
         " that fits best only.";
}

std::string option_text(const Question& question, std::size_t option,
                        std::span<const std::string> labels) {
  const AnswerOption& of = question.options[option];
  switch (question.kind) {
    case QuestionKind::kPredicate:
      return labels[option];
    case QuestionKind::kChoice:
      return of.name;
    case QuestionKind::kScore:
      break;
  }
  return content_text(of.description);
}

}  // namespace lmtp::server
