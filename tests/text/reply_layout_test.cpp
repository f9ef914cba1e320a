// How models write calls, by their chat templates: those of real models, and what can be wrong with
// one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "call_probe.h"
#include "lmtp/text/call_writer.h"
#include "lmtp/text/find_reply_layout.h"
#include "lmtp/text/known_formats.h"
#include "source_dir.h"
#include "temp_folder.h"

namespace lmtp::text {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<const tokenizer::Tokenizer> demo_tokenizer() {
  static const std::shared_ptr<const tokenizer::Tokenizer> loaded =
      *tokenizer::load_tokenizer(testing::source_dir() + "/models/demo");
  return loaded;
}

LoadedChatTemplate load(const std::string& source) {
  return ChatTemplate::make({.templates = {{"default", source}},
                             .special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}},
                            demo_tokenizer());
}

std::vector<WrittenCall> some_calls() {
  std::vector<WrittenCall> calls;
  calls.push_back({"get_weather", "call12345", OrderedJson::object()});
  calls.back().arguments["city"] = "Cologne (left bank)";
  calls.back().arguments["days"] = 2;
  calls.back().arguments["hours"] = 12.5;
  calls.push_back({"stop", "call67890", OrderedJson::object()});
  calls.back().arguments["at"] = "noon";
  return calls;
}

Chat chat_of(const std::vector<WrittenCall>& calls) {
  OrderedJson tools = OrderedJson::array();
  OrderedJson written = OrderedJson::array();
  for (const WrittenCall& call : calls) {
    OrderedJson properties = OrderedJson::object();
    for (const auto& [name, value] : call.arguments.items()) {
      properties[name] = {{"type", value.is_string() ? "string" : "number"}, {"description", "it"}};
    }
    const OrderedJson parameters = {
        {"type", "object"}, {"properties", properties}, {"required", OrderedJson::array()}};
    const OrderedJson function = {
        {"name", call.name}, {"description", "it"}, {"parameters", parameters}};
    tools.push_back(OrderedJson{{"type", "function"}, {"function", function}});
    const OrderedJson said = {{"name", call.name}, {"arguments", json_text(call.arguments)}};
    written.push_back(OrderedJson{{"id", call.id}, {"type", "function"}, {"function", said}});
  }
  OrderedJson messages = OrderedJson::array();
  messages.push_back(OrderedJson{{"role", "user"}, {"content", "Hi"}});
  messages.push_back(OrderedJson{
      {"role", "assistant"}, {"content", ""}, {"reasoning_content", ""}, {"tool_calls", written}});
  return {.messages = messages.dump(), .tools = tools.dump(), .add_generation_prompt = false};
}

// Whether the template writes them as one of the layouts does, but for ids, which some templates
// write and models do not, and others number.
bool writes(const ChatTemplate& chat_template, const ReplyLayout& layout,
            std::vector<WrittenCall> calls) {
  const auto rendered = chat_template.render(chat_of(calls));
  std::string text = rendered ? rendered->text : "";
  for (const WrittenCall& call : calls) {
    const std::string id = R"(, "id": ")" + call.id + "\"";
    if (const std::size_t at = text.find(id); at != std::string::npos) text.erase(at, id.size());
  }
  std::vector<WrittenCall> numbered = calls;
  for (std::size_t i = 0; i < calls.size(); ++i) numbered[i].id = std::to_string(i);
  return std::ranges::any_of(layout.calls, [&](const CallLayout& one) {
    return text.find(write_calls(one, calls)) != std::string::npos ||
           text.find(write_calls(one, numbered)) != std::string::npos;
  });
}

std::string line_of(const ReplyLayout& layout, const CallProbe& probe) {
  return layout.name + " " + layout.source + " " +
         (probe.one_call.empty()    ? "writes-none"
          : probe.two_calls.empty() ? "writes-one"
                                    : "writes-all") +
         " " +
         (layout.reasoning ? json_text(layout.reasoning->begin + "..." + layout.reasoning->end)
                           : "no-reasoning");
}

// real_templates.txt says of each how its calls are written, what told it, how many calls of a
// message it writes, and where reasoning stands.
TEST(RealTemplates, HaveTheirFormats) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::directory_iterator(LMTP_REAL_TEMPLATES)) {
    if (entry.path().extension() != ".jinja") continue;
    const auto loaded = load(read(entry.path()));
    ASSERT_TRUE(loaded) << entry.path() << ": " << loaded.error().message;
    const ReplyLayout layout = find_reply_layout(loaded, "");
    const CallProbe probe = probe_calls(**loaded);
    const std::string name = entry.path().stem();
    found[name] = line_of(layout, probe);
    std::vector<WrittenCall> calls = some_calls();
    if (probe.two_calls.empty()) calls.pop_back();
    const bool has_calls = !layout.calls.empty() && !probe.one_call.empty();
    EXPECT_EQ(writes(**loaded, layout, calls), has_calls) << name;
  }
  std::string lines;
  for (const auto& [name, line] : found) lines += name + " " + line + "\n";
  EXPECT_EQ(lines, read(testing::source_dir() + "/tests/text/real_templates.txt"));
}

// A template of answers and calls: what is before and after each, and what it writes of a call.
std::string made(const std::string& begin, const std::string& call, const std::string& end) {
  return "{% for message in messages %}<|{{ message.role }}|>{{ message.content or '' }}"
         "{% if message.tool_calls %}" +
         begin + "{% for call in message.tool_calls %}" + call + "{% endfor %}" + end +
         "{% endif %}<|end|>\n{% endfor %}{% if tools %}{% endif %}";
}

constexpr const char* kName = "{{ call.function.name }}";
constexpr const char* kJson = "{{ call.function.arguments | tojson }}";

ReplyLayout layout_of(const std::string& source, std::string_view option = "",
                      const std::string& response_template = "") {
  const auto loaded = ChatTemplate::make(
      {.templates = {{"default", source}}, .response_template = response_template},
      demo_tokenizer());
  EXPECT_TRUE(loaded) << loaded.error().message;
  return find_reply_layout(loaded, option);
}

struct ProbeCase {
  std::string source;
  CallLayout layout;
};

std::vector<ProbeCase> json_cases() {
  const std::string name = kName;
  return {
      {made("", "<do>{\"tool\": \"" + name + "\", \"input\": " + kJson + "}</do>", ""),
       {.opening = "<do>",
        .call_begin = R"(<do>{"tool": ")",
        .name_end = R"(", "input": )",
        .call_end = "}</do>"}},
      {made("\n<|calls|>\n", "<c>" + name + "#{{ loop.index0 }}=" + kJson + "</c>\n", "</|calls|>"),
       {.opening = "<|calls|>",
        .section_begin = "<|calls|>\n",
        .separator = "\n",
        .section_end = "\n</|calls|>",
        .call_begin = "<c>",
        .index_begin = "#",
        .name_end = "=",
        .call_end = "</c>"}},
      {made("[CALLS][",
            "{\"name\": \"" + name + "\", \"arguments\": " + kJson +
                "}{% if not loop.last %}, {% endif %}",
            "]"),
       {.opening = "[CALLS]",
        .section_begin = "[CALLS][",
        .separator = ", ",
        .section_end = "]",
        .call_begin = R"({"name": ")",
        .name_end = R"(", "arguments": )",
        .call_end = "}"}},
      {made("", "<c id={{ call.id }}>" + name + ":" + kJson, ""),
       {.opening = "<c id=", .call_begin = "<c id=", .name_begin = ">", .name_end = ":"}},
      {made("", "<c>" + name + "({{ call.id }})" + kJson, ""),
       {.opening = "<c>", .call_begin = "<c>", .id_begin = "(", .name_end = ")"}},
  };
}

std::vector<ProbeCase> other_cases() {
  using Arguments = CallLayout::Arguments;
  const std::string name = kName;
  const std::string tagged =
      "{% for key, value in call.function.arguments.items() %}[[{{ key }}|"
      "{{ value if value is string else value | tojson }}]]\n{% endfor %}";
  return {
      {made("", "<c>" + name + "\n" + tagged + "</c>", ""),
       {.opening = "<c>",
        .call_begin = "<c>",
        .name_end = "\n",
        .call_end = "</c>",
        .arguments = Arguments::kTagged,
        .argument_begin = "[[",
        .argument_name_end = "|",
        .argument_end = "]]\n"}},
      {made("<c>[",
            name + "({% for key, value in call.function.arguments.items() %}{{ key }}="
                   "{{ \"'\" ~ value ~ \"'\" if value is string else value }}"
                   "{% if not loop.last %}, {% endif %}{% endfor %})"
                   "{% if not loop.last %}, {% endif %}",
            "]</c>"),
       {.opening = "<c>",
        .section_begin = "<c>[",
        .separator = ", ",
        .section_end = "]</c>",
        .name_end = "(",
        .call_end = ")",
        .arguments = Arguments::kPython}},
      {made("",
            "<c>" + name +
                "{{ '{' }}{% for key, value in call.function.arguments.items() %}"
                "{{ key }}:{{ '~' ~ value ~ '~' if value is string else value | tojson "
                "}}{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}</c>",
            ""),
       {.opening = "<c>",
        .call_begin = "<c>",
        .call_end = "</c>",
        .arguments = Arguments::kLoose,
        .string_quote = "~"}},
  };
}

TEST(ProbedLayouts, AreWhatTheTemplateWrites) {
  for (const auto& cases : {json_cases(), other_cases()}) {
    for (const ProbeCase& one : cases) {
      const ReplyLayout layout = layout_of(one.source);
      EXPECT_EQ(layout.name + "/" + layout.source, "probed/probe") << one.source;
      ASSERT_EQ(layout.calls.size(), 1U) << one.source;
      EXPECT_TRUE(layout.calls.front() == one.layout)
          << one.source << write_calls(layout.calls.front(), some_calls());
    }
  }
}

TEST(ProbedLayouts, AreNoneWhereItIsNotCertain) {
  const std::string name = kName;
  for (const std::string& source : {
           made("", "{{ call }}", ""),                                         // Python's repr
           made("", "Calling " + name + " with " + kJson, ""),                 // as anybody writes
           made("", "<c>" + std::string(kJson) + name + "</c>", ""),           // the name is last
           made("", "<c " + name + ">" + kJson + "</c " + name + ">", ""),     // it is there twice
           made("", "<c>" + name + "</c>", ""),                                // no arguments
           made("", "<c>{{ loop.length }}" + name + kJson + "</c>", ""),       // and no sense
           made("", name + kJson, ""),                                         // no opening
           made("{{ raise_exception('no') }}", "", ""),                        // refused
           made("{% for i in range(1000000000) %}{% endfor %}", "", ""),       // no end
           made("{{ 'lmtp_first{' * 300000 }}", name + kJson, ""),             // too long
           made("<c>{{ '{' * 100000 }}", name + kJson, "{{ '}' * 100000 }}"),  // deep
           std::string("{{ messages[-1].tool_calls[0].function.name * 1000 }}"),
           std::string("no tool"),
       }) {
    const ReplyLayout layout = layout_of(source);
    EXPECT_EQ(layout.name + "/" + layout.source, "none/probe") << source;
    EXPECT_TRUE(layout.calls.empty()) << source;
  }
}

constexpr const char* kHermesMarkers = "{# <tool_call> with name and arguments #}";

TEST(KnownFormats, AreFoundByMarkersUnlessTheTemplateWritesOtherwise) {
  const std::string name = kName;
  EXPECT_EQ(layout_of(kHermesMarkers).name, "hermes");
  const ReplyLayout other =
      layout_of(kHermesMarkers + made("", "<tool_call>" + name + "=" + kJson + "</tool_call>", ""));
  EXPECT_EQ(other.name, "probed");
  EXPECT_EQ(other.calls.at(0).call_begin, "<tool_call>");
  EXPECT_EQ(other.calls.at(0).name_end, "=");
}

TEST(KnownFormats, ASpecialTokenTellsWhereTheTemplateDoesNot) {
  const testing::TempFolder folder;
  const std::string demo = testing::source_dir() + "/models/demo/";
  for (const char* file : {"config.json", "tokenizer.json"}) {
    fs::copy(demo + file, folder.path() + "/" + file);
  }
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer",
    "additional_special_tokens": ["<|tool_call_start|>"]})");
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer =
      *tokenizer::load_tokenizer(folder.path());
  const ChatTemplateFiles files = {.templates = {{"default", "List of tools: {{ tools }}"}}};
  EXPECT_EQ(find_reply_layout(ChatTemplate::make(files, tokenizer), "").name, "lfm2");
  EXPECT_EQ(find_reply_layout(ChatTemplate::make(files, demo_tokenizer()), "").name, "none");
}

TEST(KnownFormats, AnOptionNamesOne) {
  for (const LoadedChatTemplate& loaded :
       {load(kHermesMarkers), LoadedChatTemplate(Error{ErrorCode::kNotFound, "none"})}) {
    const ReplyLayout mistral = find_reply_layout(loaded, "mistral");
    EXPECT_EQ(mistral.name + "/" + mistral.source, "mistral/option");
    EXPECT_FALSE(mistral.calls.empty());
    const ReplyLayout none = find_reply_layout(loaded, "none");
    EXPECT_EQ(none.name + "/" + none.source, "none/option");
    EXPECT_TRUE(none.calls.empty());
  }
  EXPECT_EQ(find_reply_layout(Error{ErrorCode::kNotFound, "none"}, ""), ReplyLayout());
  // With variants it is the template's.
  const std::string nemo =
      made("[TOOL_CALLS][",
           "{\"name\": \"" + std::string(kName) + "\", \"arguments\": " + kJson +
               "}{% if not loop.last %}, {% endif %}",
           "]");
  EXPECT_EQ(layout_of(nemo, "mistral").calls.at(0).section_begin, "[TOOL_CALLS][");
  EXPECT_TRUE(is_tool_call_format("none") && is_tool_call_format("hermes"));
  EXPECT_FALSE(is_tool_call_format("") || is_tool_call_format("Hermes"));
}

TEST(KnownFormats, OpenWithWhatTheyWrite) {
  for (const KnownFormat& format : known_formats()) {
    ASSERT_FALSE(format.calls.empty()) << format.name;
    for (const CallLayout& layout : format.calls) {
      EXPECT_TRUE((layout.section_begin + layout.call_begin).starts_with(layout.opening))
          << format.name;
      EXPECT_FALSE(layout.name_end.empty() && layout.opening.empty()) << format.name;
    }
  }
}

// As transformers' own server has them for models without one (cli/serving/utils.py).
constexpr const char* kQwenResponse = R"x({"defaults": {"role": "assistant"}, "fields": {
  "reasoning_content": {"open": "<think>", "close": "</think>", "content": "text"},
  "tool_calls": {"open_pattern": "\\s*<tool_call>", "close": "</tool_call>", "repeats": true,
    "content": "json", "transform": {"type": "function", "function": "{content}"}}}})x";
constexpr const char* kQwenCoderResponse = R"x({"fields": {
  "tool_calls": {"open_pattern": "\\s*<tool_call>\\s*<function=(?P<name>[^>\\n]+)>",
    "close_pattern": "</function>\\s*</tool_call>", "repeats": true, "content": "xml-inline",
    "content_args": {"tag_pattern":
      "<parameter=(?P<key>[^>\\n]+)>\\s*(?P<value>.*?)\\s*</parameter>"},
    "transform": {"function": {"name": "{name}", "arguments": "{content}"}}}}})x";
constexpr const char* kGemmaResponse = R"x({"fields": {
  "reasoning_content": {"open": "<|channel>thought\n", "close": "<channel|>"},
  "tool_calls": {"open_pattern": "<\\|tool_call>call:(?P<name>\\w+)", "close": "<tool_call|>",
    "repeats": true, "content": "json",
    "content_args": {"unquoted_keys": true, "string_delims": [["<|\"|>", "<|\"|>"]]},
    "transform": {"function": {"name": "{name}", "arguments": "{content}"}}}}})x";
constexpr const char* kOwnResponse = R"x({"fields": {"thinking": {"open": "<t>", "close": "</t>"},
  "tool_calls": {"open": "<calls>", "close": "</calls>", "content": "json", "transform_each": true,
    "transform": {"function": {"name": "{tool}", "arguments": "{input}"}}}}})x";

TEST(ResponseTemplates, TellTheFormat) {
  const auto told = [](const char* response, const std::string& source = "tool") {
    ReplyLayout layout = layout_of(source, "", response);
    EXPECT_EQ(layout.source, "response_template");
    return layout;
  };
  EXPECT_EQ(told(kQwenResponse).name, "hermes");
  EXPECT_EQ(told(kQwenResponse).reasoning, (ReasoningLayout{"<think>", "</think>"}));
  EXPECT_EQ(told(kQwenCoderResponse).name, "qwen3_coder");
  EXPECT_EQ(told(kGemmaResponse).name, "gemma4");
  EXPECT_EQ(told(kGemmaResponse).reasoning->begin, "<|channel>thought\n");
  const ReplyLayout own = told(kOwnResponse);
  EXPECT_EQ(own.name, "described");
  EXPECT_EQ(own.reasoning, (ReasoningLayout{"<t>", "</t>"}));
  EXPECT_EQ(own.calls, (std::vector<CallLayout>{{.opening = "<calls>",
                                                 .section_begin = "<calls>[",
                                                 .separator = ", ",
                                                 .section_end = "]</calls>",
                                                 .call_begin = R"({"tool": ")",
                                                 .name_end = R"(", "input": )",
                                                 .call_end = "}"}}));
  // White space is the template's.
  const std::string calls = "{\"tool\": \"" + std::string(kName) + "\", \"input\": " + kJson +
                            "}{% if not loop.last %},\n{% endif %}";
  const ReplyLayout written = told(kOwnResponse, made("<calls>\n[", calls, "]\n</calls>"));
  EXPECT_EQ(written.name, "probed");
  EXPECT_EQ(written.calls.at(0).section_begin, "<calls>\n[");
  // An option comes first.
  EXPECT_EQ(layout_of("tool", "mistral", kQwenResponse).source, "option");
}

TEST(ResponseTemplates, ThatAreNotUnderstoodAreLeftAside) {
  const std::string begin = R"({"fields": {"tool_calls": {"close": "</c>", "content": "json", )";
  const std::string end = R"("transform": {"function": "{content}"}}}})";
  EXPECT_EQ(layout_of(kHermesMarkers, "", begin + R"("open": "<c>", )" + end).name, "described");
  std::string with_no_quotes = kGemmaResponse;
  const std::string quotes = R"("<|\"|>", "<|\"|>")";
  with_no_quotes.replace(with_no_quotes.find(quotes), quotes.size(), R"("", "")");
  for (
      const std::string& response :
      {std::string("[]"), std::string("{}"), std::string(R"x({"fields": 7})x"), begin + end,
       begin + R"x("open": 7, )x" + end, begin + R"x("open": [], )x" + end,
       begin + R"x("open_pattern": "<c|<d>", )x" + end,
       begin + R"x("open_pattern": "(?P<name>", )x" + end,
       begin + R"x("open_pattern": "<c>(?P<name>x)(?P<name>y)", )x" + end,
       begin + R"x("open_pattern": "\\", )x" + end, begin + R"x("open_pattern": "a{9}", )x" + end,
       begin + R"x("open": "<c>"}}})x", with_no_quotes,
       begin +
           R"x("open": "<c>", "transform": {"function": {"name": "x", "arguments": "{y}"}}}}})x"}) {
    const ReplyLayout layout = layout_of(kHermesMarkers, "", response);
    EXPECT_EQ(layout.name + "/" + layout.source, "hermes/table") << response;
  }
}

TEST(Reasoning, IsWhereTheTemplateWritesIt) {
  const auto written = layout_of(
      "{% for message in messages %}{% if message.reasoning_content %}<why>\n"
      "{{ message.reasoning_content }}\n</why>{% endif %}{{ message.content }}{% endfor %}");
  EXPECT_EQ(written.reasoning, (ReasoningLayout{"<why>", "</why>"}));
  for (const char* source :
       {"{{ messages[-1].content }}{{ messages[-1].reasoning_content }}",
        "<why>{{ messages[-1].reasoning_content }}</y>{{ messages[-1].content }}",
        "{{ messages[-1].reasoning_content }}{{ messages[-1].content }}"}) {
    EXPECT_FALSE(layout_of(source).reasoning) << source;
  }
}

}  // namespace
}  // namespace lmtp::text
