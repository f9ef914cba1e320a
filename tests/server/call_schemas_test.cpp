// What grammars of calls keep of the schemas of tools, whatever these are.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "generation/call_grammar.h"
#include "generation/schema_reading.h"
#include "generation/tool_schema.h"
#include "turns.h"

namespace lmtp::server {
namespace {

// References that go round or branch, schemas of whatever size: each is written in bounded time and
// space, as what it means or as any value.
TEST(CallSchemas, HostileSchemasAreFollowedWithinBounds) {
  const char* kTwice = R"("d@": {"anyOf": [{"$ref": "#/$defs/d%"}, {"$ref": "#/$defs/d%"}]})";
  const char* kObjects = R"("d@": {"type": "object", "additionalProperties": false,
      "properties": {"l": {"$ref": "#/$defs/d%"}, "r": {"$ref": "#/$defs/d%"}}})";
  const std::string ref = R"({"$ref": "#/$defs/d0"})";
  struct Case {
    std::string schema;
    bool is_integer;  // else it is any value, and refused where it is strict
  };
  const std::vector<Case> cases = {
      {with_a(ref, R"("d0": {"$ref": "#/$defs/d0"})"), false},
      {with_a(ref, R"("d0": {"anyOf": [{"$ref": "#/$defs/d0"}, {"type": "integer"}]})"), true},
      {with_a(ref, R"("d0": {"allOf": [{"$ref": "#/$defs/d0"}]})"), false},
      {with_a(ref, R"("d0": {"$ref": "#/$defs/d1"}, "d1": {"$ref": "#/$defs/d0"})"), false},
      {with_a(ref, R"("d0": {"anyOf": [{"$ref": "#/$defs/d1"}, {"type": "integer"}]},
                      "d1": {"anyOf": [{"$ref": "#/$defs/d0"}, {"type": "integer"}]})"),
       true},
      {with_a(ref, numbered(kTwice, 40) + R"(, "d40": {"type": "integer"})"), true},
      {with_a(ref, numbered(kTwice, 300) + R"(, "d300": {"type": "integer"})"), false},
      {with_a(R"({"$ref": "#/$defs/nowhere"})", ""), false},
      {with_a(R"({"anyOf": [)" + numbered(R"({"type": "integer", "minimum": @})", 5) + "]}", ""),
       true},
  };
  for (const CallLayout& layout : {coder_layout(), python_layout(), gemma_layout()}) {
    for (const Case& row : cases) {
      SCOPED_TRACE(row.schema.substr(0, 200));
      EXPECT_TRUE(may_write(layout, row.schema, "7"));
      EXPECT_EQ(may_write(layout, row.schema, R"("x")"), !row.is_integer);
      const std::string refusal = refusal_of(layout, row.schema);
      EXPECT_EQ(refusal.empty(), row.is_integer) << refusal;
      EXPECT_EQ(refusal.find("allowed are") == std::string::npos, row.is_integer);
    }
    const std::string nested = with_a(ref, numbered(kObjects, 40) + R"(, "d40": {"type": "null"})");
    EXPECT_TRUE(may_write(layout, nested, R"({"l": {"r": {"l": {}}}})"));
    EXPECT_FALSE(may_write(layout, nested, R"({"l": {"r": {"l": 1}}})"));
  }
}

TEST(CallSchemas, ManyParametersWithLargeDefinitionsAreAnyValueBeyondABudget) {
  const std::string large = R"("big": {"type": "object", "required": ["p0"], "properties": {)" +
                            numbered(R"("p@": {"type": "integer", "minimum": @})", 400) + "}}";
  const std::string listed = R"("d": {"enum": [")" + std::string(100'000, 'x') + R"(", "y"]})";
  constexpr int kNum = 300;
  const auto of = [&](const char* one, const std::string& definitions) {
    return R"({"type": "object", "properties": {"a": {"type": "integer"},)" + numbered(one, kNum) +
           R"(}, "required": ["a",)" + numbered(R"("q@")", kNum) + R"(], "$defs": {)" +
           definitions + "}}";
  };
  const std::string lists =
      of(R"("q@": {"type": "array", "items": {"$ref": "#/$defs/big"}})", large);
  for (const std::string& schema :
       {lists, of(R"("q@": {"$ref": "#/$defs/big"})", large),
        of(R"("q@": {"$ref": "#/$defs/d"})", listed),
        of(R"("q@": {"type": "array", "items": {"$ref": "#/$defs/d"}})", listed)}) {
    for (const CallLayout& layout : {coder_layout(), python_layout(), gemma_layout()}) {
      EXPECT_NE(written_argument(layout, schema, "7").find('7'), std::string::npos);
      EXPECT_EQ(written_argument(layout, schema, R"("x")").find('x'), std::string::npos)
          << "the first ones are followed";
    }
  }
  const OfferedTools tools{.functions = {{"odd", schema_of(lists)}}};
  const auto written = make_call_grammar({.calls = {coder_layout()}}, tools, nullptr);
  EXPECT_EQ(written.cut, std::vector<std::string>{"odd"});
  EXPECT_NE(refusal_of(coder_layout(), lists).find("strict: false"), std::string::npos);
}

TEST(CallSchemas, ManyLargeSchemasShareABudget) {
  const std::string large = schema_of(
      R"({"type": "object", "properties": {)" + numbered(R"("q@": {"$ref": "#/$defs/big"})", 30) +
      R"(}, "$defs": {"big": {"enum": [)" + numbered("@", 3200) + "]}}}");
  OfferedTools tools{.functions = {{"last", schema_of(with_a(R"({"type": "integer"})", ""))}}};
  tools.functions.front().is_strict = true;
  const text::ReplyLayout layout{.calls = {coder_layout()}};
  EXPECT_EQ(make_call_grammar(layout, tools, nullptr).unkept, "");
  tools.functions.insert(tools.functions.begin(), 25, {"large", large});
  EXPECT_EQ(make_call_grammar(layout, tools, nullptr).unkept, "last");
  EXPECT_TRUE(make_call_grammar(layout, many_tools(kMany), nullptr).cut.empty());
}

// In JSON as well, where a grammar has the schema as it is.
TEST(CallSchemas, ListsOfValuesCountInEachForm) {
  const auto with_list = [](std::size_t num_bytes) {
    return schema_of(with_a(
        R"({"type": "array", "items": {"enum": ["y", ")" + std::string(num_bytes, 'x') + R"("]}})",
        ""));
  };
  constexpr std::size_t kMegabyte = std::size_t{1} << 20U;
  for (const CallLayout& layout :
       {hermes_layout(), coder_layout(), python_layout(), gemma_layout()}) {
    OfferedTools tools{.functions = {{"odd", with_list(kMegabyte)}, {"other", with_list(99)}}};
    const auto write = [&] { return make_call_grammar({.calls = {layout}}, tools, nullptr); };
    const CallGrammar written = write();
    EXPECT_EQ(written.cut, std::vector<std::string>{"odd"});
    EXPECT_LT(written.grammar.text.size(), 10'000U);
    EXPECT_NE(written.grammar.text.find(std::string(99, 'x')), std::string::npos);
    tools.functions.front().is_strict = true;
    EXPECT_EQ(write().unkept, "odd");
  }
  SchemaBudget budget{.num_schemas = 20};  // of all functions
  const std::string listed = with_list(999);
  for (const bool is_there : {true, true, false}) EXPECT_EQ(is_within(listed, budget), is_there);
}

// A text that would be read as another value, or as the form's own, is not written.
TEST(CallSchemas, WhatAFormCannotTellApartIsLeftOut) {
  struct Case {
    CallLayout layout;
    std::string schema;
    const char* right;
    const char* wrong;
  };
  CallLayout wrapped = coder_layout();
  wrapped.text_begin = "<![CDATA[";
  wrapped.text_end = "]]>";
  const std::string merged = with_a(R"({"allOf": [
      {"type": "object", "properties": {"b": {"type": "null"}}, "additionalProperties": false},
      {"type": "object", "properties": {"c": {"type": "integer"}}, "required": ["c"]}]})",
                                    "");
  const std::string wide =  // more members than may be left out, by two definitions together
      R"({"$ref": "#/$defs/more", "properties": {"a": {}, )" + numbered(R"("p@": {})", 200) +
      R"(}, "$defs": {"more": {"properties": {)" + numbered(R"("q@": {})", 200) + "}}}}";
  for (const Case& row : std::vector<Case>{
           {coder_layout(), with_a(R"({"enum": ["1", 2]})", ""), "2", R"("1")"},
           {coder_layout(), with_a(R"({"enum": ["x\n</parameter>\ny", "z"]})", ""), R"("z")",
            R"("x\n</parameter>\ny")"},
           {wrapped, with_a(R"({"enum": ["<![CDATA[y", "z"]})", ""), R"("z")", R"("<![CDATA[y")"},
           {gemma_layout(), with_a(R"({"enum": ["x<esc>y", "z"]})", ""), R"("z")", R"("x<esc>y")"},
           {python_layout(), merged, R"({"c": 1})", R"({"c": "x"})"},
           {coder_layout(), wide, "7", R"("\n</parameter>\n")"},
       }) {
    SCOPED_TRACE(row.schema.substr(0, 200));
    EXPECT_TRUE(may_write(row.layout, row.schema, row.right));
    EXPECT_FALSE(may_write(row.layout, row.schema, row.wrong));
    EXPECT_NE(refusal_of(row.layout, row.schema), "");
  }
}

TEST(CallSchemas, ListedValuesAreKeptUpToSoMany) {
  for (const CallLayout& layout : {coder_layout(), python_layout(), gemma_layout()}) {
    const std::string few = with_a(R"({"enum": [)" + numbered(R"("v@")", 900) + "]}", "");
    EXPECT_TRUE(may_write(layout, few, R"("v899")"));
    EXPECT_FALSE(may_write(layout, few, R"("v900")"));
    EXPECT_EQ(refusal_of(layout, few), "");
    const std::string many = with_a(R"({"enum": [)" + numbered(R"("v@")", 1500) + "]}", "");
    EXPECT_TRUE(may_write(layout, many, R"("other")"));
    EXPECT_NE(refusal_of(layout, many), "");
  }
}

// 10,000 levels are no JSON that is read.
TEST(CallSchemas, ASchemaThatIsTooDeepIsOfAnyArguments) {
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += R"({"type":"array","items":)";
  deep += "{}" + std::string(10'000, '}');
  OfferedTools tools{.functions = {{"odd", R"({"properties":{"a":)" + deep + "}}"}}};
  const std::string call = call_with_a(coder_layout(), R"("x")");
  EXPECT_EQ(Turns(coder_layout()).written(tools, call), call);
  tools.functions.front().is_strict = true;
  EXPECT_FALSE(Turns(coder_layout()).begin({.tools = tools}).ok());
}

OfferedFunction wide_function(std::size_t num) {
  return {"wide", schema_of(with_a(
                      R"({"type": "object", "additionalProperties": false,
                                       "properties": {)" +
                          numbered(R"("p@": {"type": "integer"})", static_cast<int>(num)) + "}}",
                      ""))};
}

// Any of them may come first.
TEST(CallSchemas, AsManyMembersAsMayBeLeftOutAreKeptOneLevelDown) {
  const OfferedTools tools{.functions = {wide_function(kOptionalMembersMax)},
                           .choice = Choice::kRequired};
  for (const CallLayout& layout :
       {hermes_layout(), coder_layout(), python_layout(), gemma_layout()}) {
    const auto write = [&](const char* json) {
      return text::write_calls(layout, {{"wide", "1", *parse_ordered_json(json, "")}});
    };
    Turns turns(layout);
    const std::string right = write(R"({"a": {"p7": 1, "p299": 2}})");
    EXPECT_EQ(turns.written(tools, right), right);
    const std::string wrong = write(R"({"a": {"p299": 2, "p7": 1}})");
    EXPECT_LT(turns.written(wrong).size(), wrong.size());
  }
}

// What read_tools() has found to be too many.
TEST(CallSchemas, MoreMembersAreAnyArguments) {
  OfferedTools tools{
      .functions = {{"odd", schema_of(R"({"properties": {)" +
                                      numbered(R"("p@": {"type": "integer"})", 500) + "}}")}}};
  tools.functions.front().is_loose = true;
  for (const CallLayout& layout :
       {hermes_layout(), coder_layout(), python_layout(), gemma_layout()}) {
    const Calls calls = {{"odd", "1", *parse_ordered_json(R"({"p499": 1, "p7": [2]})", "")}};
    const std::string text = text::write_calls(layout, calls);
    Turns turns(layout);
    EXPECT_EQ(turns.written(tools, text), text);
    EXPECT_EQ(turns.called(text), R"(odd{"p499": 1, "p7": [2]})");
  }
}

}  // namespace
}  // namespace lmtp::server
