#include "common/json_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/server_info.h"

namespace lmtp::tools {
namespace {

TEST(ServerInfo, ReadsWhatThereIs) {
  const ServerInfo info = read_server_info(
      R"({"model": "m\"", "vocab_size": 12, "context_length": null, "eos_token_ids": [7, 3],
          "extensions": ["LOADING", "CANCEL"], "stats": {"vocab_size": 13}})");
  EXPECT_EQ(info.model, "m\"");
  EXPECT_EQ(info.vocab_size, 12);
  EXPECT_EQ(info.context_length, 0);
  EXPECT_EQ(info.eos_token_ids, (std::vector<TokenId>{3, 7}));
  EXPECT_TRUE(info.can_cancel);
  const ServerInfo other = read_server_info(
      R"({"model": 5, "vocab_size": -12, "eos_token_ids": ["x"], "extensions": "CANCEL"})");
  EXPECT_EQ(other.model, "");
  EXPECT_EQ(other.vocab_size, 0);
  EXPECT_TRUE(other.eos_token_ids.empty());
  EXPECT_FALSE(other.can_cancel);
  EXPECT_EQ(read_server_info("[").json, "[");
}

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

TEST(ParseIds, TakesArraysOfIdsOnly) {
  EXPECT_EQ(*parse_ids(" [464, 3290,0] "), (std::vector<TokenId>{464, 3290, 0}));
  EXPECT_TRUE(parse_ids("[]")->empty());
  for (const char* wrong : {"", "5", "[1", "[-1]", "[1.5]", "[\"1\"]", "[2147483648]", "[[1]]"}) {
    EXPECT_FALSE(parse_ids(wrong).ok()) << wrong;
  }
  EXPECT_EQ(parse_ids("[1, 1.5]").error().message, "'1.5' is not a token id");
  EXPECT_EQ(parse_ids("[1").error().message, "not a JSON array of token ids like [464, 3290]");
}

}  // namespace
}  // namespace lmtp::tools
