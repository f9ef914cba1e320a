#include "call_grammar.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "argument_rules.h"
#include "lark_rules.h"
#include "lmtp/base/json.h"
#include "lmtp/constraint/schema_forms.h"
#include "lmtp/text/stream_text.h"
#include "tool_schema.h"

namespace lmtp::server {
namespace {

using Arguments = text::CallLayout::Arguments;

constexpr std::string_view kFixedSpaces =
    R"({"whitespace_flexible":false,"item_separator":", ","key_separator":": "})";

class CallWriter {
 public:
  CallWriter(const text::ReplyLayout& layout, const OfferedTools& tools,
             const tokenizer::Tokenizer* tokenizer)
      : layout_(layout), tools_(tools), rules_(tokenizer) {}

  CallGrammar write() {
    std::string start = "start:";
    for (const text::CallLayout& layout : layout_.calls) {
      start += (&layout == layout_.calls.data() ? "" : " |") + calls(layout);
    }
    written_.grammar = {Grammar::Kind::kLark, start + "\n" + rules_.text()};
    return std::move(written_);
  }

 private:
  using Layout = text::CallLayout;

  // What follows a function's name.
  struct Named {
    std::string_view name;
    std::string rest;
  };

  std::string calls(const Layout& layout);
  std::string call(const Layout& layout);
  std::string branches(std::span<const Named> named, std::size_t at);
  std::string arguments(const Layout& layout, const OfferedFunction& function);

  const text::ReplyLayout& layout_;
  const OfferedTools& tools_;
  LarkRules rules_;
  CallGrammar written_;
};

std::string CallWriter::calls(const Layout& layout) {
  // Outside of a section a call ends where nothing more of it can follow; more are opened anew.
  const bool is_alone = tools_.choice == OfferedTools::Choice::kAuto && !is_list(layout);
  const bool has_more =
      tools_.calls_several && !is_alone && tools_.choice != OfferedTools::Choice::kNamed;
  const std::string one = call(layout);
  std::string body = rules_.literal(layout.section_begin) + one;
  std::string end = layout.section_end;
  if (has_more) {
    const std::string separator = rules_.literal(layout.separator);
    body += " (" + separator + one + ")*";
    // What models write between calls they may write after the last one.
    const bool is_blank = layout.separator.find_first_not_of(" \n") == std::string::npos;
    if (!separator.empty() && end.starts_with(layout.separator)) {
      // Where two texts begin alike the longer one is read: the end begins after the first.
      body += separator;
      end.erase(0, layout.separator.size());
    } else if (is_blank && !separator.empty()) {
      body += " (" + separator + ")?";
    }
  }
  return rules_.rule(body + rules_.literal(end));
}

std::string CallWriter::call(const Layout& layout) {
  const std::string any_id = " /[A-Za-z0-9_\\-]{1,64}/";
  std::string body = rules_.literal(layout.call_begin);
  if (!layout.name_begin.empty()) body += any_id + rules_.literal(layout.name_begin);
  std::string end = rules_.literal(layout.name_end);
  if (!layout.index_begin.empty()) {
    end.insert(0, rules_.literal(layout.index_begin) + " /[0-9]{1,3}/");
  } else if (!layout.id_begin.empty()) {
    end.insert(0, rules_.literal(layout.id_begin) + any_id);
  }
  if (!end.empty()) end = rules_.rule(end);
  std::vector<Named> named;
  for (const OfferedFunction& function : tools_.functions) {
    named.push_back({function.name, end + arguments(layout, function)});
  }
  std::ranges::sort(named, {}, &Named::name);
  return rules_.rule(body + rules_.rule(branches(named, 0)) + rules_.literal(layout.call_end));
}

// What may follow the first `at` bytes, which these have in common. One of them alone goes on with
// a certain byte, so that the library has few to follow at a time, however many there are.
std::string CallWriter::branches(std::span<const Named> named, std::size_t at) {
  std::string body;
  while (!named.empty()) {
    const std::string_view name = named.front().name;
    const auto begins_so = [&](const Named& other) {
      return at < name.size() && other.name.substr(at).starts_with(name[at]);
    };
    const auto other = std::ranges::find_if_not(named.subspan(1), begins_so);
    const auto same = named.first(static_cast<std::size_t>(other - named.begin()));
    named = named.subspan(same.size());
    const auto end =
        static_cast<std::size_t>(std::ranges::mismatch(name, same.back().name).in1 - name.begin());
    body += body.empty() ? "" : " |";
    if (end > at) body += lark_quoted(name.substr(at, end - at));
    body += same.size() == 1 ? same.front().rest : rules_.rule(branches(same, end));
  }
  return body;
}

std::string CallWriter::arguments(const Layout& layout, const OfferedFunction& function) {
  if (layout.arguments == Arguments::kJson && !function.input_lark_in_json.empty()) {
    return rules_.rule(rules_.literal(R"({"input": ")") +
                       rules_.rule(lark_within(function.input_lark_in_json)) +
                       rules_.literal("\"}"));
  }
  if (layout.arguments == Arguments::kJson) {
    const bool is_any = function.is_loose || !is_within(function.parameters, rules_.budget());
    if (is_any && function.is_strict) written_.unkept = function.name;
    if (is_any && !function.is_strict && !function.is_loose) written_.cut.push_back(function.name);
    return rules_.rule(lark_json(is_any ? any_object() : function.parameters));
  }
  const std::string id = std::to_string(&layout - layout_.calls.data());
  ArgumentRules written = argument_rules(rules_, layout, id, function);
  if (function.is_strict && !written.is_kept) written_.unkept = function.name;
  if (written.is_cut && !function.is_strict && !function.is_loose) {
    written_.cut.push_back(function.name);
  }
  return std::move(written.body);
}

}  // namespace

std::string any_object() { return with_fixed_spaces(OrderedJson()); }
std::string any_json() { return OrderedJson{{"x-guidance", fixed_spaces()}}.dump(); }
OrderedJson fixed_spaces() { return OrderedJson::parse(kFixedSpaces); }

std::string with_fixed_spaces(OrderedJson schema) {
  if (!schema.is_object()) schema = {{"type", "object"}};
  if (!schema.contains("x-guidance")) schema["x-guidance"] = fixed_spaces();
  return constraint::to_known_form(schema.dump());
}

std::string schema_with_fixed_spaces(const std::string& text) {
  auto schema = parse_ordered_json(text, "schema");
  return with_fixed_spaces(schema ? *std::move(schema) : OrderedJson());
}

text::CallLayout json_layout() {
  return {.call_begin = R"({"name": ")", .name_end = R"(", "arguments": )", .call_end = "}"};
}

GrammarTriggers call_triggers(const text::ReplyLayout& layout, const OfferedTools& tools,
                              const tokenizer::Tokenizer& tokenizer) {
  GrammarTriggers triggers;
  triggers.repeats = tools.calls_several;
  for (const text::CallLayout& call : layout.calls) {
    if (!call.opening.empty()) {
      triggers.openings.push_back(call.opening);
      continue;
    }
    // A special token is whole or not there.
    const std::string marked = text::mark_special(tokenizer, end_of_name(call));
    const bool is_special = marked.starts_with(text::kSpecialBegin);
    const std::size_t length = is_special ? marked.find(text::kSpecialEnd) - 1 : 1;
    for (const OfferedFunction& function : tools.functions) {
      triggers.first_openings.push_back(call.section_begin + call.call_begin + function.name +
                                        end_of_name(call).substr(0, length));
    }
  }
  return triggers;
}

CallGrammar make_call_grammar(const text::ReplyLayout& layout, const OfferedTools& tools,
                              const tokenizer::Tokenizer* tokenizer) {
  return CallWriter(layout, tools, tokenizer).write();
}

}  // namespace lmtp::server
