#include "label_rows.h"

#include <cmath>
#include <utility>

namespace lmtp::server {

LabelRows::LabelRows(ItemPrompts prompts, const std::vector<TokenId>& labels, bool applies_softmax)
    : prompts_(std::move(prompts)),
      applies_softmax_(applies_softmax),
      listed_(std::make_shared<const std::vector<TokenId>>(labels)),
      scores_(prompts_.items.size(), std::nan("")) {
  for (std::size_t row = scores_.size(); row > 0; --row) left_.push_back(row - 1);
}

std::optional<ScoreOfRow> LabelRows::next() {
  if (left_.empty()) return std::nullopt;
  ScoreOfRow score{.row = left_.back()};
  left_.pop_back();
  const std::vector<TokenId>& item = prompts_.items[score.row];
  score.prompt = prompts_.item_first ? item : prompts_.query;
  const std::vector<TokenId>& second = prompts_.item_first ? prompts_.query : item;
  score.prompt.insert(score.prompt.end(), second.begin(), second.end());
  score.scored = {listed_->front()};
  score.listed = listed_;
  if (score.row > 0) {
    score.part_tokens = static_cast<int>(prompts_.item_first ? score.prompt.size() : item.size());
  }
  return score;
}

void LabelRows::read(std::size_t row, const TokenEvent& event) {
  const auto& listed = event.listed_logprobs;
  if (listed == nullptr || listed->size() != listed_->size()) return;
  double sum = 0;
  for (const TokenLogprob& label : *listed) sum += std::exp(label.logprob);
  scores_[row] = std::exp(static_cast<double>(listed->front().logprob));
  if (applies_softmax_ && sum > 0) scores_[row] /= sum;
}

std::size_t LabelRows::num_tokens() const {
  std::size_t num_tokens = prompts_.items.size() * prompts_.query.size();
  for (const auto& item : prompts_.items) num_tokens += item.size();
  return num_tokens;
}

}  // namespace lmtp::server
