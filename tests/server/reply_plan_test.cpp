// Chats with tools, by each known format: which tokens a model may write, and which calls are read.
#include "generation/reply_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "replies.h"

namespace lmtp::server {
namespace {

TEST(ReplyPlan, CallsOfEachFormatAreWrittenAndRead) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    Replies replies(form.reply, {.tools = some_tools()});
    const std::string before = form.opens() ? "I look.\n" : "";
    const std::string text = before + form.written(kAll);
    bool ends = false;
    EXPECT_EQ(replies.written(text, ends), text);
    for (const std::size_t size : {1, 3, 7}) {
      EXPECT_EQ(replies.read(text, size), before + shown_calls(kAll)) << size;
    }
    // Content after calls, and none before.
    if (form.opens()) {
      EXPECT_EQ(replies.read(form.written(kAll) + "\nThat is it.", 3),
                shown_calls(kAll) + "That is it.");
    }
  }
}

TEST(ReplyPlan, WhatEndsACallEndsNoneWithinATextOfItsArguments) {
  for (const Form& form : forms()) {
    Replies replies(form.reply, {.tools = some_tools()});
    const CallLayout& layout = form.calls;
    for (const std::string& end : {layout.call_end, layout.section_end, layout.argument_end}) {
      if (end.empty() || text::mark_special(*model_tokenizer(), end) != end) continue;
      SCOPED_TRACE(form.name + " with " + end);
      Calls calls = {kAll.back()};
      calls.front().arguments["at"]["names"] = {"x" + end + "y", "\\\"" + end};
      if (layout.arguments == CallLayout::Arguments::kJson) {
        calls.front().arguments["city"] = "x" + end + "\"" + end;
      }
      const std::string text = form.written(calls);
      bool ends = false;
      EXPECT_EQ(replies.written(text, ends), text);
      for (const std::size_t size : {1, 3, 7}) {
        EXPECT_EQ(replies.read(text, size), shown_calls(calls)) << size;
      }
    }
  }
}

// A value that may be a text is one where the call goes on after it.
TEST(ReplyPlan, AValueThatMayBeATextEndsWhereTheCallGoesOn) {
  const std::string any = R"({"type": "object", "properties": {"a": {}, "b": {}}})";
  const OfferedTools tools{.functions = {{"f", any}}};
  for (const Form& form : forms()) {
    const CallLayout& layout = form.calls;
    if (layout.arguments != CallLayout::Arguments::kTagged) continue;
    if (!layout.string_name_end.empty()) continue;  // which tell what it is
    SCOPED_TRACE(form.name);
    const Replies replies({.calls = {layout}}, {.tools = tools});
    const auto read = [&](const char* json) {
      const Calls calls = {{"f", "abc123456", *parse_ordered_json(json, "")}};
      EXPECT_EQ(replies.read(form.written(calls), 3), shown_calls(calls));
    };
    const std::string end = json_text(OrderedJson("x" + layout.argument_end + "y"));
    read((R"({"a": {"t": )" + end + R"(}, "b": [)" + end + "]}").c_str());
    read(R"({"a": "{\"t", "b": "[\"u"})");
  }
}

// Where a text is one of a list, what begins as JSON is JSON up to its end.
TEST(ReplyPlan, AValueThatMayBeAListedTextAloneEndsOutsideOfTexts) {
  const OfferedTools tools{.functions = {{"f", R"({"type": "object", "properties": {
      "a": {"anyOf": [{"enum": ["auto"]}, {"type": "object"}]}}, "required": ["a"]})"}}};
  for (const Form& form : forms()) {
    const CallLayout& layout = form.calls;
    if (layout.arguments != CallLayout::Arguments::kTagged) continue;
    if (!layout.string_name_end.empty()) continue;
    SCOPED_TRACE(form.name);
    const std::string text = layout.argument_end + layout.call_end;
    const Calls calls = {{"f", "abc123456", {{"a", {{"t", text}}}}}};
    EXPECT_EQ(Replies({.calls = {layout}}, {.tools = tools}).read(form.written(calls), 3),
              shown_calls(calls));
  }
}

TEST(ReplyPlan, NoOtherFunctionIsCalledOnceACallIsOpen) {
  for (const Form& form : forms()) {
    if (!form.opens()) continue;
    SCOPED_TRACE(form.name);
    Replies replies(form.reply, {.tools = some_tools()});
    std::string other = form.written(kOne);
    other.replace(other.find("weather"), 7, "weapons");
    bool ends = false;
    const std::string written = replies.written(other, ends);
    EXPECT_LT(written.size(), other.find("pons")) << written;
    EXPECT_EQ(replies.read(other, 4).find('{' + std::string("w")), std::string::npos);
  }
}

// Special tokens and what stands around messages are no text.
std::string content_of(const Form& form, std::string text) {
  for (const std::string& dropped : form.reply.dropped) {
    const std::size_t at = text.find(dropped);
    if (at != std::string::npos) text.erase(at, dropped.size());
  }
  std::string out = text::mark_special(*model_tokenizer(), text);
  for (auto at = out.find(text::kSpecialBegin); at != std::string::npos;
       at = out.find(text::kSpecialBegin)) {
    out.erase(at, out.find(text::kSpecialEnd) + 1 - at);
  }
  return out;
}

TEST(ReplyPlan, FreeTextIsFree) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    Replies replies(form.reply, {.tools = some_tools()});
    const std::string text = "{\"name\": \"no call\"} [weath] <tool_cal <tool_call\n```\n" +
                             form.calls.opening + "\n```\n <|x|> \u00fc";
    bool ends = false;
    EXPECT_EQ(replies.written(text, ends), text);
    for (std::size_t size = 1; size <= 5; ++size) {
      EXPECT_EQ(replies.read(text, size), content_of(form, text));
    }
  }
}

TEST(ReplyPlan, ACallThatIsCutIsNotWhole) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    Replies replies(form.reply, {.tools = some_tools()});
    const std::string one = form.written(kOne);
    for (std::size_t size = 1; size < one.size() - form.calls.section_end.size(); ++size) {
      const std::string out = replies.read(one.substr(0, size), 3, FinishReason::kLength);
      EXPECT_NE(out, shown_calls(kOne)) << size;
    }
  }
}

// As DeepSeek V4 writes it.
TEST(ReplyPlan, ALineMayBeEmptyWhereThereAreNoArguments) {
  const Calls none = {kAll.at(1)};
  for (const Form& form : forms()) {
    if (form.calls.arguments != CallLayout::Arguments::kTagged) continue;
    SCOPED_TRACE(form.name);
    std::string one = form.written(none);
    one.insert(one.rfind(form.calls.call_end), form.calls.call_end.starts_with('\n') ? "" : "\n");
    EXPECT_EQ(Replies(form.reply, {.tools = some_tools()}).read(one, 3), shown_calls(none));
  }
}

TEST(ReplyPlan, PythonsTextsMayHaveEscapes) {
  for (const Form& form : forms()) {
    if (form.calls.arguments != CallLayout::Arguments::kPython) continue;
    SCOPED_TRACE(form.name);
    std::string one = form.written(kOne);
    one.replace(one.find("Rome (I)"), 8, R"(R\u00f6m \ud83d\ude00\n\ud83d \u12)");
    EXPECT_EQ(Replies(form.reply, {.tools = some_tools()}).read(one, 2),
              "{weather {\"city\": \"R\u00f6m \U0001f600\\n\\\\ud83d \\\\u12\", \"days\": 3}}");
  }
}

// As MiniCPM5 writes a text that has what XML would escape.
TEST(ReplyPlan, ATextMayStandInACharacterDataSection) {
  for (const Form& form : forms()) {
    if (form.reply.name != "minicpm5") continue;
    const auto read = [&](const std::string& city) {
      std::string one = form.written(kOne);
      one.replace(one.find("Rome (I)"), 8, city);
      Replies replies(form.reply, {.tools = some_tools()});
      bool ends = false;
      EXPECT_EQ(replies.written(one, ends), one) << "a model may";
      return replies.read(one, 1);
    };
    EXPECT_EQ(read("<![CDATA[<b></param> ]]]]>"),
              R"({weather {"city": "<b></param> ]]", "days": 3}})");
    EXPECT_EQ(read("<![<b>]]>"), R"({weather {"city": "<![<b>]]>", "days": 3}})");
  }
}

TEST(ReplyPlan, ForcedCallsBeginAtOnceAndEnd) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    for (const Choice choice : {Choice::kRequired, Choice::kNamed}) {
      Replies replies(form.reply, {.tools = some_tools(choice)});
      bool ends = false;
      EXPECT_EQ(replies.written("No", ends), "");
      for (const Calls& calls : {kOne, kAll}) {
        if (calls.size() > 1 && choice == Choice::kNamed) continue;
        const std::string text = form.written(calls);
        EXPECT_EQ(replies.written(text, ends), text);
        EXPECT_EQ(ends, choice == Choice::kNamed || !form.calls.section_end.empty());
        for (const std::size_t size : {1, 3, 7}) {
          EXPECT_EQ(replies.read(text, size), shown_calls(calls));
        }
      }
    }
  }
}

TEST(ReplyPlan, ListedValuesAndBoundsAreKeptInEachForm) {
  const std::string schema =
      R"({"type": "object", "properties": {"days": {"type": "integer", "enum": [1, 20]},
            "level": {"type": "integer", "minimum": 0, "maximum": 5},
            "unit": {"enum": [1, "metre", true]}},
          "required": ["days", "level", "unit"], "additionalProperties": false})";
  const OfferedTools tools{.functions = {{"weather", schema}}, .choice = Choice::kRequired};
  const auto call = [](const char* json) {
    return Calls{{"weather", "abc123456", *parse_ordered_json(json, "")}};
  };
  for (const Form& form : argument_forms()) {
    SCOPED_TRACE(form.name);
    Replies replies(form.reply, {.tools = tools});
    bool ends = false;
    for (const char* right : {R"({"days": 20, "level": 5, "unit": "metre"})",
                              R"({"days": 1, "level": 0, "unit": true})"}) {
      const std::string text = form.written(call(right));
      EXPECT_EQ(replies.written(text, ends), text);
    }
    for (const char* wrong :
         {R"({"days": 3, "level": 5, "unit": 1})", R"({"days": 1, "level": 7, "unit": 1})"}) {
      const std::string text = form.written(call(wrong));
      EXPECT_NE(replies.written(text, ends), text);
    }
  }
}

Calls weather_calls(const char* arguments) {
  return {{"weather", "abc123456", *parse_ordered_json(arguments, "")}};
}

struct Rights {
  std::string schema;
  std::vector<const char*> right;
  std::vector<const char*> wrong;
};

// What strict tools of clients have.
const std::vector<Rights>& strict_schemas() {
  static const std::vector<Rights> schemas = {
      // Definitions, bases, values that may be null.
      {R"({"type": "object", "required": ["level"], "allOf": [{"$ref": "#/$defs/base"}],
           "properties": {"level": {"$ref": "#/$defs/level"}},
           "$defs": {"base": {"type": "object", "properties": {
                       "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                       "required": ["days"]},
                     "level": {"enum": ["low", "high"]}}})",
       {R"({"days": null, "level": "low"})", R"({"days": 20, "level": "high"})"},
       {R"({"days": "x", "level": "low"})", R"({"days": 1, "level": "mid"})",
        R"({"days": true, "level": "low"})", R"({"days": 1})"}},
      // Optional[Literal["low", "high"]] as pydantic and zod write it.
      {R"({"type": "object", "required": ["a", "b"], "properties": {
           "a": {"anyOf": [{"type": "string", "enum": ["low", "high"]}, {"type": "null"}]},
           "b": {"type": ["string", "null"], "enum": ["low", "high", null]}}})",
       {R"({"a": "low", "b": null})", R"({"a": null, "b": "high"})"},
       {R"({"a": "lo", "b": null})", R"({"a": 1, "b": null})", R"({"a": null, "b": "mid"})"}},
      // A format is no reason to refuse what can be met.
      {R"({"type": "object", "required": ["at"], "properties": {
           "at": {"type": "string", "format": "date"}, "n": {"type": ["integer", "null"]}}})",
       {R"({"at": "2024-02-28", "n": null})", R"({"at": "2024-02-28", "n": 7})"},
       {R"({"n": 7})"}},
      // A tree, records, a list of so many.
      {R"({"type": "object", "required": ["tree", "more", "few"], "properties": {
           "tree": {"$ref": "#/$defs/node"}, "more": {"type": "array",
             "items": {"type": "object", "additionalProperties": false, "required": ["x"],
                       "properties": {"x": {"type": "number"}, "y": {"type": "boolean"}}}},
           "few": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}}},
           "$defs": {"node": {"type": "object", "additionalProperties": false,
             "properties": {"v": {"enum": [1, 2]}, "l": {"type": "array",
               "items": {"$ref": "#/$defs/node"}}}, "required": ["v", "l"]}}})",
       {R"({"tree": {"v": 1, "l": [{"v": 2, "l": []}]}, "more": [{"x": 1.5}], "few": [1]})",
        R"({"tree": {"v": 1, "l": []}, "more": [], "few": [1, 2]})"},
       {R"({"tree": {"v": 1, "l": [{"v": 3, "l": []}]}, "more": [], "few": [1]})",
        R"({"tree": {"v": 1, "l": [{"v": 1}]}, "more": [], "few": [1]})",
        R"({"tree": {"v": 1, "l": []}, "more": [{"y": 1}], "few": [1]})",
        R"({"tree": {"v": 1, "l": []}, "more": [], "few": []})",
        R"({"tree": {"v": 1, "l": []}, "more": [], "few": [1, 2, 3]})"}},
      // A reference to the whole.
      {R"({"type": "object", "required": ["v"], "additionalProperties": false,
           "properties": {"v": {"type": "integer"}, "l": {"type": "array", "items": {
             "$ref": "#"}}}})",
       {R"({"v": 1, "l": [{"v": 2, "l": []}]})"},
       {R"({"v": 1, "l": [{"v": []}]})", R"({"v": 1, "l": [1]})"}},
  };
  return schemas;
}

TEST(ReplyPlan, UnionsAndReferencesAreKeptInEachForm) {
  for (const Rights& rights : strict_schemas()) {
    OfferedTools tools{.functions = {{"weather", rights.schema}}, .choice = Choice::kRequired};
    tools.functions.front().is_strict = true;
    for (const Form& form : argument_forms()) {
      SCOPED_TRACE(form.name + rights.schema);
      Replies replies(form.reply, {.tools = tools});
      bool ends = false;
      for (const char* right : rights.right) {
        const Calls calls = weather_calls(right);
        const std::string text = form.written(calls);
        EXPECT_EQ(replies.written(text, ends), text);
        EXPECT_EQ(replies.read(text, 3), shown_calls(calls));
      }
      for (const char* wrong : rights.wrong) {
        const std::string text = form.written(weather_calls(wrong));
        EXPECT_NE(replies.written(text, ends), text);
      }
    }
  }
}

TEST(ReplyPlan, AStrictSchemaThatAFormCannotKeepIsRefused) {
  for (const char* schema :
       {R"({"type": "object", "properties": {"city": {"type": "string", "pattern": "^a+$"}},
            "required": ["city"], "additionalProperties": false})",
        R"({"type": "object", "anyOf": [
              {"properties": {"city": {"type": "string"}}, "required": ["city"]},
              {"properties": {"days": {"type": "integer"}}, "required": ["days"]}]})"}) {
    const bool has_pattern = std::string_view(schema).find("pattern") != std::string_view::npos;
    OfferedTools tools{.functions = {{"weather", schema}}};
    for (const Form& form : argument_forms()) {
      SCOPED_TRACE(form.name);
      const bool is_kept = std::ranges::all_of(form.reply.calls, [&](const CallLayout& calls) {
        return calls.arguments == CallLayout::Arguments::kJson ||
               (has_pattern && calls.arguments == CallLayout::Arguments::kPython);
      });
      tools.functions.front().is_strict = true;
      const auto strict = Replies(form.reply, {.tools = tools}).stream();
      EXPECT_EQ(strict.ok(), is_kept);
      if (!strict.ok()) {
        EXPECT_TRUE(strict.error().message.starts_with("tools: 'weather' is strict"));
      }
      tools.functions.front().is_strict = false;
      bool ends = false;
      const std::string text = form.written(weather_calls(R"({"city": "aa"})"));
      EXPECT_EQ(Replies(form.reply, {.tools = tools}).written(text, ends), text);
    }
  }
}

TEST(ReplyPlan, WhatIsNoValueOfAnotherTypeIsAString) {
  const OfferedTools tools{.functions = {{"weather", R"({"type": "object", "properties": {
      "city": {"type": ["string", "null"]}}, "required": ["city"]})"}}};
  for (const Form& form : forms()) {
    if (form.calls.arguments != CallLayout::Arguments::kTagged) continue;
    if (!form.calls.string_name_end.empty()) continue;
    SCOPED_TRACE(form.name);
    for (const char* city : {R"({"city": "3"})", R"({"city": null})", R"({"city": "Rome"})"}) {
      const Calls calls = weather_calls(city);
      EXPECT_EQ(Replies(form.reply, {.tools = tools}).read(form.written(calls), 2),
                shown_calls(calls));
    }
  }
}

TEST(ReplyPlan, AForcedCallOfAnUnknownFormIsJson) {
  const std::string text = R"x({"name": "weather", "arguments": {"city": "Rome (I)", "days": 3}})x";
  for (const Choice choice : {Choice::kRequired, Choice::kNamed}) {
    Replies replies({}, {.tools = some_tools(choice)});
    bool ends = false;
    EXPECT_EQ(replies.written(text + text, ends), text);
    EXPECT_TRUE(ends);
    for (std::size_t size = 1; size <= text.size(); ++size) {
      EXPECT_EQ(replies.read(text, size), shown_calls(kOne)) << size;
      const std::string cut = text.substr(0, size - 1);  // its arguments, too, but for the last one
      EXPECT_NE(replies.read(cut, 3, FinishReason::kLength), shown_calls(kOne)) << cut;
      if (size == text.size()) continue;
      EXPECT_NE(replies.read(cut, 3, FinishReason::kStop), shown_calls(kOne)) << cut;
    }
  }
}

TEST(ReplyPlan, OneCallAloneEndsTheReply) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    OfferedTools tools = some_tools();
    tools.calls_several = false;
    Replies replies(form.reply, {.tools = tools});
    bool ends = false;
    EXPECT_EQ(replies.written(form.written(kOne) + "\nMore", ends), form.written(kOne));
    EXPECT_TRUE(ends);
  }
}

// One of a thousand tools is not the reason to refuse the others.
TEST(ReplyPlan, ASchemaThatCannotBeCompiledIsAnyObject) {
  OfferedTools tools = some_tools();
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
