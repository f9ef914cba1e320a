#include "call_grammar.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/constraint/schema_forms.h"
#include "lmtp/text/stream_text.h"

namespace lmtp::server {
namespace {

using Arguments = text::CallLayout::Arguments;

bool has_type(const OrderedJson& schema, const char* type) {
  const auto found = schema.find("type");
  return found != schema.end() && *found == type;
}

bool is_enum_of_texts(const OrderedJson& schema) {
  const auto values = schema.find("enum");
  return values != schema.end() && values->is_array() && !values->empty() &&
         std::ranges::all_of(*values, [](const OrderedJson& value) { return value.is_string(); });
}

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

// Whether a value may be told to be no string by its schema alone.
bool is_never_text(const OrderedJson& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return false;
  if (type->is_string()) return *type != "string";
  return type->is_array() && std::ranges::find(*type, OrderedJson("string")) == type->end();
}

constexpr std::string_view kFixedSpaces =
    R"({"whitespace_flexible":false,"item_separator":", ","key_separator":": "})";

std::string as_lark(const std::string& schema) { return " %json " + schema; }
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
  std::string text_before(const std::string& end);
  // name=value, ... or {name:value,...}
  std::string named(const Layout& layout, const OfferedFunction& function);
  std::string value_of(const Layout& layout, const Parameter& parameter, const std::string& id);
  std::string scalar(const Layout& layout, const OrderedJson& value);
  void add_values(const Layout& layout, const std::string& id);

  const text::ReplyLayout& layout_;
  const OfferedTools& tools_;
  const tokenizer::Tokenizer* const tokenizer_;
  std::string rules_;
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

// The required ones and any of the others, in the order of the schema.
std::string LarkWriter::tagged(const Layout& layout, const OfferedFunction& function) {
  std::string body;
  std::string any;
  for (const Parameter& parameter : parameters_of(function)) {
    if (!is_told_apart(layout, parameter.name)) continue;
    const std::string one = rule(argument(layout, parameter, !function.is_loose));
    body += one + (parameter.is_required && !function.is_loose ? "" : "?");
    any += (any.empty() ? "" : " |") + one;
  }
  if (layout.argument_separator.empty() || any.empty()) return body;
  any = rule(any);  // in any order
  return " (" + any + " (" + literal(layout.argument_separator) + any + ")*)?";
}

std::string LarkWriter::argument(const Layout& layout, const Parameter& parameter,
                                 bool keeps_schema) {
  const std::string any_json = as_lark("{\"x-guidance\":" + std::string(kFixedSpaces) + "}");
  const std::string end = literal(layout.argument_end);
  std::string value;
  if (keeps_schema && !parameter.texts.empty()) {
    for (const std::string& text : parameter.texts) {
      value += (value.empty() ? " (" : " |") + literal(text + layout.argument_end);
    }
    value += ')';
  } else if (parameter.is_json) {
    const bool has_schema = keeps_schema && !parameter.schema.empty();
    value = (has_schema ? as_lark(parameter.schema) : rule(any_json)) + end;
  } else {
    value = text_before(layout.argument_end);
  }
  const std::string begin = literal(layout.argument_begin + parameter.name);
  std::string as_text = begin + literal(layout.string_name_end) + value;
  const std::string as_json = begin + literal(layout.argument_name_end);
  if (layout.string_name_end.empty()) return as_json + value;
  if (parameter.is_text) return as_text;
  if (parameter.is_json) return as_json + value;
  return as_text + " |" + as_json + rule(any_json) + end;  // it may be either
}

// Any text up to this one, and this one. A special token ends it by itself: none of its bytes is
// text.
std::string LarkWriter::text_before(const std::string& end) {
  const std::string closing = literal(end);
  if (closing.starts_with(" <[")) return rule(" /(?s:.*)/") + closing;
  return rule(" /(?s:.*)/", "[suffix=" + in_quotes(end).substr(1) + "]");
}

// In the order of the schema, the required ones and any of the others.
std::string LarkWriter::named(const Layout& layout, const OfferedFunction& function) {
  std::vector<Parameter> parameters = parameters_of(function);
  if (function.is_loose) {
    for (Parameter& parameter : parameters) parameter.schema.clear();
  }
  const bool is_python = layout.arguments == Arguments::kPython;
  const std::string comma = is_python ? R"( ", ")" : R"( ",")";
  const std::string id = std::to_string(&layout - layout_.calls.data());
  std::string first;  // nothing is written yet
  std::string more;   // a comma goes before the next one
  bool is_optional = true;
  for (auto at = parameters.rbegin(); at != parameters.rend(); ++at) {
    const bool is_name = !at->name.empty() && std::ranges::all_of(at->name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!is_name) continue;
    const std::string one =
        rule(literal(at->name + (is_python ? "=" : ":")) + value_of(layout, *at, id));
    is_optional = is_optional && !at->is_required;
    first = rule(one + more + (at->is_required || first.empty() ? "" : " |" + first));
    const std::string with = comma + one;
    more = rule((at->is_required ? with : " (" + with + ")?") + more);
  }
  if (first.empty()) return is_python ? "" : R"( "{}")";
  if (names_.try_emplace("values_" + id).second) add_values(layout, id);
  const std::string body = is_optional ? " (" + first + ")?" : first;
  return is_python ? body : R"( "{")" + body + R"( "}")";
}

std::string LarkWriter::value_of(const Layout& layout, const Parameter& parameter,
                                 const std::string& id) {
  const bool is_python = layout.arguments == Arguments::kPython;
  const auto schema = parse_ordered_json(parameter.schema, "schema");
  std::string only;
  for (const OrderedJson& value : only_values(schema ? *schema : OrderedJson())) {
    only += (only.empty() ? " (" : " |") + scalar(layout, value);
  }
  if (!only.empty()) return only + ")";
  if (parameter.is_text) return " text_value_" + id;
  const bool is_number = parameter.type == "integer" || parameter.type == "number";
  if (is_number && schema && has_bounds(*schema)) return as_lark(parameter.schema);
  if (parameter.type == "integer") return " /-?(0|[1-9][0-9]{0,17})/";
  if (parameter.type == "number") return " number_" + id;
  if (parameter.type == "boolean") {
    return is_python ? R"( ("True" | "False"))" : R"( ("true" | "false"))";
  }
  if (parameter.type == "array") return " list_" + id;
  if (parameter.type == "object") return " object_" + id;
  return " value_" + id;
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

std::vector<Parameter> parameters_of(const OfferedFunction& function) {
  std::vector<Parameter> parameters;
  const auto schema = parse_ordered_json(function.parameters, "parameters");
  if (!schema || !schema->is_object()) return parameters;
  const auto properties = schema->find("properties");
  if (properties == schema->end() || !properties->is_object()) return parameters;
  const auto required = schema->find("required");
  for (const auto& [name, property] : properties->items()) {
    Parameter parameter{.name = name};
    parameter.is_required = required != schema->end() && required->is_array() &&
                            std::ranges::find(*required, OrderedJson(name)) != required->end();
    if (property.is_object()) {
      if (is_enum_of_texts(property)) {
        for (const OrderedJson& text : property["enum"]) parameter.texts.push_back(text);
      }
      parameter.is_text = has_type(property, "string") || !parameter.texts.empty();
      parameter.is_json = !parameter.is_text && is_never_text(property);
      const auto type = property.find("type");
      if (type != property.end() && type->is_string()) parameter.type = *type;
      // References are to the function's schema.
      OrderedJson fixed = property;
      fixed.emplace("x-guidance", OrderedJson::parse(kFixedSpaces));
      parameter.schema = fixed.dump();
      if (parameter.schema.find("\"$ref\"") != std::string::npos) parameter.schema.clear();
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

Grammar make_call_grammar(const text::ReplyLayout& layout, const OfferedTools& tools,
                          const tokenizer::Tokenizer* tokenizer) {
  return {Grammar::Kind::kLark, LarkWriter(layout, tools, tokenizer).write()};
}

}  // namespace lmtp::server
