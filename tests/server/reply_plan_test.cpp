// What a chat asks of its reply: which tokens a model may write then, and what is read out of them.
#include "generation/reply_plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "generation/reply_formats.h"
#include "lmtp/base/json.h"
#include "support/constraint_driver.h"

namespace lmtp::server {
namespace {

using constraint::testing::Streams;
using text::CallLayout;
using text::ReplyLayout;
using Choice = OfferedTools::Choice;

const std::string kWeather =
    R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"], "additionalProperties": false})";

OfferedTools weather_tools(Choice choice = Choice::kAuto) {
  return {.functions = {{"weather", kWeather}, {"weather_at", kWeather}}, .choice = choice};
}

CallLayout hermes() {
  return {.opening = "<tool_call>",
          .separator = "\n",
          .call_begin = "<tool_call>\n{\"name\": \"",
          .name_end = "\", \"arguments\": ",
          .call_end = "}\n</tool_call>"};
}

struct Format {
  std::string name;
  CallLayout layout;
  std::string one;   // weather(city="Rome (I)", days=3)
  std::string both;  // and weather_at(city="Bonn"); empty: nothing but one
};

void add_json_formats(std::vector<Format>& formats) {
  formats.push_back(
      {"hermes", hermes(),
       "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome (I)\", \"days\": "
       "3}}\n</tool_call>",
       "\n<tool_call>\n{\"name\": \"weather_at\", \"arguments\": {\"city\": "
       "\"Bonn\"}}\n</tool_call>"});
  formats.push_back({"deepseek",
                     {.opening = "<calls>",
                      .section_begin = "<calls>",
                      .section_end = "</calls>",
                      .call_begin = "<call>",
                      .name_end = "<sep>",
                      .call_end = "</call>"},
                     "<calls><call>weather<sep>{\"city\": \"Rome (I)\", \"days\": 3}</call>",
                     "<call>weather_at<sep>{\"city\": \"Bonn\"}</call></calls>"});
  formats.push_back({"kimi",
                     {.opening = "<begin>",
                      .section_begin = "<begin>",
                      .section_end = "<end>",
                      .call_begin = "<call>functions.",
                      .index_begin = ":",
                      .name_end = "<args>",
                      .call_end = "</call>"},
                     "<begin><call>functions.weather:0<args>{\"city\": \"Rome (I)\", \"days\": "
                     "3}</call>",
                     "<call>functions.weather_at:1<args>{\"city\": \"Bonn\"}</call><end>"});
  formats.push_back({"mistral",
                     {.opening = "[TOOL_CALLS]",
                      .section_begin = "[TOOL_CALLS][",
                      .separator = ", ",
                      .section_end = "]",
                      .call_begin = "{\"name\": \"",
                      .name_end = "\", \"arguments\": ",
                      .call_end = "}"},
                     "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome "
                     "(I)\", \"days\": 3}}",
                     ", {\"name\": \"weather_at\", \"arguments\": {\"city\": \"Bonn\"}}]"});
  formats.push_back(
      {"llama",
       {.call_begin = "{\"name\": \"", .name_end = "\", \"parameters\": ", .call_end = "}"},
       "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome (I)\", \"days\": "
       "3}}",
       ""});
}

void add_other_formats(std::vector<Format>& formats) {
  formats.push_back({"coder",
                     {.opening = "<tool_call>",
                      .separator = "\n",
                      .call_begin = "<tool_call>\n<function=",
                      .name_end = ">\n",
                      .call_end = "</function>\n</tool_call>",
                      .arguments = CallLayout::Arguments::kTagged,
                      .argument_begin = "<parameter=",
                      .argument_name_end = ">\n",
                      .argument_end = "\n</parameter>\n"},
                     "<tool_call>\n<function=weather>\n<parameter=city>\nRome "
                     "(I)\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n"
                     "</tool_call>",
                     "\n<tool_call>\n<function=weather_at>\n<parameter=city>\nBonn\n</parameter>\n"
                     "</function>\n</tool_call>"});
  formats.push_back({"pythonic",
                     {.section_begin = "[",
                      .separator = ", ",
                      .section_end = "]",
                      .name_end = "(",
                      .call_end = ")",
                      .arguments = CallLayout::Arguments::kPython},
                     "[weather(city=\"Rome (I)\", days=3)",
                     ", weather_at(city='Bonn')]"});
  formats.push_back({"gemma",
                     {.opening = "<call>",
                      .call_begin = "<call>call:",
                      .call_end = "</call>",
                      .arguments = CallLayout::Arguments::kLoose,
                      .string_quote = "<escape>"},
                     "<call>call:weather{city:<escape>Rome (I)<escape>,days:3}</call>",
                     "<call>call:weather_at{city:<escape>Bonn<escape>}</call>"});
  formats.push_back({"call_id",
                     {.opening = "[TOOL_CALLS]",
                      .call_begin = "[TOOL_CALLS]",
                      .id_begin = "[CALL_ID]",
                      .name_end = "[ARGS]",
                      .call_end = ""},
                     "[TOOL_CALLS]weather[CALL_ID]abc123456[ARGS]{\"city\": \"Rome (I)\", "
                     "\"days\": 3}",
                     "[TOOL_CALLS]weather_at[CALL_ID]abc123457[ARGS]{\"city\": \"Bonn\"}"});
  formats.push_back({"glm",
                     {.opening = "<tool_call>",
                      .separator = "\n",
                      .call_begin = "<tool_call>",
                      .name_end = "\n",
                      .call_end = "</tool_call>",
                      .arguments = CallLayout::Arguments::kTagged,
                      .argument_begin = "<arg_key>",
                      .argument_name_end = "</arg_key>\n<arg_value>",
                      .argument_end = "</arg_value>\n"},
                     "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome "
                     "(I)</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
                     "</tool_call>",
                     "\n<tool_call>weather_at\n<arg_key>city</arg_key>\n<arg_value>Bonn</"
                     "arg_value>\n</tool_call>"});
}

std::vector<Format> formats() {
  std::vector<Format> formats;
  add_json_formats(formats);
  add_other_formats(formats);
  return formats;
}

const text::ReasoningLayout kThink{"<think>", "</think>"};

class Replies {
 public:
  Replies(ReplyLayout layout, ReplyWishes wishes, std::string_view prompt = "") {
    layout_ = std::make_shared<const ReplyLayout>(std::move(layout));
    registry::ReadyModel model{"m", {}, streams_tokenizer(), Error{}};
    model.reply_layout = layout_;
    plan_ = plan_reply(model, prompt, wishes);
  }

  // What is compiled, as an intake does it.
  Result<constraint::ConstrainedStream> stream() {
    auto compiled = constraint::testing::compile(streams_.compiler(),
                                                 {plan_.grammar->kind, plan_.grammar->text});
    while (plan_.retry != nullptr) {
      auto other = plan_.retry->next(compiled.ok());
      if (!other) break;
      plan_.grammar = std::move(other);
      compiled = constraint::testing::compile(streams_.compiler(),
                                              {plan_.grammar->kind, plan_.grammar->text});
    }
    if (!compiled) return Error{compiled.error()};
    return constraint::constrain(*compiled, {}, nullptr, plan_.grammar->triggers);
  }

  // How much of the text a model may write, whose tokens are `size` bytes long, and whether it ends
  // there.
  std::string written(const std::string& text, bool& ends) {
    auto stream = this->stream();
    EXPECT_TRUE(stream.ok()) << stream.error().message << "\n" << plan_.grammar->text;
    ends = false;
    if (!stream.ok()) return {};
    const auto ids = streams_.tokenizer().encode_continuation(text);
    std::vector<TokenId> tokens;
    for (const TokenId id : *ids) {
      const auto next = streams_.next(*stream->mask_source, tokens);
      if (!next.ok() || !next->allows(id)) break;
      tokens.push_back(id);
      ends = stream->stops->push(id, true);
      if (ends) break;
    }
    return streams_.text_of(tokens);
  }

  std::string read(const std::string& text, std::size_t size,
                   FinishReason reason = FinishReason::kStop) const {
    const auto reader = plan_.format();
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += size) {
      TokenEvent token;
      if (at + size >= text.size()) token.finish_reason = reason;
      ReplyEvents events;
      reader->read(text.substr(at, size), token, false, events);
      out += shown(events);
    }
    for (auto at = out.find("~~"); at != std::string::npos; at = out.find("~~")) out.erase(at, 2);
    return out;
  }

  const ReplyPlan& plan() const { return plan_; }
  Streams& streams() { return streams_; }

 private:
  static std::string shown(const ReplyEvents& events) {
    std::string out;
    for (const ReplyEvent& event : events) {
      if (const auto* content = std::get_if<Content>(&event)) out += content->text;
      if (const auto* thought = std::get_if<Reasoning>(&event)) out += "~" + thought->text + "~";
      if (const auto* call = std::get_if<CallBegins>(&event)) out += "{" + call->function + " ";
      if (const auto* arguments = std::get_if<CallArguments>(&event)) out += arguments->json;
      if (std::holds_alternative<CallEnds>(event)) out += "}";
    }
    return out;
  }
  static const constraint::testing::Tokenizer& streams_tokenizer() {
    return constraint::testing::demo();
  }

  Streams streams_;
  std::shared_ptr<const ReplyLayout> layout_;
  ReplyPlan plan_;
};

constexpr const char* kOne = R"x({weather {"city": "Rome (I)", "days": 3}})x";
constexpr const char* kOther = R"({weather_at {"city": "Bonn"}})";

TEST(ReplyPlan, CallsOfEachFormatAreWrittenAndRead) {
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    Replies replies({.calls = {format.layout}}, {.tools = weather_tools()});
    const std::string calls = format.one + format.both;
    const std::string before = format.layout.opening.empty() ? "" : "I look.\n";
    bool ends = false;
    EXPECT_EQ(replies.written(before + calls, ends), before + calls);
    EXPECT_FALSE(ends) << "more text may follow";
    for (std::size_t size = 1; size <= 7; ++size) {
      EXPECT_EQ(replies.read(before + calls, size),
                before + kOne + (format.both.empty() ? "" : kOther))
          << size;
    }
    // Content after calls, and none before.
    if (!format.layout.opening.empty()) {
      EXPECT_EQ(replies.read(calls + "\nThat is it.", 3),
                std::string(kOne) + kOther + "That is it.");
    }
  }
}

TEST(ReplyPlan, NoOtherFunctionIsCalledOnceACallIsOpen) {
  for (const Format& format : formats()) {
    if (format.layout.opening.empty()) continue;
    SCOPED_TRACE(format.name);
    Replies replies({.calls = {format.layout}}, {.tools = weather_tools()});
    std::string other = format.one;
    other.replace(other.find("weather"), 7, "weapons");
    bool ends = false;
    const std::string written = replies.written(other, ends);
    EXPECT_LT(written.size(), other.find("pons")) << written;
    EXPECT_EQ(replies.read(other, 4), other) << "what was not constrained is content";
  }
}

TEST(ReplyPlan, FreeTextIsFree) {
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    Replies replies({.calls = {format.layout}}, {.tools = weather_tools()});
    const std::string text = "{\"name\": \"no call\"} [weath] <tool_cal <tool_call\n```\n" +
                             format.layout.opening + "\n```\n <|x|> ü";
    bool ends = false;
    EXPECT_EQ(replies.written(text, ends), text);
    for (std::size_t size = 1; size <= 5; ++size) EXPECT_EQ(replies.read(text, size), text);
  }
}

TEST(ReplyPlan, ACallThatIsCutIsNotWhole) {
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    Replies replies({.calls = {format.layout}}, {.tools = weather_tools()});
    for (std::size_t size = 1; size < format.one.size(); ++size) {
      const std::string out = replies.read(format.one.substr(0, size), 3, FinishReason::kLength);
      EXPECT_NE(out, kOne) << size;
    }
  }
}

TEST(ReplyPlan, ForcedCallsBeginAtOnceAndEnd) {
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    for (const Choice choice : {Choice::kRequired, Choice::kNamed}) {
      OfferedTools tools = weather_tools(choice);
      if (choice == Choice::kNamed) tools.functions.pop_back();
      Replies replies({.calls = {format.layout}}, {.tools = tools});
      const std::string one = format.one + format.layout.section_end;
      bool ends = false;
      EXPECT_EQ(replies.written("No", ends), "");
      EXPECT_EQ(replies.written(one, ends), one);
      EXPECT_EQ(ends, choice == Choice::kNamed || !format.layout.section_end.empty());
      for (std::size_t size = 1; size <= 7; ++size) EXPECT_EQ(replies.read(one, size), kOne);
    }
  }
}

TEST(ReplyPlan, OneCallAloneEndsTheReply) {
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    OfferedTools tools = weather_tools();
    tools.calls_several = false;
    Replies replies({.calls = {format.layout}}, {.tools = tools});
    const std::string one = format.one + format.layout.section_end;
    bool ends = false;
    EXPECT_EQ(replies.written(one + "\nMore", ends), one);
    EXPECT_TRUE(ends);
  }
}

TEST(ReplyPlan, ReasoningIsReadAndNothingInItIsACall) {
  const std::string call = formats().front().one;
  Replies replies({.calls = {hermes()}, .reasoning = kThink}, {.tools = weather_tools()});
  const std::string text = "<think>\nHm, " + call + "\n</think>\n\nSo: " + call;
  bool ends = false;
  EXPECT_EQ(replies.written(text, ends), text);
  EXPECT_EQ(replies.read(text, text.size()), "~Hm, " + call + "~So: " + kOne);
  // A block that the prompt has opened.
  Replies inside({.calls = {hermes()}, .reasoning = kThink}, {.tools = weather_tools()},
                 "<|assistant|>\n<think>\n");
  EXPECT_EQ(inside.read("Hm </think> " + call, 99), std::string("~Hm~") + kOne);
  // And one that it has closed.
  Replies behind({.calls = {hermes()}, .reasoning = kThink}, {.tools = weather_tools()},
                 "<think>\n\n</think>\n\n");
  EXPECT_EQ(behind.read("<think> is a tag", 99), "<think> is a tag");
}

TEST(ReplyPlan, AReplyGoesOnWhereItsMessageEnds) {
  const auto read = [](const std::string& begun) {
    Replies replies({.reasoning = kThink}, {.begun = begun}, "<think> </think>" + begun);
    return replies.read("so</think>on", 4);
  };
  EXPECT_EQ(read("<think>\nI th"), "~so~on");
  EXPECT_EQ(read("<think>I</think>It is"), "so</think>on");
  EXPECT_EQ(read("It is"), "so</think>on");
}

TEST(ReplyPlan, WhatConstrainsAReplyBeginsAfterItsReasoning) {
  const Grammar schema{Grammar::Kind::kJsonSchema,
                       R"({"type": "object", "properties": {"a": {"type": "integer"}},
                           "required": ["a"], "additionalProperties": false,
                           "x-guidance": {"whitespace_flexible": false}})"};
  for (const std::string prompt : {"", "<think>\n"}) {
    Replies replies({.reasoning = kThink}, {.grammar = schema}, prompt);
    const std::string begin = prompt.empty() ? "<think>" : "";
    const std::string text = begin + "What is {it?}</think>{\"a\":17}";
    bool ends = false;
    EXPECT_EQ(replies.written(text + "x", ends), text);
    EXPECT_TRUE(ends);
    EXPECT_EQ(replies.read(text, 2), "~What is {it?}~{\"a\":17}") << "in pieces";
  }
  Replies at_once({.reasoning = kThink}, {.grammar = schema}, "");
  bool ends = false;
  EXPECT_EQ(at_once.written("{\"a\":17}", ends), "{\"a\":17}") << "without reasoning";
  EXPECT_TRUE(ends);
  EXPECT_EQ(at_once.written("Sure", ends), "");
}

TEST(ReplyPlan, ReasoningThatIsLongEnoughIsClosed) {
  Replies replies({.reasoning = kThink}, {.reasoning_tokens_max = 5}, "<think>\n");
  const auto stream = replies.stream();
  ASSERT_TRUE(stream.ok());
  const auto drawn = replies.streams().draw(*stream, 1, 40);
  const std::string text = replies.streams().text_of(drawn.tokens);
  const std::size_t end = text.find("</think>");
  ASSERT_NE(end, std::string::npos) << text;
  const auto thoughts = replies.streams().text_of(std::span(drawn.tokens).first(5));
  EXPECT_EQ(end, thoughts.size()) << text;
}

TEST(ReplyPlan, MinTokensCountAfterReasoning) {
  Replies replies({.reasoning = kThink}, {.min_tokens = 3}, "<think>\n");
  EXPECT_TRUE(replies.plan().counts_min_tokens);
  const auto stream = replies.stream();
  ASSERT_TRUE(stream.ok());
  std::vector<TokenId> tokens = *replies.streams().tokenizer().encode_continuation("Hm</think>");
  EXPECT_FALSE(
      replies.streams().next(*stream->mask_source, tokens)->allows(replies.streams().eos()));
  const auto more = *replies.streams().tokenizer().encode_continuation("a b c d");
  tokens.insert(tokens.end(), more.begin(), more.begin() + 3);
  EXPECT_TRUE(
      replies.streams().next(*stream->mask_source, tokens)->allows(replies.streams().eos()));
}

TEST(ReplyPlan, ASchemaOfTheContentLeavesRoomForCalls) {
  const Grammar schema{Grammar::Kind::kJsonSchema,
                       R"({"type": "object", "properties": {"a": {"type": "integer"}},
                           "required": ["a"], "additionalProperties": false})"};
  Replies replies({.calls = {hermes()}}, {.tools = weather_tools(), .grammar = schema});
  const std::string call = formats().front().one;
  bool ends = false;
  EXPECT_EQ(replies.written(call, ends), call);
  EXPECT_EQ(replies.read(call, 5), kOne);
  EXPECT_EQ(replies.written("{\"a\": 1}", ends), "{\"a\": 1}");
  EXPECT_EQ(replies.read("{\"a\": 1}", 5), "{\"a\": 1}");
  EXPECT_EQ(replies.written("Sure", ends), "");
}

// One of a thousand tools is not the reason to refuse the others.
TEST(ReplyPlan, ASchemaThatCannotBeCompiledIsAnyObject) {
  OfferedTools tools = weather_tools();
  tools.functions.push_back({"odd", R"({"type": "object", "properties": {"a": {"not": {}}},
                                        "contains": {"minimum": 1}, "$ref": "#/nowhere"})"});
  Replies replies({.calls = {hermes()}}, {.tools = tools});
  bool ends = false;
  const std::string odd =
      "<tool_call>\n{\"name\": \"odd\", \"arguments\": {\"b\": [1, {}]}}\n</tool_call>";
  EXPECT_EQ(replies.written(odd, ends), odd);
  EXPECT_EQ(replies.read(odd, 3), R"({odd {"b": [1, {}]}})");
  const std::string wrong =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": 1}}\n</tool_call>";
  EXPECT_LE(replies.written(wrong, ends).size(), wrong.find("town")) << "these keep theirs";
  tools.functions.back().is_strict = true;
  Replies strict({.calls = {hermes()}}, {.tools = tools});
  EXPECT_FALSE(strict.stream().ok());
}

}  // namespace
}  // namespace lmtp::server
