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
#include "lmtp/base/json.h"
#include "support/constraint_driver.h"

namespace lmtp::server {
namespace {

using constraint::GrammarCompiler;
using text::CallLayout;
using Choice = OfferedTools::Choice;

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
    ReplyPlan plan = plan_reply(model_, "", wishes);
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
