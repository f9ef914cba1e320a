// Which grammar of a chat's calls a model is kept to: by tools that are many, or that no grammar
// can be made of.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "generation/call_grammar.h"
#include "generation/reply_plan.h"
#include "generation/schema_reading.h"
#include "lmtp/base/json.h"
#include "lmtp/text/call_writer.h"
#include "support/constraint_driver.h"

namespace lmtp::server {
namespace {

using constraint::GrammarCompiler;
using text::CallLayout;
using Choice = OfferedTools::Choice;
using Calls = std::vector<text::WrittenCall>;

CallLayout hermes_layout() {
  return {.opening = "<tool_call>",
          .separator = "\n",
          .call_begin = "<tool_call>\n{\"name\": \"",
          .name_end = "\", \"arguments\": ",
          .call_end = "}\n</tool_call>"};
}

CallLayout coder_layout() {
  return {.opening = "<tool_call>",
          .separator = "\n",
          .call_begin = "<tool_call>\n<function=",
          .name_end = ">\n",
          .call_end = "</function>\n</tool_call>",
          .arguments = CallLayout::Arguments::kTagged,
          .argument_begin = "<parameter=",
          .argument_name_end = ">\n",
          .argument_end = "\n</parameter>\n"};
}

std::string schema_of(const std::string& json) {
  return with_fixed_spaces(*parse_ordered_json(json, "schema"));
}

// Half of a name is the beginning of another.
std::string name_of(int number) {
  return "a_tool_of_a_server_with_a_rather_long_name_" + std::string(9, 'x') +
         std::to_string(number);
}

OfferedTools many_tools(int num, Choice choice = Choice::kAuto) {
  OfferedTools tools{.functions = {}, .choice = choice};
  for (int i = 0; i < num; ++i) {
    tools.functions.push_back(
        {name_of(i), schema_of(R"({"type": "object", "properties": {"path": {"type": "string",
            "description": "The file to look at, below the folder that the server has."},
            "lines": {"type": "integer", "minimum": 1}, "mode": {"enum": ["fast", "slow"]},
            "id_)" + std::to_string(i) +
                               R"(": {"type": "array", "items": {"type": "string"}}},
            "required": ["path"], "additionalProperties": false})")});
  }
  return tools;
}

// A server's model, over turns.
class Turns {
 public:
  explicit Turns(CallLayout layout, constraint::CompilerOptions options = {}) {
    const auto& tokenizer = constraint::testing::demo();
    model_.reply_layout =
        std::make_shared<const text::ReplyLayout>(text::ReplyLayout{.calls = {std::move(layout)}});
    model_.grammars =
        std::make_shared<GrammarCompiler>(tokenizer, constraint::testing::vocab_size_of(*tokenizer),
                                          std::vector<TokenId>{tokenizer->eos_id()}, options);
  }

  // As an intake does it.
  Result<constraint::ConstrainedStream> begin(const ReplyWishes& wishes) {
    auto planned = plan_reply(model_, "", wishes);
    if (!planned) return planned.error();
    ReplyPlan& plan = *planned;
    num_tried_ = num_compiled_ = 0;
    auto compiled = compile(*plan.grammar);
    while (plan.retry != nullptr) {
      auto other = plan.retry->next(compiled.ok());
      if (!other) break;
      plan.grammar = std::move(other);
      compiled = compile(*plan.grammar);
    }
    grammar_ = *plan.grammar;
    format_ = plan.format;
    if (!compiled) return Error{compiled.error()};
    return constraint::constrain(*compiled, {}, nullptr, plan.grammar->triggers);
  }

  // How much of a text the model may write.
  std::string written(const OfferedTools& tools, const std::string& text) {
    const auto stream = begin({.tools = tools});
    if (!stream.ok()) return stream.error().message;
    const auto ids = streams_.tokenizer().encode_continuation(text);
    std::vector<TokenId> tokens;
    for (const TokenId id : *ids) {
      const auto next = streams_.next(*stream->mask_source, tokens);
      if (!next.ok()) return next.error().message;
      if (!next->allows(id)) break;
      tokens.push_back(id);
      if (stream->stops->push(id, true)) break;
    }
    return streams_.text_of(tokens);
  }

  // Nothing is known of how it writes calls.
  void forget_layout() { model_.reply_layout = text::no_reply_layout(); }

  // What the last turn was.
  const Grammar& grammar() const { return grammar_; }
  int num_tried() const { return num_tried_; }
  int num_compiled() const { return num_compiled_; }
  std::string called(const std::string& text) const {
    ReplyEvents events;
    format_()->read(text, {.finish_reason = FinishReason::kStop}, false, events);
    std::string out;
    for (const ReplyEvent& event : events) {
      if (const auto* call = std::get_if<CallBegins>(&event)) out += call->function;
      if (const auto* arguments = std::get_if<CallArguments>(&event)) out += arguments->json;
    }
    return out;
  }

 private:
  // What is known is answered at once.
  GrammarCompiler::Compiled compile(const Grammar& grammar) {
    std::promise<GrammarCompiler::Compiled> answer;
    const auto here = std::this_thread::get_id();
    bool was_known = false;
    model_.grammars->compile({grammar.kind, grammar.text}, [&](GrammarCompiler::Compiled compiled) {
      was_known = std::this_thread::get_id() == here;
      answer.set_value(std::move(compiled));
    });
    auto compiled = answer.get_future().get();
    ++num_tried_;
    num_compiled_ += was_known ? 0 : 1;
    return compiled;
  }

  constraint::testing::Streams streams_;
  registry::ReadyModel model_{"m", {}, constraint::testing::demo(), Error{}};
  Grammar grammar_;
  ReplyFormat format_;
  int num_tried_ = 0;
  int num_compiled_ = 0;  // of them, those that were not known
};

std::string hermes_call(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}

constexpr int kMany = 1000;

TEST(CallGrammars, AThousandToolsKeepTheirSchemas) {
  for (const Choice choice : {Choice::kAuto, Choice::kRequired}) {
    Turns turns(hermes_layout());
    const OfferedTools tools = many_tools(kMany, choice);
    for (const int number : {10, kMany - 1}) {
      const std::string call =
          hermes_call(name_of(number), R"({"path": "a", "mode": "slow", "id_)" +
                                           std::to_string(number) + R"(": ["b"]})");
      EXPECT_EQ(turns.written(tools, call), call);
    }
    const std::string other = hermes_call(name_of(7), R"({"path": "a", "id_8": []})");
    EXPECT_LE(turns.written(tools, other).size(), other.find("8\": ")) << "another's";
    const std::string none = hermes_call(name_of(kMany), "{}");
    EXPECT_LE(turns.written(tools, none).size(), none.find("0\", ")) << "is not offered";
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
  const std::string json = R"({"name": ")" + name_of(999) + R"(", "arguments": {"path": "a"}})";
  EXPECT_EQ(unknown.written(many_tools(kMany, Choice::kRequired), json), json);
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

CallLayout python_layout() {
  return {.opening = "<call>",
          .section_begin = "<call>[",
          .separator = ", ",
          .section_end = "]</call>",
          .name_end = "(",
          .call_end = ")",
          .arguments = CallLayout::Arguments::kPython};
}

CallLayout gemma_layout() {
  return {.opening = "<call>",
          .call_begin = "<call>call:",
          .call_end = "</call>",
          .arguments = CallLayout::Arguments::kLoose,
          .string_quote = "<esc>"};
}

// Whether a strict tool of that schema is taken, or why not.
std::string refusal_of(const CallLayout& layout, const std::string& schema) {
  OfferedTools tools{.functions = {{"odd", schema_of(schema)}}};
  tools.functions.front().is_strict = true;
  const auto strict = Turns(layout).begin({.tools = tools});
  return strict.ok() ? std::string() : strict.error().message;
}

std::string call_with_a(const CallLayout& layout, const std::string& value) {
  return text::write_calls(layout, {{"odd", "1", {{"a", *parse_ordered_json(value, "")}}}});
}

// How much of a call with such an argument may be written.
std::string written_argument(const CallLayout& layout, const std::string& schema,
                             const std::string& value) {
  Turns turns(layout);
  const OfferedTools tools{.functions = {{"odd", schema_of(schema)}}};
  std::string written = turns.written(tools, call_with_a(layout, value));
  EXPECT_LT(turns.grammar().text.size(), std::size_t{2} << 20);
  return written;
}
bool may_write(const CallLayout& layout, const std::string& schema, const std::string& value) {
  return written_argument(layout, schema, value) == call_with_a(layout, value);
}

std::string with_a(const std::string& schema, const std::string& definitions) {
  return R"({"type": "object", "properties": {"a": )" + schema +
         R"(}, "required": ["a"], "$defs": {)" + definitions + "}}";
}

std::string numbered(const char* pattern, int num) {
  std::string all;
  for (int i = 0; i < num; ++i) {
    std::string one = pattern;
    for (const auto& [mark, number] : {std::pair{"@", i}, std::pair{"%", i + 1}}) {
      for (auto at = one.find(mark); at != std::string::npos; at = one.find(mark)) {
        one.replace(at, 1, std::to_string(number));
      }
    }
    all += (i > 0 ? "," : "") + one;
  }
  return all;
}

// References that go round or branch, schemas of whatever size: each is written in bounded time and
// space, as what it means or as any value.
TEST(CallGrammars, HostileSchemasAreFollowedWithinBounds) {
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
      {with_a(ref, numbered(kTwice, 5000) + R"(, "d5000": {"type": "integer"})"), false},
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

TEST(CallGrammars, ThousandsOfParametersWithLargeDefinitionsAreAnyValueBeyondABudget) {
  const std::string large = R"("big": {"type": "object", "required": ["p0"], "properties": {)" +
                            numbered(R"("p@": {"type": "integer", "minimum": @})", 400) + "}}";
  const std::string listed = R"("d": {"enum": [")" + std::string(100'000, 'x') + R"(", "y"]})";
  constexpr int kNum = 2000;
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

TEST(CallGrammars, ManyLargeSchemasShareABudget) {
  const std::string large =
      schema_of(R"({"type": "object", "properties": {)" +
                numbered(R"("q@": {"type": "array", "items": {"$ref": "#/$defs/big"}})", 100) +
                R"(}, "$defs": {"big": {"type": "object", "properties": {)" +
                numbered(R"("p@": {"type": "integer", "minimum": @})", 400) + "}}}}");
  OfferedTools tools{.functions = {{"last", schema_of(with_a(R"({"type": "integer"})", ""))}}};
  tools.functions.front().is_strict = true;
  const text::ReplyLayout layout{.calls = {coder_layout()}};
  EXPECT_EQ(make_call_grammar(layout, tools, nullptr).unkept, "");
  tools.functions.insert(tools.functions.begin(), 25, {"large", large});
  EXPECT_EQ(make_call_grammar(layout, tools, nullptr).unkept, "last");
  EXPECT_TRUE(make_call_grammar(layout, many_tools(kMany), nullptr).cut.empty());
}

// A text that would be read as another value, or as the form's own, is not written.
TEST(CallGrammars, WhatAFormCannotTellApartIsLeftOut) {
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

TEST(CallGrammars, ListedValuesAreKeptUpToSoMany) {
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
TEST(CallGrammars, ASchemaThatIsTooDeepIsOfAnyArguments) {
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += R"({"type":"array","items":)";
  deep += "{}" + std::string(10'000, '}');
  OfferedTools tools{.functions = {{"odd", R"({"properties":{"a":)" + deep + "}}"}}};
  const std::string call = call_with_a(coder_layout(), R"("x")");
  EXPECT_EQ(Turns(coder_layout()).written(tools, call), call);
  tools.functions.front().is_strict = true;
  EXPECT_FALSE(Turns(coder_layout()).begin({.tools = tools}).ok());
}

OfferedFunction wide_function(int num) {
  return {"wide", schema_of(with_a(R"({"type": "object", "additionalProperties": false,
                                       "properties": {)" +
                                       numbered(R"("p@": {"type": "integer"})", num) + "}}",
                                   ""))};
}

// Any of them may come first.
TEST(CallGrammars, AsManyMembersAsMayBeLeftOutAreKeptOneLevelDown) {
  for (const int num : {300, static_cast<int>(kOptionalMembersMax)}) {
    const OfferedTools tools{.functions = {wide_function(num)}, .choice = Choice::kRequired};
    for (const CallLayout& layout :
         {hermes_layout(), coder_layout(), python_layout(), gemma_layout()}) {
      const auto write = [&](const char* json) {
        return text::write_calls(layout, {{"wide", "1", *parse_ordered_json(json, "")}});
      };
      Turns turns(layout);
      const std::string right = write(R"({"a": {"p7": 1, "p299": 2}})");
      EXPECT_EQ(turns.written(tools, right), right) << num;
      const std::string wrong = write(R"({"a": {"p299": 2, "p7": 1}})");
      EXPECT_LT(turns.written(tools, wrong).size(), wrong.size()) << num;
    }
  }
}

// What read_tools() has found to be too many.
TEST(CallGrammars, MoreMembersAreAnyArguments) {
  OfferedTools tools{
      .functions = {{"odd", schema_of(R"({"properties": {)" +
                                      numbered(R"("p@": {"type": "integer"})", 5000) + "}}")}}};
  tools.functions.front().is_loose = true;
  for (const CallLayout& layout :
       {hermes_layout(), coder_layout(), python_layout(), gemma_layout()}) {
    const Calls calls = {{"odd", "1", *parse_ordered_json(R"({"p4999": 1, "p7": [2]})", "")}};
    const std::string text = text::write_calls(layout, calls);
    Turns turns(layout);
    EXPECT_EQ(turns.written(tools, text), text);
    EXPECT_EQ(turns.called(text), R"(odd{"p4999": 1, "p7": [2]})");
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
