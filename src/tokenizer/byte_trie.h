// ByteTrie: finds which of many keys are prefixes of a text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lmtp::tokenizer {

// Filled once, then only read: any thread.
class ByteTrie {
 public:
  static constexpr std::int32_t kNone = -1;

  ByteTrie() = default;
  // Of equal keys the last counts. REQUIRES: keys not empty, values >= 0.
  explicit ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> entries);

  // Calls take(length, value) for each key that is a prefix of `text`, shortest first.
  template <typename Take>
  void for_each_prefix(std::string_view text, Take take) const {
    if (nodes_.empty()) return;
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value != kNone) take(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    std::uint32_t first_edge = 0;
    std::uint16_t num_edges = 0;
    std::int32_t value = kNone;
  };
  struct Edge {
    std::uint32_t node;
    unsigned char byte;
  };

  // 0, the root, if there is none.
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;                   // those of a node are contiguous, sorted by byte
  std::array<std::uint32_t, 256> of_root_{};  // the root's children, by byte
};

}  // namespace lmtp::tokenizer
