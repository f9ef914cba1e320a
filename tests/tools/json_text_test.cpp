#include "common/json_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lmtp::tools {
namespace {

TEST(PythonRepr, PrintsWhatPythonPrints) {
  // Each right side is what print(json.loads(left)) writes.
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"token": 5, "finish_reason":null,"top_logprobs": {"5": -1.5}})",
       "{'token': 5, 'finish_reason': None, 'top_logprobs': {'5': -1.5}}"},
      {R"([true,false , [],{} ])", "[True, False, [], {}]"},
      {R"("it's")", R"("it's")"},
      {R"("say \"it's\"")", R"('say "it\'s"')"},
      {R"("a\nb\t\\c\/\u0001")", R"('a\nb\t\\c/\x01')"},
      {R"("\u00e9\ud83d\ude00")", "'\xC3\xA9\xF0\x9F\x98\x80'"},
      {"-0.0001", "-0.0001"},
      {"0.00001", "1e-05"},
      {"1e16", "1e+16"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {"2.50", "2.5"},
      {"3.0", "3.0"},
      {"-1e2", "-100.0"},
      {"0.0", "0.0"},
      {"-42.2973747253418", "-42.2973747253418"},
  };
  for (const auto& [json, python] : cases) EXPECT_EQ(python_repr(json), python) << json;
}

TEST(PythonRepr, LeavesWhatIsNoJson) {
  const std::string deep(1000, '[');
  for (const std::string& text :
       {std::string("{"), std::string("[1,]x"), std::string("\"open"), std::string("{1:2}"),
        std::string(""), deep, std::string("[1 2]")}) {
    EXPECT_EQ(python_repr(text), text);
    EXPECT_EQ(indented(text), text);
  }
}

TEST(Indented, PutsEachMemberOnItsLine) {
  EXPECT_EQ(indented(R"({"a":1,"b":{"c":[1,"x"]},"d":{},"e":[]})"),
            "{\n  \"a\": 1,\n  \"b\": {\n    \"c\": [\n      1,\n      \"x\"\n    ]\n  },\n"
            "  \"d\": {},\n  \"e\": []\n}");
}

TEST(JsonField, FindsMembersOfTheOutermostObjectOnly) {
  const std::string json = R"({"a": {"b": 1}, "b": [2, {"c": 3}], "d": "x\"y", "e": null})";
  EXPECT_EQ(json_field(json, "a"), R"({"b": 1})");
  EXPECT_EQ(json_field(json, "b"), R"([2, {"c": 3}])");
  EXPECT_EQ(json_string(*json_field(json, "d")), "x\"y");
  EXPECT_EQ(json_field(json, "e"), "null");
  EXPECT_EQ(json_field(json, "c"), std::nullopt);
  EXPECT_EQ(json_field("[1]", "a"), std::nullopt);
  EXPECT_EQ(json_integer("-12"), -12);
  EXPECT_EQ(json_integer("1.5"), std::nullopt);
  EXPECT_EQ(json_string("5"), std::nullopt);
}

TEST(JsonElements, GivesEachElementsText) {
  EXPECT_EQ(*json_elements(R"([1, "a,b", [2, 3], {"x": []}])"),
            (std::vector<std::string>{"1", "\"a,b\"", "[2, 3]", R"({"x": []})"}));
  EXPECT_TRUE(json_elements("[]")->empty());
  EXPECT_EQ(json_elements("{}"), std::nullopt);
}

TEST(ParseIds, TakesArraysOfIdsOnly) {
  EXPECT_EQ(*parse_ids(" [464, 3290,0] "), (std::vector<TokenId>{464, 3290, 0}));
  EXPECT_TRUE(parse_ids("[]")->empty());
  for (const char* wrong : {"", "5", "[1", "[-1]", "[1.5]", "[\"1\"]", "[2147483648]", "[[1]]"}) {
    EXPECT_FALSE(parse_ids(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace lmtp::tools
