// The probability of labels after a prompt and each of its items, as one request asks for them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "generation.h"
#include "lmtp/base/ids.h"
#include "score_rows.h"

namespace lmtp::server {

// The items as token ids, before the query or after it.
struct ItemPrompts {
  std::vector<TokenId> query;
  Prompts items;
  bool item_first = false;
};

class LabelRows final : public ScoreRows {
 public:
  // labels: each once; the first one's probability is the score, among all labels if
  // `applies_softmax`.
  LabelRows(ItemPrompts prompts, const std::vector<TokenId>& labels, bool applies_softmax);

  std::optional<ScoreOfRow> next() override;
  void give_back(std::size_t row) override { left_.push_back(row); }
  // Where a worker does not say what was asked for it stays no number.
  void read(std::size_t row, const TokenEvent& event) override;
  void end(std::size_t /*row*/) override {}

  // NaN before an item's end.
  const std::vector<double>& scores() const { return scores_; }
  std::size_t num_tokens() const;

 private:
  const ItemPrompts prompts_;
  const bool applies_softmax_;
  const std::shared_ptr<const std::vector<TokenId>> listed_;
  std::vector<double> scores_;
  std::vector<std::size_t> left_;  // the next one is the last
};

}  // namespace lmtp::server
