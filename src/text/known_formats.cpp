// The table of formats. A row is what published templates write and models answer; the special
// tokens of a row are exact, Unicode bars and all.
#include "lmtp/text/known_formats.h"

#include <algorithm>
#include <iterator>

namespace lmtp::text {
namespace {

using Arguments = CallLayout::Arguments;
using Formats = std::vector<KnownFormat>;

std::string cat(std::string_view a, std::string_view b) { return std::string(a).append(b); }

// BEGIN{"name": "NAME", "arguments": {...}}END, one after another.
CallLayout json_calls(std::string_view opening, std::string_view begin, std::string_view end,
                      std::string_view separator = "\n",
                      std::string_view name_end = R"(", "arguments": )") {
  return {.opening = std::string(opening),
          .separator = std::string(separator),
          .call_begin = cat(begin, R"({"name": ")"),
          .name_end = std::string(name_end),
          .call_end = cat("}", end)};
}

// BEGIN[{"name": "NAME", "arguments": {...}}, ...]END
CallLayout json_list(std::string_view opening, std::string_view begin, std::string_view end,
                     std::string_view separator = ", ") {
  CallLayout calls = json_calls(opening, "", "", separator);
  calls.section_begin = cat(begin, "[");
  calls.section_end = cat("]", end);
  return calls;
}

// Objects of JSON, each between two texts.
Formats json_formats() {
  const CallLayout llama = json_calls("", "", "", "; ", R"(", "parameters": )");
  CallLayout llama_tagged = llama;
  llama_tagged.opening = llama_tagged.section_begin = "<|python_tag|>";
  return {
      {.name = "hermes",
       .markers = {"<tool_call>", "arguments"},
       .others = {"<function=", "<arg_key>"},
       .calls = {json_calls("<tool_call>", "<tool_call>\n", "\n</tool_call>")}},
      {.name = "hermes",  // Reka's
       .markers = {"<tool_call>", "arguments"},
       .others = {"<function=", "<arg_key>"},
       .calls = {json_calls("<tool_call>", "<tool_call>\n", "\n</tool_call>", "")}},
      {.name = "longcat",
       .markers = {"<longcat_tool_call>"},
       .calls = {json_calls("<longcat_tool_call>", "<longcat_tool_call>\n",
                            "\n</longcat_tool_call>")}},
      {.name = "granite-20b-fc",
       .markers = {"<function_call>"},
       .calls = {json_calls("<function_call>", "<function_call> ", "")}},
      {.name = "gigachat3",
       .markers = {"<|function_call|>"},
       .calls = {json_calls("<|function_call|>", "<|function_call|>", "", "")}},
      {.name = "gigachat3",
       .markers = {"function call", "<|role_sep|>"},
       .calls = {json_calls("<|message_sep|>\n\nfunction call<|role_sep|>\n",
                            "<|message_sep|>\n\nfunction call<|role_sep|>\n", "", "")}},
      {.name = "internlm",
       .markers = {"<|action_start|>", "<|plugin|>"},
       .calls = {json_calls("<|action_start|>", "<|action_start|><|plugin|>\n", "<|action_end|>",
                            "\n", R"(", "parameters": )")}},
      {.name = "minimax_m1",
       .markers = {"<tool_calls>", "</tool_calls>", "<beginning_of_sentence>"},
       .calls = {{.opening = "<tool_calls>",
                  .section_begin = "<tool_calls>\n",
                  .separator = "\n",
                  .section_end = "\n</tool_calls>",
                  .call_begin = R"({"name": ")",
                  .name_end = R"(", "arguments": )",
                  .call_end = "}"}}},
      {.name = "llama3_json",
       .markers = {"<|start_header_id|>", R"("name":)", R"("parameters":)"},
       .others = {"<function="},
       .calls = {llama, llama_tagged}},
      {.name = "llama4_json",
       .markers = {"<|header_start|>", R"("name":)", R"("parameters":)"},
       .calls = {json_calls("", "", "", "", R"(", "parameters": )")}},
  };
}

// Lists of such objects.
Formats list_formats() {
  const CallLayout cohere = {.opening = "<|START_ACTION|>",
                             .section_begin = "<|START_ACTION|>[\n    ",
                             .separator = ",\n    ",
                             .section_end = "\n]<|END_ACTION|>",
                             .call_begin = R"({"tool_call_id": ")",
                             .name_begin = R"(", "tool_name": ")",
                             .name_end = R"(", "parameters": )",
                             .call_end = "}"};
  CallLayout with_id = {.opening = "[TOOL_CALLS]",
                        .call_begin = "[TOOL_CALLS]",
                        .id_begin = "[CALL_ID]",
                        .name_end = "[ARGS]"};
  CallLayout without_id = with_id;
  without_id.id_begin.clear();
  return {
      {.name = "mistral",
       .markers = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
       .calls = {with_id, without_id}},
      {.name = "mistral", .markers = {"[TOOL_CALLS]", "[ARGS]"}, .calls = {without_id}},
      {.name = "mistral",
       .markers = {"[TOOL_CALLS]["},
       .calls = {json_list("[TOOL_CALLS]", "[TOOL_CALLS]", "")}},
      {.name = "mistral",
       .markers = {"[TOOL_CALLS]"},
       .calls = {json_list("[TOOL_CALLS]", "[TOOL_CALLS] ", "")}},
      {.name = "cohere_command4",
       .markers = {"<|START_ACTION|>", "<|START_TEXT|>"},
       .calls = {cohere},
       .dropped = {"<|START_TEXT|>", "<|END_TEXT|>"},
       .content_begin = "<|START_TEXT|>"},
      {.name = "cohere_command3",
       .markers = {"<|START_ACTION|>"},
       .calls = {cohere},
       .dropped = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"},
       .content_begin = "<|START_RESPONSE|>"},
      {.name = "apertus",
       .markers = {"<|tools_prefix|>"},
       .calls = {{.opening = "<|tools_prefix|>",
                  .section_begin = "<|tools_prefix|>[",
                  .separator = ", ",
                  .section_end = "]<|tools_suffix|>",
                  .call_begin = R"({")",
                  .name_end = R"(": )",
                  .call_end = "}"}}},
      {.name = "nemotron_json",
       .markers = {"<TOOLCALL>"},
       .calls = {json_list("<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>")}},
      {.name = "phi4_mini_json",
       .markers = {"<|tool|>", "<|/tool|>"},
       .calls = {json_list("<|tool_call|>", "<|tool_call|>", "<|/tool_call|>"),
                 json_list("functools[", "functools", "")}},
      {.name = "granite",
       .markers = {"<|tool_call|>"},
       .calls = {json_list("<|tool_call|>", "<|tool_call|>", "")}},
      {.name = "firefunction",
       .markers = {"functools["},
       .calls = {json_list("functools[", "functools", "")}},
      {.name = "jamba",
       .markers = {"<tool_calls>", "</tool_calls>"},
       .calls = {json_list("<tool_calls>", "<tool_calls>", "</tool_calls>")}},
  };
}

// Arguments between tags.
CallLayout qwen_coder(std::string_view separator) {
  return {.opening = "<tool_call>",
          .separator = std::string(separator),
          .call_begin = "<tool_call>\n<function=",
          .name_end = ">\n",
          .call_end = "</function>\n</tool_call>",
          .arguments = Arguments::kTagged,
          .argument_begin = "<parameter=",
          .argument_name_end = ">\n",
          .argument_end = "\n</parameter>\n"};
}

// `after_name`, `after_key` and `after_value`: white space there.
CallLayout arg_keys(std::string_view after_name, std::string_view after_key,
                    std::string_view after_value, std::string_view separator) {
  return {.opening = "<tool_call>",
          .separator = std::string(separator),
          .call_begin = "<tool_call>",
          .name_end = std::string(after_name),
          .call_end = "</tool_call>",
          .arguments = Arguments::kTagged,
          .argument_begin = "<arg_key>",
          .argument_name_end = cat("</arg_key>", after_key) + "<arg_value>",
          .argument_end = cat("</arg_value>", after_value)};
}

CallLayout dsml(std::string_view section) {
  const std::string bar = "｜DSML｜";
  const std::string begin = "<" + bar;
  const std::string end = "</" + bar;
  return {.opening = cat(begin, section) + ">",
          .section_begin = cat(begin, section) + ">\n",
          .separator = "\n",
          .section_end = "\n" + cat(end, section) + ">",
          .call_begin = begin + R"(invoke name=")",
          .name_end = "\">\n",
          .call_end = end + "invoke>",
          .arguments = Arguments::kTagged,
          .argument_begin = begin + R"(parameter name=")",
          .argument_name_end = R"(" string="false">)",
          .string_name_end = R"(" string="true">)",
          .argument_end = end + "parameter>\n"};
}

Formats tagged_formats() {
  CallLayout ling = arg_keys("\n", "\n", "", "\n");
  ling.call_end = "\n</tool_call>";
  const std::vector<std::string_view> keys = {"<arg_key>", "<tool_call>"};
  return {
      {.name = "qwen3_coder",
       .markers = {"<function=", "<parameter=", "<tool_call>"},
       .calls = {qwen_coder("\n")}},
      {.name = "step3p5",
       .markers = {"<function=", "<parameter=", "<tool_call>"},
       .calls = {qwen_coder("")}},
      {.name = "glm45", .markers = keys, .calls = {arg_keys("\n", "\n", "\n", "\n")}},
      {.name = "glm47", .markers = keys, .calls = {arg_keys("", "", "", "")}},
      {.name = "ling3", .markers = keys, .calls = {ling}},
      {.name = "seed_oss",
       .markers = {"<seed:tool_call>"},
       .calls = {{.opening = "<seed:tool_call>",
                  .separator = "\n",
                  .call_begin = "<seed:tool_call>\n<function=",
                  .name_end = ">\n",
                  .call_end = "</function>\n</seed:tool_call>",
                  .arguments = Arguments::kTagged,
                  .argument_begin = "<parameter=",
                  .argument_name_end = ">",
                  .argument_end = "</parameter>\n"}}},
      {.name = "minimax_m2",
       .markers = {"<minimax:tool_call>"},
       .calls = {{.opening = "<minimax:tool_call>",
                  .section_begin = "<minimax:tool_call>\n",
                  .separator = "\n",
                  .section_end = "\n</minimax:tool_call>",
                  .call_begin = R"(<invoke name=")",
                  .name_end = "\">\n",
                  .call_end = "</invoke>",
                  .arguments = Arguments::kTagged,
                  .argument_begin = R"(<parameter name=")",
                  .argument_name_end = R"(">)",
                  .argument_end = "</parameter>\n"}}},
      {.name = "minicpm5",
       .markers = {R"(<function name=")", R"(<param name=")", "</param>"},
       .calls = {{.opening = R"(<function name=")",
                  .separator = "\n",
                  .call_begin = R"(<function name=")",
                  .name_end = R"(">)",
                  .call_end = "</function>",
                  .arguments = Arguments::kTagged,
                  .argument_begin = R"(<param name=")",
                  .argument_name_end = R"(">)",
                  .text_begin = "<![CDATA[",
                  .text_end = "]]>",
                  .argument_end = "</param>"}}},
      {.name = "deepseek_v32",
       .markers = {"｜DSML｜", "function_calls>"},
       .calls = {dsml("function_calls")}},
      {.name = "deepseek_v4",
       .markers = {"｜DSML｜", "tool_calls>"},
       .calls = {dsml("tool_calls")}},
  };
}

Formats tagged_sections() {
  return {
      {.name = "hy_v3",
       .markers = {"<arg_key", "<tool_sep"},
       .calls = {{.opening = "<tool_calls>",
                  .section_begin = "<tool_calls>\n",
                  .separator = "\n",
                  .section_end = "\n</tool_calls>",
                  .call_begin = "<tool_call>",
                  .name_end = "<tool_sep>\n",
                  .call_end = "</tool_call>",
                  .arguments = Arguments::kTagged,
                  .argument_begin = "<arg_key>",
                  .argument_name_end = "</arg_key>\n<arg_value>",
                  .argument_end = "</arg_value>\n"}}},
      {.name = "k2_horizon",
       .markers = {"<ifm|tool_calls>", "<ifm|arg_key>"},
       .calls = {{.opening = "<ifm|tool_calls>",
                  .section_begin = "<ifm|tool_calls>\n",
                  .separator = "\n",
                  .section_end = "\n</ifm|tool_calls>",
                  .call_begin = "<ifm|tool_call>",
                  .name_end = "\n",
                  .call_end = "</ifm|tool_call>",
                  .arguments = Arguments::kTagged,
                  .argument_begin = "<ifm|arg_key>",
                  .argument_name_end = "</ifm|arg_key>\n<ifm|arg_value>",
                  .argument_end = "</ifm|arg_value>\n"}}},
  };
}

// The recipient stands before the channel, or after it; before it where a message begins alone, at
// the reply's start (which the prompt has begun with <|start|>assistant) or after that text.
// <|call|> ends the reply: it is one of the model's ends.
std::vector<CallLayout> harmony_calls() {
  const CallLayout after = {.opening = "<|channel|>commentary to=functions.",
                            .call_begin = "<|channel|>commentary to=functions.",
                            .name_end = " <|constrain|>json<|message|>",
                            .call_end = "<|call|>"};
  const CallLayout first = {.call_begin = " to=functions.",
                            .name_end = "<|channel|>commentary json<|message|>",
                            .call_end = "<|call|>"};
  CallLayout later = first;
  later.opening = later.call_begin = "<|start|>assistant to=functions.";
  return {after, first, later};
}

// llm-jp's, which may write several calls.
std::vector<CallLayout> llm_jp_calls() {
  const CallLayout first = {.separator = "<|end|><|start|>assistant",
                            .section_end = "<|call|>",
                            .call_begin = " to=functions.",
                            .name_end = "<|channel|>commentary <|constrain|> json<|message|>"};
  CallLayout later = first;
  later.opening = "<|start|>assistant to=functions.";
  later.section_begin = "<|start|>assistant";
  return {first, later};
}

// JSON after a name that stands outside of it.
Formats named_formats() {
  CallLayout deepseek = {.opening = "<｜tool▁calls▁begin｜>",
                         .section_begin = "<｜tool▁calls▁begin｜>",
                         .section_end = "<｜tool▁calls▁end｜>",
                         .call_begin = "<｜tool▁call▁begin｜>",
                         .name_end = "<｜tool▁sep｜>",
                         .call_end = "<｜tool▁call▁end｜>"};
  CallLayout fenced = deepseek;
  fenced.separator = "\n";
  fenced.call_begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>";
  fenced.name_end = "\n```json\n";
  fenced.call_end = "\n```<｜tool▁call▁end｜>";
  const std::vector<std::string> harmony_dropped = {
      "<|start|>assistant", "<|channel|>final<|message|>", "<|channel|>commentary<|message|>",
      "<|end|>", "<|return|>"};
  return {
      {.name = "kimi_k2",
       .markers = {"<|tool_calls_section_begin|>"},
       .calls = {{.opening = "<|tool_calls_section_begin|>",
                  .section_begin = "<|tool_calls_section_begin|>",
                  .section_end = "<|tool_calls_section_end|>",
                  .call_begin = "<|tool_call_begin|>functions.",
                  .index_begin = ":",
                  .name_end = "<|tool_call_argument_begin|>",
                  .call_end = "<|tool_call_end|>"}}},
      {.name = "deepseek_v3", .markers = {"<｜tool▁calls▁begin｜>", "```json"}, .calls = {fenced}},
      {.name = "deepseek_v31", .markers = {"<｜tool▁calls▁begin｜>"}, .calls = {deepseek}},
      {.name = "functionary",
       .markers = {"<function=", "</function>"},
       .others = {"<parameter="},
       .calls = {{.opening = "<function=",
                  .call_begin = "<function=",
                  .name_end = ">",
                  .call_end = "</function>"}}},
      {.name = "functionary_v3_2",
       .markers = {">>>${recipient}"},
       .calls = {{.opening = ">>>", .call_begin = ">>>", .name_end = "\n"},
                 {.separator = ">>>", .name_end = "\n"}},
       .dropped = {">>>all\n"},
       .content_begin = "all\n"},  // the prompt ends with >>>
      {.name = "solar_open",
       .markers = {"<|tool_call:begin|>"},
       .calls = {{.opening = "<|tool_calls|>",
                  .section_begin = "<|tool_calls|>",
                  .section_end = "<|calls|>",
                  .call_begin = "<|tool_call:begin|>",
                  .name_begin = "<|tool_call:name|>",
                  .name_end = "<|tool_call:args|>",
                  .call_end = "<|tool_call:end|>"}},
       .dropped = {"<|begin|>assistant", "<|content|>"},
       .message_begin = "<|begin|>assistant",
       .content_begin = "<|content|>"},
      {.name = "openai",
       .markers = {"<|channel|>commentary", "functions."},
       .calls = harmony_calls(),
       .dropped = harmony_dropped,
       .message_begin = "<|start|>assistant",
       .content_begin = "<|channel|>final<|message|>"},
      {.name = "openai",
       .markers = {"<|channel|>commentary", "functions."},
       .calls = llm_jp_calls(),
       .dropped = harmony_dropped,
       .message_begin = "<|start|>assistant",
       .content_begin = "<|channel|>final<|message|>"},
  };
}

Formats other_formats() {
  const auto loose = [](std::string_view begin, std::string_view end, std::string_view quote) {
    return CallLayout{.opening = std::string(begin),
                      .call_begin = cat(begin, "call:"),
                      .call_end = std::string(end),
                      .arguments = Arguments::kLoose,
                      .string_quote = std::string(quote)};
  };
  const auto python = [](std::string_view begin, std::string_view end,
                         std::string_view separator = ", ") {
    return CallLayout{.section_begin = std::string(begin),
                      .separator = std::string(separator),
                      .section_end = std::string(end),
                      .name_end = "(",
                      .call_end = ")",
                      .arguments = Arguments::kPython};
  };
  CallLayout lfm = python("<|tool_call_start|>[", "]<|tool_call_end|>");
  lfm.opening = "<|tool_call_start|>";
  CallLayout olmo = python("<function_calls>", "</function_calls>", "\n");
  olmo.opening = "<function_calls>";
  return {
      {.name = "gemma4",
       .markers = {"<|tool_call>call:"},
       .calls = {loose("<|tool_call>", "<tool_call|>", R"(<|"|>)")}},
      {.name = "functiongemma",
       .markers = {"<start_function_call>call:"},
       .calls = {loose("<start_function_call>", "<end_function_call>", "<escape>")}},
      {.name = "lfm2", .markers = {"<|tool_call_start|>"}, .calls = {lfm}},
      {.name = "lfm2",
       .markers = {"List of tools: "},
       .token = "<|tool_call_start|>",
       .calls = {lfm}},
      {.name = "olmo3", .markers = {"<function_calls>"}, .others = {"DSML"}, .calls = {olmo}},
      {.name = "pythonic",
       .markers = {"[func_name1(params_name1=params_value1"},
       .calls = {python("[", "]")}},
  };
}

struct KnownReasoning {
  std::string_view marker;  // in the template
  std::string_view begin;
  std::string_view end;
};

constexpr KnownReasoning kReasoning[] = {
    {"<|channel|>analysis<|message|>", "<|channel|>analysis<|message|>", "<|end|>"},
    {"<|channel>thought", "<|channel>thought\n", "<channel|>"},
    {"[BEGIN FINAL RESPONSE]\\n", "Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"},
    {"<|END_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>"},
    {"<|think|>", "<|think|>", "<|end|>"},
    {"</seed:think>", "<seed:think>", "</seed:think>"},
    {"</mm:think>", "<mm:think>", "</mm:think>"},
    {"[/THINK]", "[THINK]", "[/THINK]"},
    {"</think>", "<think>", "</think>"},
    {"</thinking>", "<thinking>", "</thinking>"},
};

}  // namespace

bool KnownFormat::is_of(std::string_view chat_template) const {
  const auto has = [chat_template](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  return std::ranges::all_of(markers, has) && std::ranges::none_of(others, has);
}

const std::vector<KnownFormat>& known_formats() {
  static const Formats formats = [] {
    Formats all;
    for (Formats some : {json_formats(), list_formats(), tagged_formats(), tagged_sections(),
                         named_formats(), other_formats()}) {
      std::ranges::move(some, std::back_inserter(all));
    }
    return all;
  }();
  return formats;
}

std::optional<ReasoningLayout> known_reasoning(std::string_view chat_template) {
  for (const KnownReasoning& known : kReasoning) {
    if (chat_template.find(known.marker) == std::string_view::npos) continue;
    return ReasoningLayout{std::string(known.begin), std::string(known.end)};
  }
  return std::nullopt;
}

}  // namespace lmtp::text
