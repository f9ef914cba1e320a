#include "lmtp/base/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lmtp {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(NumberText, ReadsBackAsTheSame) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(0.1F), "0.1");
  EXPECT_EQ(number_text(1.0), "1");
  EXPECT_EQ(number_text(-7), "-7");
  EXPECT_EQ(number_text(std::uint64_t{1} << 63), "9223372036854775808");
}

TEST(Sizes, HaveTheUnitsOfTheirKind) {
  EXPECT_EQ(gib_text(0), "0.0 GiB");
  EXPECT_EQ(gib_text(kGiB / 20 - 1), "0.0 GiB");
  EXPECT_EQ(gib_text(kGiB * 3 / 2), "1.5 GiB");
  EXPECT_EQ(size_text(512), "512 bytes");
  EXPECT_EQ(size_text(4 * kGiB), "4 GiB");
  EXPECT_EQ(size_text(1600), "1.56 KiB");
  EXPECT_EQ(size_text(2048 * kGiB * 1024), "2048 TiB");
  EXPECT_EQ(file_size_text(999), "999 bytes");
  EXPECT_EQ(file_size_text(1000), "1.0 kB");
  EXPECT_EQ(file_size_text(548'105'171), "548 MB");
  EXPECT_EQ(file_size_text(2'200'000'000), "2.2 GB");
  EXPECT_EQ(file_size_text(INT64_MAX), "9.2 EB");
}

TEST(Utf8Prefix, CutsNoCharacterInTwo) {
  EXPECT_EQ(utf8_prefix("abc", 3), "abc");
  EXPECT_EQ(utf8_prefix("abc", 2), "ab");
  EXPECT_EQ(utf8_prefix("a\xE4\xBD\xA0", 4), "a\xE4\xBD\xA0");
  EXPECT_EQ(utf8_prefix("a\xE4\xBD\xA0", 3), "a");
  EXPECT_EQ(utf8_prefix("\xE4\xBD\xA0", 2), "");
  EXPECT_EQ(shortened("a\xE4\xBD\xA0", 3), "a...");
  EXPECT_EQ(shortened("abc", 3), "abc");
}

TEST(LastComponent, OfPathsAndNames) {
  EXPECT_EQ(last_component("org/model"), "model");
  EXPECT_EQ(last_component("/a/b//"), "b");
  EXPECT_EQ(last_component("demo"), "demo");
  EXPECT_EQ(last_component("/"), "");
  EXPECT_EQ(last_component(""), "");
}

TEST(Text, QuotedNamesAreShort) {
  EXPECT_EQ(quoted_name("org/model"), "'org/model'");
  EXPECT_EQ(quoted_name(std::string(128, 'x')), "'" + std::string(128, 'x') + "'");
  EXPECT_EQ(quoted_name(std::string(127, 'x') + "\xC3\xA9"), "'" + std::string(127, 'x') + "...'");
}

}  // namespace
}  // namespace lmtp
