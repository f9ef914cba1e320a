#include "answers.h"

#include <algorithm>
#include <cmath>

namespace lmtp::server {
namespace {

std::vector<double> softmax(std::span<const double> logprobs, double temperature) {
  std::vector<double> probabilities(logprobs.begin(), logprobs.end());
  const double highest = *std::ranges::max_element(probabilities);
  double sum = 0;
  for (double& value : probabilities) {
    value = std::isinf(highest) ? 1 : std::exp((value - highest) / temperature);
    sum += value;
  }
  for (double& value : probabilities) value /= sum;
  return probabilities;
}

// How much more probable the best option is than by chance.
double confidence_of_choice(double best, double num_options) {
  if (num_options == 1) return 1;
  return std::max(0.0, (best - 1 / num_options) / (1 - 1 / num_options));
}

// How far from the best level the others are expected, beside what that is of equal levels.
double confidence_of_score(std::span<const double> probabilities, std::size_t best) {
  const auto num_levels = static_cast<double>(probabilities.size());
  if (num_levels == 1) return 1;
  double distance = 0;
  double uniform = 0;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    const auto level = static_cast<double>(i);
    distance += probabilities[i] * std::abs(level - static_cast<double>(best));
    uniform += std::abs(level - (num_levels - 1) / 2) / num_levels;
  }
  return std::max(0.0, 1 - distance / uniform);
}

double expected_level(std::span<const double> probabilities) {
  double score = 0;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    score += static_cast<double>(i) * probabilities[i];
  }
  return score;
}

}  // namespace

TypedAnswer answer_of(const Question& question, std::span<const double> logprobs, bool by_labels,
                      double temperature) {
  TypedAnswer answer;
  answer.probabilities = softmax(logprobs, temperature);
  const auto best = std::ranges::max_element(answer.probabilities);
  answer.best = static_cast<std::size_t>(best - answer.probabilities.begin());
  switch (question.kind) {
    case QuestionKind::kPredicate:
      answer.score = answer.probabilities.front();
      answer.confidence = confidence_of_choice(*best, 2);
      break;
    case QuestionKind::kChoice:
      answer.confidence =
          confidence_of_choice(*best, static_cast<double>(answer.probabilities.size()));
      break;
    case QuestionKind::kScore:
      answer.score = expected_level(answer.probabilities);
      answer.confidence = confidence_of_score(answer.probabilities, answer.best);
      break;
  }
  if (by_labels) {
    double mass = 0;
    for (const double logprob : logprobs) mass += std::exp(logprob);
    answer.label_mass = std::min(mass, 1.0);
    // No other token has more than what the labels leave.
    if (std::exp(logprobs[answer.best]) > 1 - *answer.label_mass) answer.argmax_is_label = true;
  }
  return answer;
}

}  // namespace lmtp::server
