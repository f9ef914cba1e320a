#include "candidates.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "generation/candidate_trie.h"
#include "generation/encode_text.h"
#include "lmtp/request/error_text.h"

namespace lmtp::server {
namespace {

Result<std::vector<TokenId>> ids_of(const protocol::Candidate& candidate, const std::string& field,
                                    std::size_t num_prompt, const registry::ReadyModel& model) {
  std::vector<TokenId> ids;
  if (const auto* text = std::get_if<std::string>(&candidate)) {
    auto encoded = encode_text(model.tokenizer, field, *text, {.begins = false, .adds_bos = false});
    if (!encoded) return encoded;
    ids = std::move(*encoded);
  } else {
    ids = std::get<std::vector<TokenId>>(candidate);
  }
  const engine::ModelLimits& limits = model.limits;
  int most = limits.total_tokens_max();
  if (limits.max_input_tokens > 0) most = std::min(most, limits.max_input_tokens);
  if (num_prompt + ids.size() > static_cast<std::size_t>(most)) {
    return Error{ErrorCode::kTooLong, field + ": is, with the prompt, " +
                                          std::to_string(num_prompt + ids.size()) +
                                          " tokens, allowed are at most " + std::to_string(most)};
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < limits.vocab_size) continue;
    return Error{ErrorCode::kInvalid, field + "[" + std::to_string(i) +
                                          "]: " + beyond_vocabulary(ids[i], limits.vocab_size)};
  }
  return ids;
}

class CandidateRows final : public ScoreRows {
 public:
  CandidateRows(std::vector<TokenId> prompt, CandidateTrie trie)
      : prompt_(std::move(prompt)), trie_(std::move(trie)) {}

  std::optional<ScoreOfRow> next() override {
    const auto row = trie_.next_row();
    return row ? std::optional(trie_.score_of(*row, prompt_)) : std::nullopt;
  }
  void give_back(std::size_t row) override { trie_.return_row(row); }
  void read(std::size_t row, const TokenEvent& event) override { trie_.read(row, event); }
  void end(std::size_t row) override { trie_.end_row(row); }

  Result<std::vector<CandidateLogprob>> logprobs() const { return trie_.logprobs(); }

 private:
  const std::vector<TokenId> prompt_;
  CandidateTrie trie_;
};

}  // namespace

Result<std::shared_ptr<StreamRows>> candidate_rows(const protocol::ScoreMessage& message,
                                                   std::vector<TokenId> prompt,
                                                   const registry::ReadyModel& model) {
  if (prompt.empty()) {
    return Error{ErrorCode::kInvalid,
                 "prompt: is empty, at least one token is needed before candidates"};
  }
  if (message.candidates.size() > kMaxCandidates) {
    return wrong_number_of_candidates(message.candidates.size());
  }
  std::vector<std::vector<TokenId>> candidates;
  candidates.reserve(message.candidates.size());
  for (const protocol::Candidate& one : message.candidates) {
    const std::string field = "candidates[" + std::to_string(candidates.size()) + "]";
    auto ids = ids_of(one, field, prompt.size(), model);
    if (!ids) return ids.error();
    candidates.push_back(std::move(*ids));
  }
  auto trie = CandidateTrie::make(candidates);
  if (!trie) return trie.error();
  auto rows = std::make_shared<StreamRows>();
  rows->num_prompt = static_cast<int>(prompt.size());
  const auto scores = std::make_shared<CandidateRows>(std::move(prompt), std::move(*trie));
  rows->rows = scores;
  rows->answer = [scores]() -> Result<protocol::TokenEntry> {
    auto logprobs = scores->logprobs();
    if (!logprobs) return logprobs.error();
    protocol::TokenEntry entry;
    entry.candidates = std::move(*logprobs);
    return entry;
  };
  return rows;
}

}  // namespace lmtp::server
