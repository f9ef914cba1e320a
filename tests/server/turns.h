// A model that is kept to grammars of calls, over turns.
#pragma once

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
#include "lmtp/text/call_writer.h"
#include "support/constraint_driver.h"

namespace lmtp::server {

using constraint::GrammarCompiler;
using text::CallLayout;
using Choice = OfferedTools::Choice;
using Calls = std::vector<text::WrittenCall>;

inline CallLayout hermes_layout() {
  return {.opening = "<tool_call>",
          .separator = "\n",
          .call_begin = "<tool_call>\n{\"name\": \"",
          .name_end = "\", \"arguments\": ",
          .call_end = "}\n</tool_call>"};
}

inline CallLayout coder_layout() {
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

inline std::string schema_of(const std::string& json) {
  return with_fixed_spaces(*parse_ordered_json(json, "schema"));
}

inline constexpr int kMany = 1000;

// Half of a name is the beginning of another.
inline std::string name_of(int number) {
  return "a_tool_of_a_server_with_a_rather_long_name_" + std::string(9, 'x') +
         std::to_string(number);
}

inline OfferedTools many_tools(int num, Choice choice = Choice::kAuto) {
  static std::vector<OfferedFunction> made;
  for (int i = static_cast<int>(made.size()); i < num; ++i) {
    made.push_back(
        {name_of(i), schema_of(R"({"type": "object", "properties": {"path": {"type": "string",
            "description": "The file to look at, below the folder that the server has."},
            "lines": {"type": "integer", "minimum": 1}, "mode": {"enum": ["fast", "slow"]},
            "id_)" + std::to_string(i) +
                               R"(": {"type": "array", "items": {"type": "string"}}},
            "required": ["path"], "additionalProperties": false})")});
  }
  return {.functions = {made.begin(), made.begin() + num}, .choice = choice};
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
    auto stream = constraint::constrain(*compiled, {}, nullptr, plan.grammar->triggers);
    if (stream.ok()) stream_ = *stream;
    return stream;
  }

  // How much of a text the model may write.
  std::string written(const OfferedTools& tools, const std::string& text) {
    const auto stream = begin({.tools = tools});
    return stream.ok() ? written(text) : stream.error().message;
  }
  // The same in the turn that has begun.
  std::string written(const std::string& text) const {
    const auto stops = stream_.stops->restarted({}, {});
    const auto ids = streams_.tokenizer().encode_continuation(text);
    std::vector<TokenId> tokens;
    for (const TokenId id : *ids) {
      const auto next = streams_.next(*stream_.mask_source, tokens);
      if (!next.ok()) return next.error().message;
      if (!next->allows(id)) break;
      tokens.push_back(id);
      if (stops->push(id, true)) break;
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
  constraint::ConstrainedStream stream_;
  Grammar grammar_;
  ReplyFormat format_;
  int num_tried_ = 0;
  int num_compiled_ = 0;  // of them, those that were not known
};

inline CallLayout python_layout() {
  return {.opening = "<call>",
          .section_begin = "<call>[",
          .separator = ", ",
          .section_end = "]</call>",
          .name_end = "(",
          .call_end = ")",
          .arguments = CallLayout::Arguments::kPython};
}

inline CallLayout gemma_layout() {
  return {.opening = "<call>",
          .call_begin = "<call>call:",
          .call_end = "</call>",
          .arguments = CallLayout::Arguments::kLoose,
          .string_quote = "<esc>"};
}

// Whether a strict tool of that schema is taken, or why not.
inline std::string refusal_of(const CallLayout& layout, const std::string& schema) {
  OfferedTools tools{.functions = {{"odd", schema_of(schema)}}};
  tools.functions.front().is_strict = true;
  const auto strict = Turns(layout).begin({.tools = tools});
  return strict.ok() ? std::string() : strict.error().message;
}

inline std::string call_with_a(const CallLayout& layout, const std::string& value) {
  return text::write_calls(layout, {{"odd", "1", {{"a", *parse_ordered_json(value, "")}}}});
}

// How much of a call with such an argument may be written. What was compiled last is kept.
inline std::string written_argument(const CallLayout& layout, const std::string& schema,
                                    const std::string& value) {
  static const bool is_there = constraint::grammar_support().ok();  // and outlives them
  EXPECT_TRUE(is_there);
  static std::unique_ptr<Turns> turns;
  static std::pair<CallLayout, std::string> last;
  if (turns == nullptr || last != std::pair(layout, schema)) {
    last = {layout, schema};
    turns = std::make_unique<Turns>(layout);
    const OfferedTools tools{.functions = {{"odd", schema_of(schema)}}};
    const auto begun = turns->begin({.tools = tools});
    EXPECT_TRUE(begun.ok()) << begun.error().message;
    if (!begun.ok()) return {};
    EXPECT_LT(turns->grammar().text.size(), std::size_t{2} << 20);
  }
  return turns->written(call_with_a(layout, value));
}
inline bool may_write(const CallLayout& layout, const std::string& schema,
                      const std::string& value) {
  return written_argument(layout, schema, value) == call_with_a(layout, value);
}

inline std::string with_a(const std::string& schema, const std::string& definitions) {
  return R"({"type": "object", "properties": {"a": )" + schema +
         R"(}, "required": ["a"], "$defs": {)" + definitions + "}}";
}

inline std::string numbered(const char* pattern, int num) {
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

}  // namespace lmtp::server
