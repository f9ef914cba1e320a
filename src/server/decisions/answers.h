// From log probabilities to typed answers.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "question.h"

namespace lmtp::server {

struct TypedAnswer {
  std::vector<double> probabilities;  // of each option; they sum to 1
  std::size_t best = 0;               // the most probable option, of equal ones the first
  double score = 0;                   // of a score, the expected level; of a predicate P(true)
  double confidence = 0;              // [0, 1]; transformers' formulas, docs/decisions.md
  // What of the vocabulary's probability the labels have; nothing where whole options were read,
  // which have no such sum.
  std::optional<double> label_mass;
  std::optional<bool> argmax_is_label;  // nothing: not known
};

// `temperature` > 0 divides the log probabilities. REQUIRES: one for each option.
TypedAnswer answer_of(const Question& question, std::span<const double> logprobs, bool by_labels,
                      double temperature);

}  // namespace lmtp::server
