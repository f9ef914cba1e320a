#include "call_grammar.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/constraint/schema_forms.h"
#include "lmtp/text/stream_text.h"
#include "tool_parameters.h"

namespace lmtp::server {
namespace {

using Arguments = text::CallLayout::Arguments;

// Those that a schema lists, where none is an array or an object; empty: any.
std::vector<OrderedJson> only_values(const OrderedJson& schema) {
  const auto one = schema.find("const");
  const auto some = schema.find("enum");
  std::vector<OrderedJson> values;
  if (one != schema.end()) {
    values.push_back(*one);
  } else if (some != schema.end() && some->is_array()) {
    values.assign(some->begin(), some->end());
  }
  const bool is_plain = std::ranges::all_of(values, &OrderedJson::is_primitive);
  return is_plain ? values : std::vector<OrderedJson>();
}

bool has_bounds(const OrderedJson& schema) {
  constexpr const char* kBounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                     "multipleOf"};
  return std::ranges::any_of(kBounds, [&](const char* key) { return schema.contains(key); });
}

constexpr int kValueDepthMax = 16;  // of schemas in one another

constexpr std::string_view kFixedSpaces =
    R"({"whitespace_flexible":false,"item_separator":", ","key_separator":": "})";

std::string as_lark(const std::string& schema) { return " %json " + schema; }
// That it is no more than this text.
std::string as_regex(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x80 ? std::string{'\\', 'x', kHex[byte >> 4U], kHex[byte & 15U]}
                       : std::string(1, c);
  }
  return out;
}
std::string in_quotes(std::string_view text) {
  std::string out = " ";
  append_json_string(text, out);
  return out;
}

}  // namespace

std::string lark_literal(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> special;
  const std::string marked = text::mark_special(tokenizer, text, &special);
  std::string_view rest = marked;
  std::string out;
  const auto add = [&](std::string_view plain) {
    if (!plain.empty()) out += in_quotes(plain);
  };
  for (const TokenId id : special) {
    add(rest.substr(0, rest.find(text::kSpecialBegin)));
    out += " <[" + std::to_string(id) + "]>";
    rest.remove_prefix(rest.find(text::kSpecialEnd) + 1);
  }
  add(rest);
  return out;
}

namespace {

// Writes rules in Lark's notation.
class LarkWriter {
 public:
  LarkWriter(const text::ReplyLayout& layout, const OfferedTools& tools,
             const tokenizer::Tokenizer* tokenizer)
      : layout_(layout), tools_(tools), tokenizer_(tokenizer) {}

  std::string write() {
    std::string start = "start:";
    for (const text::CallLayout& layout : layout_.calls) {
      start += (&layout == layout_.calls.data() ? "" : " |") + calls(layout);
    }
    return start + "\n" + rules_;
  }

  std::string write_arguments(const OfferedFunction& function) {
    std::string start = "start:";
    for (const text::CallLayout& layout : layout_.calls) {
      start += (&layout == layout_.calls.data() ? " (" : " |") + arguments(layout, function);
    }
    return start + ") \")\"\n" + rules_;  // they may be empty
  }

  // Whether all that it has written does.
  bool keeps_schemas() const { return keeps_schemas_; }

 private:
  using Layout = text::CallLayout;

  // What follows a function's name.
  struct Named {
    std::string_view name;
    std::string rest;
  };

  // A rule by its body: there is one of each.
  std::string rule(const std::string& body, const std::string& attributes = "") {
    const auto [found, is_new] =
        names_.try_emplace(attributes + ":" + body, " r" + std::to_string(names_.size()));
    if (is_new) add(found->second.substr(1) + attributes, body);
    return found->second;
  }
  void add(const std::string& name, const std::string& body) { rules_ += name + ":" + body + "\n"; }

  std::string literal(const std::string& text);
  std::string calls(const Layout& layout);
  std::string call(const Layout& layout);
  std::string branches(std::span<const Named> named, std::size_t at);
  std::string arguments(const Layout& layout, const OfferedFunction& function);
  std::string tagged(const Layout& layout, const OfferedFunction& function);
  std::string argument(const Layout& layout, const Parameter& parameter, bool keeps_schema);
  std::string text_before(const std::string& end, const std::string& other_than = "");
  // name=value, ... or {name:value,...}
  std::string named(const Layout& layout, const OfferedFunction& function);
  // A value of a schema within `root`.
  std::string value(const Layout& layout, const OrderedJson& root, const OrderedJson& schema,
                    int depth = 0);
  std::string any_of_types(const Layout& layout, JsonTypes types);
  std::string scalar(const Layout& layout, const OrderedJson& value);
  void add_values(const Layout& layout, const std::string& id);

  const text::ReplyLayout& layout_;
  const OfferedTools& tools_;
  const tokenizer::Tokenizer* const tokenizer_;
  std::string rules_;
  bool keeps_schemas_ = true;
  std::unordered_map<std::string, std::string> names_;     // of rules, by what they are
  std::unordered_map<std::string, std::string> literals_;  // by their texts
};

std::string LarkWriter::literal(const std::string& text) {
  const auto [found, is_new] = literals_.try_emplace(text);
  if (!is_new) return found->second;
  if (tokenizer_ != nullptr) return found->second = lark_literal(*tokenizer_, text);
  return found->second = text.empty() ? "" : in_quotes(text);
}

std::string LarkWriter::calls(const Layout& layout) {
  // Outside of a section a call ends where nothing more of it can follow; more are opened anew.
  const bool is_alone = tools_.choice == OfferedTools::Choice::kAuto && !is_list(layout);
  const bool has_more =
      tools_.calls_several && !is_alone && tools_.choice != OfferedTools::Choice::kNamed;
  const std::string one = call(layout);
  std::string body = literal(layout.section_begin) + one;
  std::string end = layout.section_end;
  if (has_more) {
    const std::string separator = literal(layout.separator);
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
  return rule(body + literal(end));
}

std::string LarkWriter::call(const Layout& layout) {
  const std::string any_id = " /[A-Za-z0-9_\\-]{1,64}/";
  std::string body = literal(layout.call_begin);
  if (!layout.name_begin.empty()) body += any_id + literal(layout.name_begin);
  std::string end = literal(layout.name_end);
  if (!layout.index_begin.empty()) {
    end.insert(0, literal(layout.index_begin) + " /[0-9]{1,3}/");
  } else if (!layout.id_begin.empty()) {
    end.insert(0, literal(layout.id_begin) + any_id);
  }
  if (!end.empty()) end = rule(end);
  std::vector<Named> named;
  for (const OfferedFunction& function : tools_.functions) {
    named.push_back({function.name, end + arguments(layout, function)});
  }
  std::ranges::sort(named, {}, &Named::name);
  return rule(body + rule(branches(named, 0)) + literal(layout.call_end));
}

// What may follow the first `at` bytes, which these have in common. One of them alone goes on with
// a certain byte, so that the library has few to follow at a time, however many there are.
std::string LarkWriter::branches(std::span<const Named> named, std::size_t at) {
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
    if (end > at) body += in_quotes(name.substr(at, end - at));
    body += same.size() == 1 ? same.front().rest : rule(branches(same, end));
  }
  return body;
}

std::string LarkWriter::arguments(const Layout& layout, const OfferedFunction& function) {
  if (layout.arguments == Arguments::kTagged) return tagged(layout, function);
  if (layout.arguments != Arguments::kJson) return named(layout, function);
  return rule(as_lark(function.is_loose ? with_fixed_spaces(OrderedJson()) : function.parameters));
}

bool is_told_apart(const text::CallLayout& layout, const std::string& name) {
  return (layout.argument_name_end.empty() ||
          name.find(layout.argument_name_end.front()) == std::string::npos) &&
         (layout.string_name_end.empty() ||
          name.find(layout.string_name_end.front()) == std::string::npos);
}

// Whether argument() lets no other values through than those of the schema.
bool keeps(const text::CallLayout& layout, const OrderedJson& root, const Parameter& parameter) {
  if (!parameter.texts.empty()) return says_only(parameter.value, {"type", "enum", "const"});
  if (parameter.is_json()) return !parameter.schema.empty();
  if (is_plain(root, parameter.value)) return true;
  const bool is_either = !parameter.is_text() && !layout.string_name_end.empty();
  return is_either && !parameter.schema.empty() && takes_any_text(root, parameter.value);
}

// The required ones and any of the others, in the order of the schema.
std::string LarkWriter::tagged(const Layout& layout, const OfferedFunction& function) {
  std::string body;
  std::string any;
  const Parameters parameters = parameters_of(function);
  keeps_schemas_ = keeps_schemas_ && parameters.is_whole;
  for (const Parameter& parameter : parameters.each) {
    if (!is_told_apart(layout, parameter.name)) {
      keeps_schemas_ = keeps_schemas_ && !parameter.is_required;
      continue;
    }
    const std::string one = rule(argument(layout, parameter, !function.is_loose));
    keeps_schemas_ = keeps_schemas_ && keeps(layout, parameters.root, parameter);
    body += one + (parameter.is_required && !function.is_loose ? "" : "?");
    any += (any.empty() ? "" : " |") + one;
  }
  if (layout.argument_separator.empty() || any.empty()) return body;
  keeps_schemas_ = keeps_schemas_ && std::ranges::none_of(parameters.each, &Parameter::is_required);
  any = rule(any);  // in any order
  return " (" + any + " (" + literal(layout.argument_separator) + any + ")*)?";
}

std::string LarkWriter::argument(const Layout& layout, const Parameter& parameter,
                                 bool keeps_schema) {
  const std::string any_json = as_lark("{\"x-guidance\":" + std::string(kFixedSpaces) + "}");
  const std::string end = literal(layout.argument_end);
  const bool has_schema = keeps_schema && !parameter.schema.empty();
  const std::string json = has_schema ? as_lark(parameter.schema) : rule(any_json);
  std::string value;
  if (keeps_schema && !parameter.texts.empty()) {
    for (const std::string& text : parameter.texts) {
      value += (value.empty() ? " (" : " |") + literal(text + layout.argument_end);
    }
    value += ')';
  } else if (parameter.is_json()) {
    value = json + end;
  } else {
    value = text_before(layout.argument_end, layout.text_begin);
    if (!layout.text_begin.empty()) {
      value = " (" + value + " |" + literal(layout.text_begin) +
              text_before(layout.text_end + layout.argument_end) + ")";
    }
  }
  const std::string begin = literal(layout.argument_begin + parameter.name);
  std::string as_text = begin + literal(layout.string_name_end) + value;
  const std::string as_json = begin + literal(layout.argument_name_end);
  if (layout.string_name_end.empty()) return as_json + value;
  if (parameter.is_text()) return as_text;
  if (parameter.is_json()) return as_json + value;
  return as_text + " |" + as_json + json + end;  // it may be either
}

// Any text up to this one, and this one. A special token ends it by itself: none of its bytes is
// text. other_than: what the text does not begin with; empty: anything.
std::string LarkWriter::text_before(const std::string& end, const std::string& other_than) {
  std::string any = " /(?s:.*)/";
  if (!other_than.empty()) {
    const auto [found, is_new] =
        names_.try_emplace("TEXT:" + other_than, " TEXT_" + std::to_string(names_.size()));
    const std::string excluded = R"( & ~/(?s:)" + as_regex(other_than) + ".*)/";
    if (is_new) add(found->second.substr(1), any + excluded);
    any = found->second;
  }
  const std::string closing = literal(end);
  if (closing.starts_with(" <[")) return rule(any) + closing;
  return rule(any, "[suffix=" + in_quotes(end).substr(1) + "]");
}

// In the order of the schema, the required ones and any of the others.
std::string LarkWriter::named(const Layout& layout, const OfferedFunction& function) {
  const Parameters parameters = parameters_of(function);
  keeps_schemas_ = keeps_schemas_ && parameters.is_whole;
  const bool is_python = layout.arguments == Arguments::kPython;
  const std::string comma = is_python ? R"( ", ")" : R"( ",")";
  std::string first;  // nothing is written yet
  std::string more;   // a comma goes before the next one
  bool is_optional = true;
  for (auto at = parameters.each.rbegin(); at != parameters.each.rend(); ++at) {
    const bool is_name = !at->name.empty() && std::ranges::all_of(at->name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!is_name) keeps_schemas_ = keeps_schemas_ && !at->is_required;
    if (!is_name) continue;
    const std::string one = rule(literal(at->name + (is_python ? "=" : ":")) +
                                 (function.is_loose ? any_of_types(layout, at->types)
                                                    : value(layout, parameters.root, at->value)));
    is_optional = is_optional && !at->is_required;
    first = rule(one + more + (at->is_required || first.empty() ? "" : " |" + first));
    const std::string with = comma + one;
    more = rule((at->is_required ? with : " (" + with + ")?") + more);
  }
  if (first.empty()) return is_python ? "" : R"( "{}")";
  const std::string body = is_optional ? " (" + first + ")?" : first;
  return is_python ? body : R"( "{")" + body + R"( "}")";
}

std::string LarkWriter::value(const Layout& layout, const OrderedJson& root,
                              const OrderedJson& given, int depth) {
  const OrderedJson& schema = target_of(root, given);
  const JsonTypes types = types_of(root, schema);
  if (is_plain(root, schema)) return any_of_types(layout, types);
  if (!schema.is_object() || depth > kValueDepthMax) {
    keeps_schemas_ = false;
    return any_of_types(layout, types);
  }
  std::string only;
  for (const OrderedJson& value : only_values(schema)) {
    only += (only.empty() ? " (" : " |") + scalar(layout, value);
  }
  if (!only.empty()) {
    keeps_schemas_ = keeps_schemas_ && says_only(schema, {"type", "enum", "const"});
    return only + ")";
  }
  if ((types & ~type_named("number")) == 0 && has_bounds(schema)) {
    const std::string alone = schema_alone(root, schema);
    if (!alone.empty()) return as_lark(alone);
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    if (!schema.contains(key) || !schema[key].is_array() || schema[key].empty()) continue;
    if (!says_only(schema, {key})) continue;
    for (const OrderedJson& one : schema[key]) {
      only += (only.empty() ? " (" : " |") + value(layout, root, one, depth + 1);
    }
    return only + ")";
  }
  const auto items = schema.find("items");
  if (types == type_named("array") && items != schema.end()) {
    keeps_schemas_ = keeps_schemas_ && says_only(schema, {"type", "items"});
    const std::string one = rule(value(layout, root, *items, depth + 1));
    const std::string comma = layout.arguments == Arguments::kPython ? R"( ", ")" : R"( ",")";
    return rule(R"( "[" ()" + one + " (" + comma + one + R"()*)? "]")");
  }
  keeps_schemas_ = false;
  return any_of_types(layout, types);
}

std::string LarkWriter::any_of_types(const Layout& layout, JsonTypes types) {
  const bool is_python = layout.arguments == Arguments::kPython;
  const std::string id = std::to_string(&layout - layout_.calls.data());
  if (names_.try_emplace("values_" + id).second) add_values(layout, id);
  if (types == kAnyType) return " value_" + id;
  if ((types & type_named("number")) == type_named("number")) types &= ~type_named("integer");
  const std::string of_each[] = {" text_value_" + id,
                                 is_python ? R"( "None")" : R"( "null")",
                                 is_python ? R"( "True" | "False")" : R"( "true" | "false")",
                                 " /-?(0|[1-9][0-9]{0,17})/",
                                 " number_" + id,
                                 " list_" + id,
                                 " object_" + id};
  std::string any;
  for (std::size_t i = 0; i < std::size(of_each); ++i) {
    if ((types >> i & 1) != 0) any += (any.empty() ? " (" : " |") + of_each[i];
  }
  return any.empty() ? " value_" + id : any + ")";
}

std::string LarkWriter::scalar(const Layout& layout, const OrderedJson& value) {
  const bool is_python = layout.arguments == Arguments::kPython;
  if (is_python && value.is_boolean()) return value.get<bool>() ? R"( "True")" : R"( "False")";
  if (is_python && value.is_null()) return R"( "None")";
  if (!value.is_string()) return literal(value.dump());
  const auto& text = value.get_ref<const std::string&>();
  if (!is_python) return literal(layout.string_quote + text + layout.string_quote);
  const std::string quoted = value.dump();
  const bool is_plain = quoted.size() == text.size() + 2 && text.find('\'') == std::string::npos;
  return literal(quoted) + (is_plain ? " |" + literal("'" + text + "'") : "");
}

// Values of any kind, as Python or Gemma write them.
void LarkWriter::add_values(const Layout& layout, const std::string& id) {
  const bool is_python = layout.arguments == Arguments::kPython;
  const std::string comma = is_python ? R"( ", ")" : R"( ",")";
  const std::string value = " value_" + id;
  const std::string python_text = R"x((/"([^"\\\n]|\\.)*"/ | /'([^'\\\n]|\\.)*'/))x";
  const std::string key =
      is_python ? " " + python_text + R"( ": ")" : R"( /[A-Za-z_][A-Za-z0-9_\-]*/ ":")";
  add("text_value_" + id, is_python
                              ? " " + python_text
                              : literal(layout.string_quote) + text_before(layout.string_quote));
  add("number_" + id, R"( /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?/)");
  add("list_" + id, R"( "[" ()" + value + " (" + comma + value + R"()*)? "]")");
  add("object_" + id, R"( "{" (pair_)" + id + " (" + comma + " pair_" + id + R"()*)? "}")");
  add("pair_" + id, key + value);
  add("value_" + id,
      " text_value_" + id + " | number_" + id + " | list_" + id + " | object_" + id +
          (is_python ? R"( | "True" | "False" | "None")" : R"( | "true" | "false" | "null")"));
}

}  // namespace

std::string with_fixed_spaces(OrderedJson schema) {
  if (!schema.is_object()) schema = {{"type", "object"}};
  if (!schema.contains("x-guidance")) schema["x-guidance"] = OrderedJson::parse(kFixedSpaces);
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

Grammar make_call_grammar(const text::ReplyLayout& layout, const OfferedTools& tools,
                          const tokenizer::Tokenizer* tokenizer) {
  return {Grammar::Kind::kLark, LarkWriter(layout, tools, tokenizer).write()};
}

ArgumentGrammar make_argument_grammar(const text::ReplyLayout& layout,
                                      const OfferedFunction& function,
                                      const tokenizer::Tokenizer* tokenizer) {
  const OfferedTools none;
  LarkWriter writer(layout, none, tokenizer);
  std::string text = writer.write_arguments(function);
  return {{Grammar::Kind::kLark, std::move(text)}, writer.keeps_schemas()};
}

}  // namespace lmtp::server
