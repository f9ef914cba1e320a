#include "token_trie.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace lmtp::aici {

namespace {

constexpr std::uint32_t kMagic = 0x558b6fd3;
constexpr std::uint32_t kNoToken = 0xFFFFFF;
constexpr std::uint32_t kRootByte = 0xFF;
constexpr std::size_t kTokenBytesMax = 254;

struct Header {
  std::uint32_t magic = kMagic;
  std::uint32_t header_bytes = 0;
  std::uint32_t node_bytes = 0;
  std::uint32_t offset_bytes = 0;
  std::uint32_t data_bytes = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t eos_id = 0;
};

struct Node {
  std::uint32_t token_and_byte;       // token << 8 | byte
  std::uint32_t subtree_and_parents;  // nodes of the subtree << 8 | levels that end with the node
};

struct Word {
  std::string_view bytes;
  std::uint32_t token;
};

// Of words that are sorted by bytes.
class TrieWriter {
 public:
  explicit TrieWriter(std::vector<Node>& nodes) : nodes_(nodes) {}

  // words: all begin with the same `depth` bytes, of which the last is `byte`.
  // NOLINTNEXTLINE(misc-no-recursion): kTokenBytesMax deep
  void write(std::span<const Word> words, std::size_t depth, std::uint32_t byte,
             std::uint32_t num_parents) {
    const std::size_t at = nodes_.size();
    std::uint32_t token = kNoToken;
    if (!words.empty() && words.front().bytes.size() == depth) token = words.front().token;
    while (!words.empty() && words.front().bytes.size() == depth) words = words.subspan(1);
    nodes_.push_back({token << 8 | byte, num_parents});
    while (!words.empty()) {
      const char next = words.front().bytes[depth];
      const auto end =
          std::ranges::find_if(words, [&](const Word& word) { return word.bytes[depth] != next; });
      const auto num = static_cast<std::size_t>(end - words.begin());
      const bool is_last = num == words.size();
      write(words.first(num), depth + 1, static_cast<unsigned char>(next),
            is_last ? num_parents + 1 : 1);
      words = words.subspan(num);
    }
    nodes_[at].subtree_and_parents |= static_cast<std::uint32_t>(nodes_.size() - at) << 8;
  }

 private:
  std::vector<Node>& nodes_;
};

template <typename T>
void append_bytes(std::span<const T> values, std::string& out) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

}  // namespace

std::string make_token_trie(const tokenizer::Tokenizer& tokenizer, int vocab_size, TokenId eos_id) {
  std::vector<Word> words;
  std::vector<std::uint32_t> offsets;
  std::string data;
  for (TokenId id = 0; id < vocab_size; ++id) {
    std::string_view bytes;
    if (!tokenizer.is_special(id)) bytes = tokenizer.token_bytes(id);
    if (bytes.size() > kTokenBytesMax) bytes = {};
    if (!bytes.empty()) words.push_back({bytes, static_cast<std::uint32_t>(id)});
    offsets.push_back(static_cast<std::uint32_t>(data.size()) << 8 |
                      static_cast<std::uint32_t>(bytes.size()));
    data += bytes;
  }
  std::ranges::stable_sort(words, {}, &Word::bytes);
  std::vector<Node> nodes;
  TrieWriter(nodes).write(words, 0, kRootByte, 0);
  Header header;
  header.header_bytes = sizeof(Header);
  header.node_bytes = static_cast<std::uint32_t>(nodes.size() * sizeof(Node));
  header.offset_bytes = static_cast<std::uint32_t>(offsets.size() * sizeof(std::uint32_t));
  header.data_bytes = static_cast<std::uint32_t>(data.size());
  header.vocab_size = static_cast<std::uint32_t>(vocab_size);
  header.eos_id = static_cast<std::uint32_t>(std::max<TokenId>(eos_id, 0));
  std::string trie;
  append_bytes(std::span<const Header>(&header, 1), trie);
  append_bytes(std::span<const Node>(nodes), trie);
  append_bytes(std::span<const std::uint32_t>(offsets), trie);
  return trie + data;
}

}  // namespace lmtp::aici
