#include "token_trie.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "fake_tokenizer.h"

namespace lmtp::aici {
namespace {

constexpr int kVocab = 700;  // of which the tokenizer has 650

std::uint32_t word_at(const std::string& bytes, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

// Walks the trie as a controller does: down a subtree, and up as many levels as a leaf says.
class Walk {
 public:
  explicit Walk(const std::string& trie) : trie_(trie) {}

  std::map<std::string, TokenId> tokens() {
    const std::size_t num_nodes = word_at(trie_, 8) / 8;
    EXPECT_EQ(subtree(0), num_nodes);
    std::map<std::string, TokenId> tokens;
    std::string path;
    for (std::size_t i = 1; i < num_nodes; ++i) {
      path += static_cast<char>(word_at(trie_, 28 + 8 * i) & 0xFF);
      const std::uint32_t token = word_at(trie_, 28 + 8 * i) >> 8;
      if (token != 0xFFFFFF) {
        EXPECT_TRUE(tokens.emplace(path, token).second) << path;
      }
      if (subtree(i) > 1) continue;
      const std::uint32_t num_parents = word_at(trie_, 28 + 8 * i + 4) & 0xFF;
      EXPECT_LE(num_parents, path.size());
      path.resize(path.size() - num_parents);
    }
    EXPECT_EQ(path, "");
    return tokens;
  }

 private:
  std::size_t subtree(std::size_t node) const { return word_at(trie_, 28 + 8 * node + 4) >> 8; }

  const std::string& trie_;
};

TEST(TokenTrie, HasTheBytesOfEachToken) {
  const testing::FakeTokenizer tokenizer(650);
  const std::string trie = make_token_trie(tokenizer, kVocab, tokenizer.eos_id());
  EXPECT_EQ(word_at(trie, 0), 0x558b6fd3U);
  EXPECT_EQ(word_at(trie, 4), 28U);
  EXPECT_EQ(word_at(trie, 12), 4U * kVocab);
  EXPECT_EQ(word_at(trie, 20), static_cast<std::uint32_t>(kVocab));
  EXPECT_EQ(word_at(trie, 24), 649U);
  const std::size_t offsets = 28 + word_at(trie, 8);
  const std::size_t data = offsets + word_at(trie, 12);
  EXPECT_EQ(trie.size(), data + word_at(trie, 16));
  std::map<std::string, TokenId> lowest;
  for (TokenId id = 0; id < kVocab; ++id) {
    const std::uint32_t place = word_at(trie, offsets + 4 * static_cast<std::size_t>(id));
    const std::string bytes = trie.substr(data + (place >> 8), place & 0xFF);
    EXPECT_EQ(bytes, tokenizer.is_special(id) ? "" : tokenizer.token_bytes(id)) << id;
    if (!bytes.empty()) lowest.emplace(bytes, id);
  }
  EXPECT_EQ(Walk(trie).tokens(), lowest);
}

TEST(TokenTrie, OfNothingIsARoot) {
  const testing::FakeTokenizer tokenizer(300);
  const std::string trie = make_token_trie(tokenizer, 0, -1);
  EXPECT_EQ(trie.size(), 28U + 8U);
  EXPECT_EQ(word_at(trie, 24), 0U);
}

}  // namespace
}  // namespace lmtp::aici
