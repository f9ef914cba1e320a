// System One's form of questions and answers.
#pragma once

#include <span>
#include <vector>

#include "answers.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/base/result.h"
#include "question.h"

namespace lmtp::server {

// {"name": {"type": "noul", "instructions": ..., "criteria": ...}, ...}. The error has a line for
// each question that is wrong. REQUIRES: an object.
Result<std::vector<Question>> read_questions(const OrderedJson& questions);

// {"name": {"type": "noul", "noul": 0.93}, ...}. REQUIRES: an answer to each question.
void write_systemone(std::span<const Question> questions, std::span<const TypedAnswer> answers,
                     JsonWriter& json);
// {"label_mass": 0.98, "argmax_is_label": true}, as far as they are known.
void write_diagnostics(const TypedAnswer& answer, JsonWriter& json);
// {"name": {"label_mass": 0.98}, ...}.
void write_all_diagnostics(std::span<const Question> questions,
                           std::span<const TypedAnswer> answers, JsonWriter& json);

}  // namespace lmtp::server
