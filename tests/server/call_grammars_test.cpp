// Which grammar of a chat's calls a model is kept to: by tools that are many, or that no grammar
// can be made of.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "turns.h"

namespace lmtp::server {
namespace {

std::string hermes_call(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}

TEST(CallGrammars, AThousandToolsKeepTheirSchemas) {
  for (const auto& [choice, num] :
       {std::pair(Choice::kAuto, kMany), std::pair(Choice::kRequired, 50)}) {
    Turns turns(hermes_layout());
    ASSERT_TRUE(turns.begin({.tools = many_tools(num, choice)}).ok());
    for (const int number : {10, num - 1}) {
      const std::string call =
          hermes_call(name_of(number), R"({"path": "a", "mode": "slow", "id_)" +
                                           std::to_string(number) + R"(": ["b"]})");
      EXPECT_EQ(turns.written(call), call);
    }
    const std::string other = hermes_call(name_of(7), R"({"path": "a", "id_8": []})");
    EXPECT_LE(turns.written(other).size(), other.find("8\": ")) << "another's";
    const std::string none = hermes_call(name_of(num), "{}");
    EXPECT_LE(turns.written(none).size(), none.find("0\", ")) << "is not offered";
  }
}

TEST(CallGrammars, AThousandToolsAreCalledInOtherWays) {
  Turns tagged(coder_layout());
  const std::string call = "<tool_call>\n<function=" + name_of(999) +
                           ">\n<parameter=path>\na\n</parameter>\n<parameter=id_999>\n[\"b\"]\n"
                           "</parameter>\n</function>\n</tool_call>";
  EXPECT_EQ(tagged.written(many_tools(kMany), call), call);
  // The whole text is a call, of a model of which nothing is known.
  Turns unknown(hermes_layout());
  unknown.forget_layout();
  const std::string json = R"({"name": ")" + name_of(49) + R"(", "arguments": {"path": "a"}})";
  EXPECT_EQ(unknown.written(many_tools(50, Choice::kRequired), json), json);
}

OfferedTools one_odd() {
  OfferedTools tools = many_tools(3);
  tools.functions.push_back(
      {"odd", schema_of(R"({"type": "object", "properties": {"a": {"enum": []}},
                            "required": ["a"]})")});
  return tools;
}

TEST(CallGrammars, WhatATurnHasFoundOutIsKnownInTheNext) {
  Turns turns(hermes_layout());
  const std::string call = hermes_call("odd", R"({"b": 1})");
  EXPECT_EQ(turns.written(one_odd(), call), call);
  EXPECT_GT(turns.num_compiled(), 2) << "which one cannot be compiled has to be found out";
  // Other tools take its place among the grammars that are known.
  for (int i = 0; i < 5; ++i) (void)turns.begin({.tools = many_tools(i + 1)});
  EXPECT_EQ(turns.written(one_odd(), call), call);
  EXPECT_EQ(turns.num_compiled(), 0);
  EXPECT_EQ(turns.num_tried(), 1);
  OfferedTools strict = one_odd();
  strict.functions.back().is_strict = true;
  const auto refused = turns.begin({.tools = strict});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("Unsatisfiable"), std::string::npos);
}

// The schema of one cannot be compiled, so that nothing keeps its argument to be a number.
TEST(CallGrammars, OneLooseFunctionLoosensNoOther) {
  OfferedTools tools = many_tools(3);
  tools.functions.push_back(
      {"odd", schema_of(with_a(R"({"type": "integer", "minimum": 5, "maximum": 3})", ""))});
  Turns turns(coder_layout());
  const std::string call = call_with_a(coder_layout(), R"("many")");
  const std::string other = text::write_calls(
      coder_layout(), {{name_of(1), "1", *parse_ordered_json(R"({"lines": "many"})", "")}});
  for (const char* turn : {"first", "second"}) {
    EXPECT_EQ(turns.written(tools, call), call) << turn;
    EXPECT_EQ(turns.called(call), R"(odd{"a": "many"})") << turn;
    EXPECT_EQ(turns.called(other), name_of(1) + R"({"lines": many)") << turn << ": cut";
  }
}

TEST(CallGrammars, WhatIsLoosenedIsReadSo) {
  Turns turns(coder_layout(), {.bytes_max = 2000});
  const Calls calls = {{name_of(1), "1", *parse_ordered_json(R"({"lines": "many"})", "")}};
  const std::string text = text::write_calls(coder_layout(), calls);
  for (const char* turn : {"first", "second"}) {
    EXPECT_EQ(turns.written(many_tools(20), text), text) << turn;
    EXPECT_EQ(turns.called(text), name_of(1) + R"({"lines": "many"})") << turn;
  }
}

// A compiler that takes no more than that many bytes.
TEST(CallGrammars, WhatIsTooMuchIsLoosenedAndThenLeftAside) {
  const std::string call = hermes_call(name_of(1), R"({"other": 1})");
  const std::string broken = hermes_call("nobody", "{}");
  Turns names(hermes_layout(), {.bytes_max = 2000});
  EXPECT_EQ(names.written(many_tools(20), call), call);
  EXPECT_LT(names.written(many_tools(20), broken).size(), broken.size());
  EXPECT_EQ(names.num_compiled(), 0) << "in the second turn";
  Turns none(hermes_layout(), {.bytes_max = 20});
  EXPECT_EQ(none.written(many_tools(20), broken), broken) << "nothing is kept to";
  EXPECT_EQ(none.called(broken + call), name_of(1) + R"({"other": 1})") << "but read";
  EXPECT_EQ(none.written(many_tools(20), call), call);
  EXPECT_EQ(none.num_tried(), 1);
  // What the content is asked to be holds all the same.
  const Grammar content{Grammar::Kind::kJson, {}};
  const auto stream = none.begin({.tools = many_tools(20), .grammar = content});
  ASSERT_TRUE(stream.ok()) << stream.error().message;
  EXPECT_EQ(none.grammar().kind, Grammar::Kind::kJson);
  EXPECT_FALSE(none.begin({.tools = many_tools(20, Choice::kRequired)}).ok());
}

}  // namespace
}  // namespace lmtp::server