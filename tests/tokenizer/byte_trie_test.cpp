#include "byte_trie.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lmtp::tokenizer {
namespace {

using Found = std::vector<std::pair<std::size_t, std::int32_t>>;

Found prefixes(const ByteTrie& trie, std::string_view text) {
  Found found;
  trie.for_each_prefix(
      text, [&](std::size_t length, std::int32_t value) { found.emplace_back(length, value); });
  return found;
}

TEST(ByteTrie, FindsAllPrefixesShortestFirst) {
  const ByteTrie trie({{"abc", 3}, {"a", 1}, {"b", 4}, {"ab", 2}, {"\xFF\x01", 5}});
  EXPECT_EQ(prefixes(trie, "abcd"), (Found{{1, 1}, {2, 2}, {3, 3}}));
  EXPECT_EQ(prefixes(trie, "ab"), (Found{{1, 1}, {2, 2}}));
  EXPECT_EQ(prefixes(trie, "bc"), (Found{{1, 4}}));
  EXPECT_EQ(prefixes(trie, "c"), Found{});
  EXPECT_EQ(prefixes(trie, ""), Found{});
  EXPECT_EQ(prefixes(trie, "\xFF\x01\x02"), (Found{{2, 5}}));
}

TEST(ByteTrie, TheLastOfEqualKeysCounts) {
  const ByteTrie trie({{"a", 1}, {"b", 2}, {"a", 3}});
  EXPECT_EQ(prefixes(trie, "a"), (Found{{1, 3}}));
}

TEST(ByteTrie, WithoutKeysFindsNothing) {
  EXPECT_EQ(prefixes(ByteTrie(), "a"), Found{});
  EXPECT_EQ(prefixes(ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>>()), "a"),
            Found{});
}

}  // namespace
}  // namespace lmtp::tokenizer
