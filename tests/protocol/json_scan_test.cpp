// Spans of values in JSON text, whole or broken.
#include "json_scan.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

Fields fields_of(std::string_view text) {
  Fields fields;
  ObjectScanner scanner(text);
  while (scanner.next()) {
    const std::string key(scanner.key());
    fields.emplace_back(key, scanner.skip_value());
  }
  return fields;
}

TEST(JsonScan, FindsFieldsOfEveryKind) {
  EXPECT_EQ(
      fields_of(R"( { "a" : 1 , "b":"x,}\"]", "c": {"d": [1, {"e": "}"}]}, "f":[], "g": null} )"),
      (Fields{{"a", "1"},
              {"b", R"("x,}\"]")"},
              {"c", R"({"d": [1, {"e": "}"}]})"},
              {"f", "[]"},
              {"g", "null"}}));
  EXPECT_EQ(fields_of("{}"), Fields{});
  EXPECT_EQ(fields_of("[1]"), Fields{});
  EXPECT_EQ(fields_of(""), Fields{});
}

TEST(JsonScan, StopsWhereTheTextIsBroken) {
  EXPECT_EQ(fields_of(R"({"a": 1, b: 2, "c": 3})"), (Fields{{"a", "1"}}));
  EXPECT_EQ(fields_of(R"({"a": [1, 2)"), (Fields{{"a", "[1, 2"}}));
  EXPECT_EQ(fields_of(R"({"a": "\)"), (Fields{{"a", R"("\)"}}));
  EXPECT_EQ(fields_of(R"({"a": NaN, "b": 2})"), (Fields{{"a", "NaN"}, {"b", "2"}}));
  EXPECT_EQ(fields_of(R"({"a)"), Fields{});
  EXPECT_EQ(fields_of(R"({"a")"), Fields{});
  EXPECT_EQ(fields_of(R"({"a":)"), Fields{});
  EXPECT_EQ(fields_of(R"({"a": })"), (Fields{{"a", ""}}));
}

TEST(JsonScan, GivesTheRawTextOfAField) {
  EXPECT_EQ(find_raw_field(R"({"x": 1, "y": {"z":2 } })", "y"), R"({"z":2 })");
  EXPECT_EQ(find_raw_field(R"({"x": {"y": 2}})", "y"), std::nullopt);
}

TEST(JsonScan, SplitsAnArray) {
  EXPECT_EQ(split_raw_array(R"( [ {"a": [1]}, 2 ,"x]" ] )"),
            (std::vector<std::string_view>{R"({"a": [1]})", "2", R"("x]")"}));
  EXPECT_TRUE(split_raw_array("[]").empty());
  EXPECT_TRUE(split_raw_array("{}").empty());
  EXPECT_EQ(split_raw_array("[1, }, 2").size(), 1U);
}

TEST(JsonScan, AStringEndsAtItsFirstQuoteWithoutAnEscape) {
  const auto end_of = [](const std::string& text) { return skip_value(text, 0); };
  EXPECT_EQ(end_of(R"("" x)"), 2U);
  EXPECT_EQ(end_of(R"("a\"b" x)"), 6U);
  EXPECT_EQ(end_of(R"("\\" x)"), 4U);
  EXPECT_EQ(end_of(R"("\\\" x" y)"), 8U);
  EXPECT_EQ(end_of(R"("\"\"\"" x)"), 8U);
  for (const std::string open : {"\"", "\"a", "\"\\", "\"\\\"", "\"a\\\\\\"}) {
    EXPECT_EQ(end_of(open), open.size()) << open;
  }
  std::string escapes = "\"";
  for (int i = 0; i < 1 << 20; ++i) escapes += "\\\"";
  EXPECT_EQ(end_of(escapes), escapes.size()) << "and in a moment";
}

TEST(JsonScan, CountsCommasOutsideOfStrings) {
  EXPECT_EQ(count_commas(""), 0U);
  EXPECT_EQ(count_commas(R"(["a,b\",", [1, 2], {"c,": 3, "d": ","}])"), 4U);
  EXPECT_EQ(count_commas(R"([1, "a,)"), 1U);
  EXPECT_FALSE(is_nested("[1, 2, NaN]"));
  EXPECT_FALSE(is_nested("[]"));
  EXPECT_FALSE(is_nested("[1"));
  for (const char* nested : {R"([1, ""])", "[[]]", "[1, {}]"}) EXPECT_TRUE(is_nested(nested));
}

}  // namespace
}  // namespace lmtp::protocol
