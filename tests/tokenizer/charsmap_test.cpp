#include "charsmap.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lmtp::tokenizer {
namespace {

constexpr std::size_t kBlock = 256;

std::string little_endian(std::uint32_t number) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(number >> 8 * i & 0xFF));
  return bytes;
}

std::string with_size(std::uint32_t trie_bytes, const std::string& rest) {
  return little_endian(trie_bytes) + rest;
}

// A trie in which each state has a block of units for itself: large, but simple.
std::string charsmap_of(const std::map<std::string, std::string>& rules) {
  std::map<std::string, std::size_t> states;  // by what led there: where its block begins
  const auto block_of = [&states](const std::string& prefix) {
    return states.try_emplace(prefix, (states.size() + 1) * kBlock).first->second;
  };
  std::vector<std::uint32_t> units(kBlock);
  const auto link = [](std::size_t from, std::size_t to) {
    return static_cast<std::uint32_t>(from ^ to) << 10;
  };
  units[0] = link(0, block_of(""));
  std::string replacements = "!";  // so that no value is 0
  replacements.push_back('\0');
  for (const auto& [key, replacement] : rules) {
    for (std::size_t i = 0; i < key.size(); ++i) {
      const auto byte = static_cast<unsigned char>(key[i]);
      const std::size_t at = block_of(key.substr(0, i)) ^ byte;
      const std::size_t next = block_of(key.substr(0, i + 1));
      units.resize((states.size() + 1) * kBlock);
      units[at] |= link(at, next) | byte | (i + 1 == key.size() ? 0x100U : 0U);
    }
    units[block_of(key)] = 0x80000000U | static_cast<std::uint32_t>(replacements.size());
    replacements += replacement;
    replacements.push_back('\0');
  }
  std::string bytes = little_endian(static_cast<std::uint32_t>(units.size() * 4));
  for (const std::uint32_t unit : units) bytes += little_endian(unit);
  return bytes + replacements;
}

std::string error_of(const std::string& bytes) {
  const auto map = Charsmap::parse(bytes);
  return map.ok() ? "" : map.error().message;
}

std::string applied(const std::string& bytes, std::string_view text) {
  const auto map = Charsmap::parse(bytes);
  if (!map.ok()) return map.error().message;
  std::string out;
  map->apply(text, out);
  return out;
}

TEST(Charsmap, TakesClustersOfUpToFiveBytesFirst) {
  const std::string map = charsmap_of({{"a", "X"},
                                       {"ab", "no"},
                                       {"e\u0301", "é"},
                                       {"\r\n", "\n"},
                                       {"ﬁ", "fi"},
                                       {"\u200b", ""},
                                       {"\u0302", "^"}});
  EXPECT_EQ(applied(map, ""), "");
  EXPECT_EQ(applied(map, "abﬁ!\u200b\n"), "Xbfi!\n");
  EXPECT_EQ(applied(map, "e\u0301 e \r\n\r"), "é e \n\r");
  // Where the cluster's front is a key, its marks are gone; in a larger one they stay.
  EXPECT_EQ(applied(map, "a\u0302b"), "Xb");
  EXPECT_EQ(applied(map, "a\u0302\u0302"), "X");
  EXPECT_EQ(applied(map, "a\u0302\u0302\u0302"), "X^^^");
  EXPECT_EQ(applied(map, "e\u0301\u0302\u0302"), "e\u0301^^");
  EXPECT_EQ(applied(map, std::string_view("a\0a", 3)), std::string_view("X\0X", 3));
}

TEST(Charsmap, KnowsClustersOfFlagsPictographsAndConjuncts) {
  const std::string map = charsmap_of({{"©", "c"}, {"ﾟ", "o"}, {"™", "tm"}, {"\u0958", "k"}});
  EXPECT_EQ(applied(map, "©\u0301👍"), "c👍");
  EXPECT_EQ(applied(map, "©\u0301\u200d©"), "c\u0301\u200dc");
  EXPECT_EQ(applied(map, "🇺ﾟ\u0301"), "🇺o\u0301");
  EXPECT_EQ(applied(map, "\u070f™\u0301"), "\u070ftm\u0301");
  EXPECT_EQ(applied(map, "™\u0301"), "tm");
  EXPECT_EQ(applied(map, "क\u094d\u200d\u0958\u0301"), "क\u094d\u200dk\u0301");
  EXPECT_EQ(applied(map, "क\u200c\u094d\u0958\u0301"), "क\u200c\u094dk");
}

TEST(Charsmap, RefusesWhatIsNoCharsmap) {
  const std::string whole = charsmap_of({{"a", "X"}});
  const std::size_t trie_end = whole.size() - 4;  // "!", "X" and their ends
  for (std::size_t size = 0; size < whole.size(); size += size < 64 ? 1 : 7) {
    EXPECT_EQ(error_of(whole.substr(0, size)), size < trie_end ? "the charsmap is cut off" : "");
  }
  EXPECT_EQ(error_of(with_size(0, "abcd")), "the charsmap has an empty trie");
  EXPECT_EQ(error_of(with_size(3, "abcd")), "the charsmap has an empty trie");
  for (const std::uint32_t size : {8U, 0x7FFFFFFCU, 0xFFFFFFFFU}) {
    EXPECT_EQ(error_of(with_size(size, "abcdxyz")), "the charsmap is cut off");
  }
  EXPECT_EQ(error_of(with_size(4, "abcd\xFF")), "the charsmap's replacements are not UTF-8");
  EXPECT_EQ(error_of(charsmap_of({{"a", std::string(257, 'b')}})),
            "a replacement of the charsmap has 257 bytes; allowed are 256");
  EXPECT_EQ(error_of(charsmap_of({{"a", std::string(256, 'b')}})), "");
}

// Whatever the links and values are: nothing outside is read, nothing is endless, and what comes
// out is text.
TEST(Charsmap, BrokenLinksAreNoKeys) {
  const std::string whole = charsmap_of({{"a", "X"}, {"é", "e"}, {"日本", "ab"}, {"\u0301", "é"}});
  const std::string text = "aé日本\u0301 aa日e\u0301\r\n👍🏽";
  const std::size_t num_units = (whole.size() - 16) / 4;
  std::mt19937 random(5);
  std::vector<std::size_t> used;  // units that are not 0
  for (std::size_t i = 1; i <= num_units; ++i) {
    if (whole.substr(4 * i, 4) != little_endian(0)) used.push_back(i);
  }
  ASSERT_GT(used.size(), 10U);
  std::size_t num_changed = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = whole;
    for (int change = 0; change < 2; ++change) {
      const std::size_t at = 4 * used[random() % used.size()] + random() % 4;
      bytes[at] = static_cast<char>(random());
    }
    const auto map = Charsmap::parse(bytes);
    ASSERT_TRUE(map.ok());
    std::string out;
    map->apply(text, out);
    EXPECT_TRUE(simdjson::validate_utf8(out.data(), out.size()));
    if (out != applied(whole, text)) ++num_changed;
  }
  EXPECT_GT(num_changed, 1000U);
  // Every unit leads to itself and is a key's end; values lie far outside.
  std::string circle = little_endian(4 * kBlock);
  for (std::uint32_t i = 0; i < kBlock; ++i) circle += little_endian(i | 0x100U);
  EXPECT_EQ(applied(circle, text), text);
}

}  // namespace
}  // namespace lmtp::tokenizer
