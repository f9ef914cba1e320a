// CandidateTrie: log probabilities of whole candidates after one prompt, by Scores of which each
// token that several candidates begin with is computed once.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/request/candidate_logprob.h"
#include "lmtp/request/event.h"
#include "lmtp/request/sampling_params.h"
#include "score_rows.h"

namespace lmtp::server {

inline constexpr std::size_t kMaxCandidates = 4096;
inline constexpr std::size_t kMaxCandidateTokens = std::size_t{1} << 16;  // of all together

// A SCORE of a path down the trie: Request::prompt is the shared prompt and prompt_tail.
struct ScoreRow {
  std::vector<TokenId> prompt_tail;
  std::vector<TokenId> scored;  // not empty
  // SamplingParams::logprob_token_ids: ascending, at most kMaxTopLogprobs. Null: none.
  std::shared_ptr<const std::vector<TokenId>> listed;
};

// "candidates: has 5000 of them; allowed are 1 to 4096".
Error wrong_number_of_candidates(std::size_t count);

// The nodes are what candidates begin with; the root is the shared prompt. An inner node, one that
// has children, is computed by exactly one row, which lists its children: so all rows together
// compute the prompt once (or its last token, where the prefix cache has the others) and each inner
// node once. Last tokens that nothing follows are not computed at all. A node of more than
// kMaxTopLogprobs + 1 children is the exception: it is computed once for each so many of them.
//
// Its user asks for rows by next_row() and submits each as a SCORE without top_logprobs; gives each
// of its events to read(), in their order; and tells of its end by end_row(), which may set rows
// free that begin with tokens of that one. When all have ended logprobs() has the answer. Rows that
// begin at the root are there from the start. Owner: one request. One thread at a time.
class CandidateTrie {
 public:
  // The error is one of the field "candidates" ("candidates[3]: ..."): there are none, or more than
  // the limits above, or one of them is empty or equal to another one.
  static Result<CandidateTrie> make(const std::vector<std::vector<TokenId>>& candidates);

  const std::vector<ScoreRow>& rows() const { return rows_; }

  // The row to be submitted next, each once. nullopt: none, or none until another one has ended.
  std::optional<std::size_t> next_row();
  // It, as a SCORE after that prompt.
  ScoreOfRow score_of(std::size_t row, std::span<const TokenId> prompt) const;
  // It was not taken by the model, and comes again. REQUIRES: next_row() gave it.
  void return_row(std::size_t row) { ready_.insert(row); }
  // REQUIRES: next_row() gave it.
  void end_row(std::size_t row);
  bool has_ended() const { return num_ended_ == rows_.size(); }

  // The row's next event. REQUIRES: it is one of a token.
  void read(std::size_t row, const TokenEvent& event);

  // In the candidates' order. The error: an event did not have what was asked for.
  Result<std::vector<CandidateLogprob>> logprobs() const;

 private:
  using NodeId = std::size_t;

  // In the order of a walk: a node, then all below its first child, and so on.
  struct Node {
    TokenId token = 0;
    NodeId parent = 0;
    NodeId end = 0;  // the one after the last below it
    std::size_t num_children = 0;
    std::size_t height = 0;  // 0: a leaf
    double logprob = 0.0;    // NaN: not read yet
  };
  struct End {
    NodeId node = 0;
    int num_tokens = 0;
  };
  // Where a row begins, and the row that computes what comes before.
  struct Branch {
    NodeId node = 0;
    std::optional<std::size_t> after;
  };
  // What a row reads: the children of these, one of them for each event.
  struct Reading {
    std::vector<NodeId> path;
    std::size_t num_read = 0;
    std::optional<std::size_t> after;
  };

  CandidateTrie() = default;
  void add(const std::vector<TokenId>& candidate, std::vector<NodeId>& path);
  std::vector<NodeId> children(NodeId node) const;
  std::vector<NodeId> path_from(NodeId node) const;
  std::vector<TokenId> tokens_to(NodeId node) const;
  void add_rows(const Branch& branch, std::vector<Branch>& open);

  std::vector<Node> nodes_;  // [0] is the root
  std::vector<End> ends_;    // [candidates]
  std::vector<ScoreRow> rows_;
  std::vector<Reading> readings_;  // [rows_.size()]
  std::set<std::size_t> ready_;
  std::size_t num_ended_ = 0;
};

}  // namespace lmtp::server
