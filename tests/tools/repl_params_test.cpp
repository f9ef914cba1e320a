#include "lmtp-client/repl_params.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::tools {
namespace {

PromptLine parsed(const std::string& line, const ReplParams& defaults = {}) {
  auto result = parse_prompt_line(line, defaults);
  if (!result) {
    ADD_FAILURE() << line << ": " << result.error().message;
    return {};
  }
  return *result;
}

std::string error_of(const std::string& line) {
  const auto result = parse_prompt_line(line, {});
  EXPECT_FALSE(result.ok()) << line;
  return result.ok() ? "" : result.error().message;
}

TEST(ParsePromptLine, TakesTheParametersOffTheEnd) {
  const PromptLine line = parsed("Hello there temperature=1.2 max_tokens=5");
  EXPECT_EQ(line.prompt, "Hello there");
  EXPECT_FLOAT_EQ(line.params.sampling.temperature, 1.2F);
  EXPECT_EQ(line.params.sampling.max_tokens, 5);
  EXPECT_EQ(line.params.sampling.top_k, 0);
}

TEST(ParsePromptLine, LeavesThePromptAsItStands) {
  EXPECT_EQ(parsed("  two  spaces ").prompt, "  two  spaces ");
  EXPECT_EQ(parsed("").prompt, "");
  EXPECT_EQ(parsed("solve x=1").prompt, "solve x=1");
  EXPECT_EQ(parsed("a=b c=d").prompt, "a=b c=d");
  EXPECT_EQ(parsed("top_k=3 in the middle").prompt, "top_k=3 in the middle");
  EXPECT_EQ(parsed("top_k= ").prompt, "top_k= ");
  EXPECT_EQ(parsed("x=1 top_k=3").prompt, "x=1");
  EXPECT_EQ(parsed("tabs\ttop_k=3").prompt, "tabs\ttop_k=3");
  EXPECT_EQ(parsed("several   top_k=3   top_p=0.5  ").prompt, "several");
  EXPECT_EQ(parsed("max_tokens=7").prompt, "");
}

TEST(ParsePromptLine, TheLastOfEqualKeysCountsAndDefaultsStay) {
  ReplParams defaults;
  defaults.sampling.top_k = 9;
  defaults.bos = true;
  const PromptLine line = parsed("p seed=1 seed=18446744073709551615", defaults);
  EXPECT_EQ(line.params.sampling.seed, UINT64_MAX);
  EXPECT_TRUE(line.params.sampling.has_seed);
  EXPECT_EQ(line.params.sampling.top_k, 9);
  EXPECT_EQ(line.params.bos, true);
  EXPECT_FALSE(parsed("p seed=1 seed=none").params.sampling.has_seed);
  EXPECT_EQ(parsed("p bos=False", defaults).params.bos, false);
}

TEST(ParsePromptLine, ReadsALogitBias) {
  const auto bias =
      parsed("p logit_bias={50256:-100,\"11\":2.5,'7':1,11:3}").params.sampling.logit_bias;
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->ids, (std::vector<TokenId>{7, 11, 50256}));
  EXPECT_EQ(bias->values, (std::vector<float>{1.0F, 3.0F, -100.0F}));
  EXPECT_EQ(parsed("p logit_bias={}").params.sampling.logit_bias, nullptr);
}

TEST(ParsePromptLine, SaysWhatIsWrong) {
  EXPECT_EQ(error_of("p max_tokens=five"), "max_tokens: 'five' is not a whole number in range");
  EXPECT_EQ(error_of("p max_tokens=1.5"), "max_tokens: '1.5' is not a whole number in range");
  EXPECT_EQ(error_of("p temperature=hot"), "temperature: 'hot' is not a number");
  EXPECT_EQ(error_of("p temperature=nan"), "temperature: 'nan' is not a number");
  EXPECT_EQ(error_of("p seed=-1"), "seed: '-1' is not a whole number in range");
  EXPECT_EQ(error_of("p bos=maybe"), "bos: 'maybe' is neither true nor false");
  EXPECT_EQ(error_of("p temprature=1"),
            "'temprature' is not a parameter; did you mean temperature?");
  for (const char* bias : {"{1}", "{a:1}", "{1:x}", "{-1:1}", "1:1", "{1:1", "{1:1,,2:2}"}) {
    EXPECT_NE(error_of(std::string("p logit_bias=") + bias).find("logit_bias: write"),
              std::string::npos)
        << bias;
  }
}

TEST(ParsePromptLine, AStopIsATextAsItStandsOrJson) {
  using Stops = std::vector<std::string>;
  EXPECT_EQ(parsed("p stop=END").params.stop, Stops{"END"});
  EXPECT_EQ(parsed(R"(p stop="\n\n")").params.stop, Stops{"\n\n"});
  EXPECT_EQ(parsed(R"(p stop=["\n","a\u0020b"])").params.stop, (Stops{"\n", "a b"}));
  EXPECT_EQ(parsed("p stop=END stop=none").params.stop, Stops{});
  for (const char* stop : {R"(["a")", "[1]", R"("a)"}) {
    EXPECT_NE(error_of(std::string("p stop=") + stop).find("stop: write"), std::string::npos)
        << stop;
  }
  EXPECT_EQ(parsed("how to drop=1").prompt, "how to drop=1");
}

TEST(ParsePromptLine, AGrammarIsJsonWithoutSpaces) {
  EXPECT_EQ(parsed(R"(p grammar={"type":"choice","value":["a","b"]})").params.grammar,
            (Grammar{Grammar::Kind::kChoice, R"(["a","b"])"}));
  EXPECT_EQ(parsed(R"(p grammar={"type":"json"} max_tokens=3)").params.grammar,
            (Grammar{Grammar::Kind::kJson, ""}));
  EXPECT_EQ(parsed(R"(p grammar={"type":"json"} grammar=none)").params.grammar, std::nullopt);
  for (const auto& [value, expected] : std::vector<std::pair<std::string, std::string>>{
           {"[0-9]+", "grammar: write {"},
           {R"({"value":"a"})", "grammar: write {"},
           {R"({"type":5})", "grammar.type: is unknown"},
           {R"({"type":"regex"})", "grammar.value: is missing"},
       }) {
    EXPECT_EQ(error_of("p grammar=" + value).substr(0, expected.size()), expected) << value;
  }
}

TEST(ParsePromptLine, AControllerIsANameAndItsArgument) {
  ReplParams params = parsed("p controller=fork controller_arg=65").params;
  EXPECT_EQ(params.controller, "fork");
  EXPECT_EQ(params.controller_arg, "65");
  EXPECT_EQ(parsed(R"(p controller_arg="65\u002066")").params.controller_arg, "65 66");
  EXPECT_EQ(parsed(R"(p controller_arg={"a":1})").params.controller_arg, R"({"a":1})");
  params = parse_prompt_line("p controller=none controller_arg=\"\"", params)->params;
  EXPECT_EQ(params.controller + params.controller_arg, "");
  EXPECT_EQ(error_of("p controller_arg=\"65").substr(0, 15), "controller_arg:");
}

TEST(SetParam, KnowsEveryNameItTells) {
  const std::string names = param_names();
  ReplParams params;
  std::size_t num_names = 0;
  for (std::size_t pos = 0; pos < names.size();) {
    const std::size_t end = std::min(names.find(", ", pos), names.size());
    const std::string name = names.substr(pos, end - pos);
    const bool is_bool = name == "bos" || name == "ignore_eos";
    const std::string value = is_bool                    ? "true"
                              : name == "logit_bias"     ? "{1:2}"
                              : name == "stop"           ? R"(["1"])"
                              : name == "grammar"        ? R"({"type":"regex","value":"1"})"
                              : name == "controller_arg" ? R"("1")"
                                                         : "1";
    EXPECT_TRUE(set_param(params, name, value).ok()) << name;
    EXPECT_TRUE(is_param(name + "=" + value)) << name;
    EXPECT_NE(describe_params(params).find(name + "=" + value + "\n"), std::string::npos) << name;
    ++num_names;
    pos = end + 2;
  }
  EXPECT_EQ(num_names, 20U);
  EXPECT_FALSE(is_param("top_k"));
  EXPECT_FALSE(is_param("x=1"));
  EXPECT_NE(set_param(params, "colour", "1").error().message.find("known are temperature"),
            std::string::npos);
}

}  // namespace
}  // namespace lmtp::tools
