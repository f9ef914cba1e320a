// The prompt of a question: docs/decisions.md has it word for word.
#pragma once

#include <span>
#include <string>

#include "question.h"

namespace lmtp::server {

// What stands after the state: the instructions, a line for each option, and what is to be
// answered, one of `labels`. As transformers' DECISION_PROMPT has it, from 5.23 on. REQUIRES: a
// label for each option.
std::string labelled_question(const Question& question, std::span<const std::string> labels);

// The same where the text of an option is to be answered.
std::string plain_question(const Question& question, std::span<const std::string> labels);
// That text. `labels`: a predicate's.
std::string option_text(const Question& question, std::size_t option,
                        std::span<const std::string> labels);

}  // namespace lmtp::server
