#include "byte_trie.h"

#include <algorithm>

namespace lmtp::tokenizer {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Breadth first: a node stands for a range of the sorted entries, which its edges divide.
  struct Span {
    std::size_t begin, end, depth;
  };
  std::vector<Span> spans = {{0, entries.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t n = 0; n < spans.size(); ++n) {
    const Span span = spans[n];
    std::size_t i = span.begin;
    for (; i < span.end && entries[i].first.size() == span.depth; ++i) {
      nodes_[n].value = entries[i].second;
    }
    nodes_[n].first_edge = static_cast<std::uint32_t>(edges_.size());
    while (i < span.end) {
      const char byte = entries[i].first[span.depth];
      std::size_t end = i;
      while (end < span.end && entries[end].first[span.depth] == byte) ++end;
      edges_.push_back(
          {static_cast<std::uint32_t>(nodes_.size()), static_cast<unsigned char>(byte)});
      ++nodes_[n].num_edges;
      nodes_.emplace_back();
      spans.push_back({i, end, span.depth + 1});
      i = end;
    }
  }
  for (std::size_t e = 0; e < nodes_[0].num_edges; ++e) of_root_[edges_[e].byte] = edges_[e].node;
}

std::uint32_t ByteTrie::child(std::uint32_t node, unsigned char byte) const {
  if (node == 0) return of_root_[byte];
  const auto begin = edges_.begin() + nodes_[node].first_edge;
  const auto end = begin + nodes_[node].num_edges;
  const auto edge = std::lower_bound(
      begin, end, byte, [](const Edge& e, unsigned char value) { return e.byte < value; });
  return edge != end && edge->byte == byte ? edge->node : 0;
}

}  // namespace lmtp::tokenizer
