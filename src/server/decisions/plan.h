// What is scored to answer a request's questions, and how the answers are read out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "answers.h"
#include "generation/candidate_trie.h"
#include "generation/score_rows.h"
#include "lmtp/base/result.h"
#include "lmtp/registry/models.h"
#include "prompts.h"
#include "question.h"

namespace lmtp::server {

// Owner: one request; made where its prompts are, then used on its strand.
class DecisionPlan final : public ScoreRows {
 public:
  // The error is the client's, and names the question. Computes nothing.
  static Result<std::shared_ptr<DecisionPlan>> make(const registry::ReadyModel& model,
                                                    const DecisionRequest& request);

  std::optional<ScoreOfRow> next() override;
  void give_back(std::size_t row) override;
  void read(std::size_t row, const TokenEvent& event) override;
  void end(std::size_t row) override;

  // One for each question, in the request's order. REQUIRES: all rows have ended.
  Result<std::vector<TypedAnswer>> answers(const std::vector<Question>& questions) const;

  std::int64_t num_prompt_tokens() const { return num_prompt_tokens_; }  // of all questions
  std::int64_t num_cached_tokens() const { return num_cached_tokens_; }  // of these

 private:
  struct Asked {
    std::vector<TokenId> prompt = {};  // but for what it begins with as the first question's does
    std::size_t num_shared = 0;        // of these tokens
    std::unique_ptr<CandidateTrie> candidates = {};  // the options, or their labels
    bool by_labels = true;
    bool is_reversed = false;  // a predicate whose false comes first
    std::vector<TokenId> label_ids = {};
    std::optional<TokenId> best_token = {};  // where it was asked for
  };
  struct Row {
    std::size_t question = 0;
    std::size_t row = 0;  // of its candidates
    bool is_read = false;
  };

  explicit DecisionPlan(const DecisionRequest& request,
                        std::shared_ptr<const text::DecisionConfig> config)
      : config_(std::move(config)),
        is_mean_(request.scoring == Scoring::kOptionMean),
        diagnoses_(request.diagnoses) {}

  Result<void> add(Asked asked);

  friend class DecisionPlanner;

  const std::shared_ptr<const text::DecisionConfig> config_;
  const bool is_mean_;
  const bool diagnoses_;
  std::vector<Asked> asked_;
  std::vector<TokenId> first_prompt_;
  std::set<std::size_t> ready_;     // questions that may have a row to give
  std::vector<Row> rows_;           // that have been given
  std::size_t num_own_tokens_ = 0;  // of all `prompt`s
  std::int64_t num_prompt_tokens_ = 0;
  std::int64_t num_cached_tokens_ = 0;
};

}  // namespace lmtp::server
