#include "candidate_trie.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace lmtp::server {
namespace {

constexpr std::size_t kNoNode = 0;  // the root is no child

Error wrong(const std::string& what) { return {ErrorCode::kInvalid, "candidates" + what}; }

Result<void> check(const std::vector<std::vector<TokenId>>& candidates) {
  if (candidates.empty() || candidates.size() > kMaxCandidates) {
    return wrong_number_of_candidates(candidates.size());
  }
  std::size_t num_tokens = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    num_tokens += candidates[i].size();
    if (!candidates[i].empty()) continue;
    return wrong("[" + std::to_string(i) + "]: is empty; at least one token is needed");
  }
  if (num_tokens <= kMaxCandidateTokens) return {};
  return wrong(": have " + std::to_string(num_tokens) + " tokens together; allowed are at most " +
               std::to_string(kMaxCandidateTokens));
}

}  // namespace

Error wrong_number_of_candidates(std::size_t count) {
  return wrong(": has " + std::to_string(count) + " of them; allowed are 1 to " +
               std::to_string(kMaxCandidates));
}

Result<CandidateTrie> CandidateTrie::make(const std::vector<std::vector<TokenId>>& candidates) {
  if (const Result<void> ok = check(candidates); !ok) return ok.error();
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0);
  const auto by_tokens = [&](std::size_t i) -> const auto& { return candidates[i]; };
  std::ranges::stable_sort(order, {}, by_tokens);
  const auto same = std::ranges::adjacent_find(order, {}, by_tokens);
  if (same != order.end()) {
    return wrong("[" + std::to_string(*(same + 1)) + "]: has the same tokens as candidates[" +
                 std::to_string(*same) + "]; allowed are candidates that differ");
  }
  CandidateTrie trie;
  trie.nodes_.emplace_back();
  trie.ends_.resize(candidates.size());
  std::vector<NodeId> path = {0};
  for (const std::size_t i : order) {
    trie.add(candidates[i], path);
    trie.ends_[i] = {path.back(), static_cast<int>(candidates[i].size())};
  }
  std::vector<Node>& nodes = trie.nodes_;
  for (NodeId at = nodes.size(); at-- > 0;) {
    nodes[at].end = std::max(nodes[at].end, at + 1);
    if (at == 0) break;
    Node& parent = nodes[nodes[at].parent];
    parent.end = std::max(parent.end, nodes[at].end);
    parent.height = std::max(parent.height, nodes[at].height + 1);
  }
  std::vector<Branch> open(1);
  while (!open.empty()) {
    const Branch branch = open.back();
    open.pop_back();
    trie.add_rows(branch, open);
  }
  return trie;
}

// path: the nodes of the candidate before it in their order, then its own.
void CandidateTrie::add(const std::vector<TokenId>& candidate, std::vector<NodeId>& path) {
  std::size_t shared = 0;
  while (shared < candidate.size() && shared + 1 < path.size() &&
         nodes_[path[shared + 1]].token == candidate[shared]) {
    ++shared;
  }
  path.resize(shared + 1);
  for (std::size_t i = shared; i < candidate.size(); ++i) {
    ++nodes_[path.back()].num_children;
    nodes_.push_back({.token = candidate[i],
                      .parent = path.back(),
                      .logprob = std::numeric_limits<double>::quiet_NaN()});
    path.push_back(nodes_.size() - 1);
  }
}

std::vector<CandidateTrie::NodeId> CandidateTrie::children(NodeId node) const {
  std::vector<NodeId> found;
  for (NodeId at = node + 1; at < nodes_[node].end; at = nodes_[at].end) found.push_back(at);
  return found;
}

// The inner nodes of a row: down to where it is deepest, so that few rows wait for others. A row
// lists the same tokens at all of its positions: it ends, after the last node with several
// children, where these would be too many.
std::vector<CandidateTrie::NodeId> CandidateTrie::path_from(NodeId node) const {
  std::vector<NodeId> path;
  std::size_t num_listed = 0;
  std::size_t num_kept = 0;
  while (nodes_[node].num_children > 0) {
    num_listed += nodes_[node].num_children - 1;
    if (!path.empty() && num_listed * (path.size() + 1) > kMaxTopLogprobs) {
      path.resize(num_kept);
      break;
    }
    path.push_back(node);
    if (nodes_[node].num_children > 1 || num_listed == 0) num_kept = path.size();
    const auto height = [this](NodeId at) { return nodes_[at].height; };
    node = std::ranges::max(children(node), {}, height);
  }
  return path;
}

std::vector<TokenId> CandidateTrie::tokens_to(NodeId node) const {
  std::vector<TokenId> tokens;
  for (; node != 0; node = nodes_[node].parent) tokens.push_back(nodes_[node].token);
  std::ranges::reverse(tokens);
  return tokens;
}

// One, or several where a node has too many children.
void CandidateTrie::add_rows(const Branch& branch, std::vector<Branch>& open) {
  constexpr std::size_t kChildrenMax = std::size_t{kMaxTopLogprobs} + 1;
  const std::vector<NodeId> path = path_from(branch.node);
  const std::size_t first_row = rows_.size();
  ScoreRow row{.prompt_tail = tokens_to(branch.node), .scored = {}, .listed = nullptr};
  std::vector<TokenId> listed;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const NodeId next = i + 1 < path.size() ? path[i + 1] : kNoNode;
    if (next != kNoNode) row.scored.push_back(nodes_[next].token);
    for (const NodeId child : children(path[i])) {
      if (child == next) continue;
      if (next != kNoNode) listed.push_back(nodes_[child].token);
      if (nodes_[child].num_children == 0) continue;
      open.push_back({child, path[i] == 0 ? std::nullopt : std::optional(first_row)});
    }
  }
  const std::vector<NodeId> last = children(path.back());
  for (std::size_t from = 0; from < last.size(); from += kChildrenMax) {
    const std::size_t to = std::min(from + kChildrenMax, last.size());
    ScoreRow part = row;
    part.scored.push_back(nodes_[last[from]].token);
    std::vector<TokenId> of_part = listed;
    for (std::size_t i = from + 1; i < to; ++i) of_part.push_back(nodes_[last[i]].token);
    std::ranges::sort(of_part);
    of_part.erase(std::unique(of_part.begin(), of_part.end()), of_part.end());
    if (!of_part.empty()) {
      part.listed = std::make_shared<const std::vector<TokenId>>(std::move(of_part));
    }
    if (!branch.after) ready_.insert(rows_.size());
    rows_.push_back(std::move(part));
    readings_.push_back({path, 0, branch.after});
  }
}

std::optional<std::size_t> CandidateTrie::next_row() {
  if (ready_.empty()) return std::nullopt;
  return ready_.extract(ready_.begin()).value();
}

ScoreOfRow CandidateTrie::score_of(std::size_t row, std::span<const TokenId> prompt) const {
  const ScoreRow& of = rows_[row];
  ScoreOfRow score{.row = row, .prompt = {prompt.begin(), prompt.end()}};
  score.prompt.insert(score.prompt.end(), of.prompt_tail.begin(), of.prompt_tail.end());
  score.scored = of.scored;
  score.listed = of.listed;
  if (row > 0) score.part_tokens = 0;
  return score;
}

void CandidateTrie::end_row(std::size_t row) {
  ++num_ended_;
  for (std::size_t i = row + 1; i < rows_.size(); ++i) {
    if (readings_[i].after == row) ready_.insert(i);
  }
}

void CandidateTrie::read(std::size_t row, const TokenEvent& event) {
  Reading& reading = readings_[row];
  if (reading.num_read == reading.path.size()) return;
  for (const NodeId child : children(reading.path[reading.num_read++])) {
    Node& node = nodes_[child];
    if (node.token == event.token) {
      node.logprob = event.logprob;
    } else if (event.listed_logprobs != nullptr) {
      const auto& listed = *event.listed_logprobs;
      const auto found = std::ranges::lower_bound(listed, node.token, {}, &TokenLogprob::token);
      if (found != listed.end() && found->token == node.token) node.logprob = found->logprob;
    }
  }
}

Result<std::vector<CandidateLogprob>> CandidateTrie::logprobs() const {
  std::vector<double> sums(nodes_.size());
  for (NodeId at = 1; at < nodes_.size(); ++at) {
    if (std::isnan(nodes_[at].logprob)) {
      return Error{ErrorCode::kInternal, "internal: a log probability of a candidate is missing"};
    }
    sums[at] = sums[nodes_[at].parent] + nodes_[at].logprob;
  }
  std::vector<CandidateLogprob> result;
  result.reserve(ends_.size());
  for (const End& end : ends_) result.push_back({sums[end.node], end.num_tokens});
  return result;
}

}  // namespace lmtp::server
