#include "call_grammar.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/constraint/schema_forms.h"
#include "lmtp/text/stream_text.h"

namespace lmtp::server {
namespace {

using Arguments = text::CallLayout::Arguments;

constexpr std::string_view kAnyObject = R"({"type":"object"})";

bool has_type(const OrderedJson& schema, const char* type) {
  const auto found = schema.find("type");
  return found != schema.end() && *found == type;
}

bool is_enum_of_texts(const OrderedJson& schema) {
  const auto values = schema.find("enum");
  return values != schema.end() && values->is_array() && !values->empty() &&
         std::ranges::all_of(*values, [](const OrderedJson& value) { return value.is_string(); });
}

// Whether a value may be told to be no string by its schema alone.
bool is_never_text(const OrderedJson& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return false;
  if (type->is_string()) return *type != "string";
  return type->is_array() && std::ranges::find(*type, OrderedJson("string")) == type->end();
}

// Writes rules in Lark's notation.
class LarkWriter {
 public:
  LarkWriter(const text::ReplyLayout& layout, const OfferedTools& tools,
             const tokenizer::Tokenizer& tokenizer)
      : layout_(layout), tools_(tools), tokenizer_(tokenizer) {}

  std::string write() {
    std::string start = "start: ";
    for (std::size_t i = 0; i < layout_.calls.size(); ++i) {
      const std::string id = std::to_string(i);
      start += (i == 0 ? "calls_" : " | calls_") + id;
      write_calls(layout_.calls[i], id);
    }
    if (has_loose_) rule("any_object", " %json " + with_fixed_spaces(kAnyObject));
    return start + "\n" + rules_;
  }

 private:
  // A text, of whose tokens the special ones are named by their ids: no byte of theirs is text.
  std::string literal(std::string_view text) const {
    std::vector<TokenId> special;
    const std::string marked = text::mark_special(tokenizer_, text, &special);
    std::string_view rest = marked;
    std::string out;
    const auto add = [&](std::string_view plain) {
      if (!plain.empty()) append_json_string(plain, out += ' ');
    };
    for (const TokenId id : special) {
      add(rest.substr(0, rest.find(text::kSpecialBegin)));
      out += " <[" + std::to_string(id) + "]>";
      rest.remove_prefix(rest.find(text::kSpecialEnd) + 1);
    }
    add(rest);
    return out;
  }

  void rule(const std::string& name, const std::string& body) {
    rules_ += name + ":" + body + "\n";
  }

  void write_calls(const text::CallLayout& layout, const std::string& id) {
    // Outside of a section a call ends where nothing more of it can follow; more are opened anew.
    const bool is_alone = tools_.choice == OfferedTools::Choice::kAuto && !has_section(layout);
    const bool has_more =
        tools_.calls_several && !is_alone && tools_.choice != OfferedTools::Choice::kNamed;
    std::string body = literal(layout.section_begin) + " call_" + id;
    if (has_more) {
      const std::string separator = literal(layout.separator);
      body += " (" + separator + " call_" + id + ")*";
      // What models write between calls they may write after the last one.
      const bool is_blank = layout.separator.find_first_not_of(" \n") == std::string::npos;
      if (is_blank && !separator.empty()) body += " (" + separator + ")?";
    }
    rule("calls_" + id, body + literal(layout.section_end));
    std::string any;
    for (std::size_t i = 0; i < tools_.functions.size(); ++i) {
      const std::string one = id + "_" + std::to_string(i);
      any += (i == 0 ? " one_" : " | one_") + one;
      write_call(layout, tools_.functions[i], one);
    }
    rule("call_" + id, any);
  }

  void write_call(const text::CallLayout& layout, const OfferedFunction& function,
                  const std::string& id) {
    std::string body;
    std::string before = layout.call_begin;
    if (!layout.name_begin.empty()) {
      body = literal(before) + " /[A-Za-z0-9_\\-]{1,64}/";
      before = layout.name_begin;
    }
    before += function.name;
    if (!layout.index_begin.empty()) {
      body += literal(before + layout.index_begin) + " /[0-9]{1,3}/";
      before.clear();
    } else if (!layout.id_begin.empty()) {
      body += literal(before + layout.id_begin) + " /[A-Za-z0-9_\\-]{1,64}/";
      before.clear();
    }
    body += literal(before + layout.name_end);
    const auto parameters = parameters_of(function);
    if (layout.arguments == Arguments::kJson) {
      if (!function.is_loose) {
        body += " arguments_" + id;
        rule("arguments_" + id, " %json " + with_fixed_spaces(function.parameters));
      } else {
        body += " any_object";
        has_loose_ = true;
      }
    } else if (layout.arguments == Arguments::kTagged) {
      body += write_tagged(layout, parameters, !function.is_loose, id);
    } else {
      body += write_named(layout, parameters, id);
    }
    rule("one_" + id, body + literal(layout.call_end));
  }

  // The required ones and any of the others, in the order of the schema.
  std::string write_tagged(const text::CallLayout& layout, const std::vector<Parameter>& parameters,
                           bool keeps_schema, const std::string& id) {
    std::string body;
    std::string any;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!is_told_apart(layout, parameters[i].name)) continue;
      const std::string one = id + "_" + std::to_string(i);
      body += " argument_" + one + (parameters[i].is_required && keeps_schema ? "" : "?");
      any += (any.empty() ? " argument_" : " | argument_") + one;
      write_argument(layout, parameters[i], keeps_schema, one);
    }
    if (layout.argument_separator.empty() || any.empty()) return body;
    rule("any_" + id, any);  // in any order
    return " (any_" + id + " (" + literal(layout.argument_separator) + " any_" + id + ")*)?";
  }

  static bool is_told_apart(const text::CallLayout& layout, const std::string& name) {
    return (layout.argument_name_end.empty() ||
            name.find(layout.argument_name_end.front()) == std::string::npos) &&
           (layout.string_name_end.empty() ||
            name.find(layout.string_name_end.front()) == std::string::npos);
  }

  void write_argument(const text::CallLayout& layout, const Parameter& parameter, bool keeps_schema,
                      const std::string& id) {
    const std::string& name_end = parameter.is_text && !layout.string_name_end.empty()
                                      ? layout.string_name_end
                                      : layout.argument_name_end;
    std::string value;
    if (keeps_schema && !parameter.texts.empty()) {
      for (const std::string& text : parameter.texts) {
        value += (value.empty() ? " (" : " |") + literal(text + layout.argument_end);
      }
      value += ')';
    } else if (parameter.is_json) {
      const bool has_schema = keeps_schema && !parameter.schema.empty();
      value = " %json " + (has_schema ? with_fixed_spaces(parameter.schema) : any_json()) + " " +
              literal(layout.argument_end);
    } else {
      value = text_before(layout.argument_end, id);
    }
    const std::string name = layout.argument_begin + parameter.name;
    std::string body = literal(name + name_end) + value;
    // A form that tells texts from others: it may be either.
    const bool is_either = !parameter.is_text && !parameter.is_json;
    if (is_either && !layout.string_name_end.empty()) {
      body = literal(name + layout.string_name_end) + value + " |" +
             literal(name + layout.argument_name_end) + " %json " + any_json() +
             literal(layout.argument_end);
    }
    rule("argument_" + id, body);
  }

  static std::string any_json() {
    return R"({"x-guidance": {"whitespace_flexible": false, "item_separator": ", ", )"
           R"("key_separator": ": "}})";
  }

  // Any text up to this one, and this one. A special token ends it by itself: none of its bytes is
  // text.
  std::string text_before(const std::string& end, const std::string& id) {
    const std::string closing = literal(end);
    if (closing.starts_with(" <[")) {
      rule("text_" + id, " /(?s:.*)/");
      return " text_" + id + closing;
    }
    std::string quoted;
    append_json_string(end, quoted);
    rules_ += "text_" + id + "[suffix=" + quoted + "]: /(?s:.*)/\n";
    return " text_" + id;
  }

  // name=value, ... or {name:value,...}
  std::string write_named(const text::CallLayout& layout, const std::vector<Parameter>& parameters,
                          const std::string& id);
  std::string value_of(const text::CallLayout& layout, const Parameter& parameter,
                       const std::string& id) const;
  void write_values(const text::CallLayout& layout, const std::string& id);

  const text::ReplyLayout& layout_;
  const OfferedTools& tools_;
  const tokenizer::Tokenizer& tokenizer_;
  std::string rules_;
  bool has_loose_ = false;
};

// In the order of the schema, the required ones and any of the others.
std::string LarkWriter::write_named(const text::CallLayout& layout,
                                    const std::vector<Parameter>& parameters,
                                    const std::string& id) {
  const bool is_python = layout.arguments == Arguments::kPython;
  const std::string comma = is_python ? R"( ", ")" : R"( ",")";
  std::vector<const Parameter*> named;
  for (const Parameter& parameter : parameters) {
    const bool is_name = !parameter.name.empty() && std::ranges::all_of(parameter.name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (is_name) named.push_back(&parameter);
  }
  if (named.empty()) return is_python ? "" : R"( "{}")";
  write_values(layout, id);
  // first: nothing is written yet; more: a comma goes before the next one.
  bool is_optional = true;
  for (std::size_t i = 0; i < named.size(); ++i) {
    const std::string number = id + "_" + std::to_string(i);
    const std::string next = id + "_" + std::to_string(i + 1);
    const bool is_last = i + 1 == named.size();
    const std::string more = is_last ? "" : " more_" + next;
    is_optional = is_optional && !named[i]->is_required;
    rule("named_" + number,
         literal(named[i]->name + (is_python ? "=" : ":")) + value_of(layout, *named[i], id));
    const std::string with = comma + " named_" + number;
    rule("more_" + number, (named[i]->is_required ? with : " (" + with + ")?") + more);
    const bool may_skip = !named[i]->is_required && !is_last;
    rule("first_" + number,
         " named_" + number + more + (may_skip ? " | first_" + next : std::string()));
  }
  const std::string body = is_optional ? " (first_" + id + "_0)?" : " first_" + id + "_0";
  return is_python ? body : R"( "{")" + body + R"( "}")";
}

std::string LarkWriter::value_of(const text::CallLayout& layout, const Parameter& parameter,
                                 const std::string& id) const {
  const bool is_python = layout.arguments == Arguments::kPython;
  if (!parameter.texts.empty()) {
    std::string texts;
    for (const std::string& text : parameter.texts) {
      std::string quoted;
      append_json_string(text, quoted);
      texts += (texts.empty() ? " (" : " |") +
               literal(is_python ? quoted : layout.string_quote + text + layout.string_quote);
    }
    return texts + ")";
  }
  if (parameter.is_text) return " text_value_" + id;
  const auto schema = parse_ordered_json(parameter.schema, "schema");
  const bool has_schema = schema && schema->is_object();
  if (has_schema && has_type(*schema, "integer")) return " /-?(0|[1-9][0-9]{0,17})/";
  if (has_schema && has_type(*schema, "number")) return " number_" + id;
  if (has_schema && has_type(*schema, "boolean")) {
    return is_python ? R"( ("True" | "False"))" : R"( ("true" | "false"))";
  }
  if (has_schema && has_type(*schema, "array")) return " list_" + id;
  if (has_schema && has_type(*schema, "object")) return " object_" + id;
  return " value_" + id;
}

// Values of any kind, as Python or Gemma write them.
void LarkWriter::write_values(const text::CallLayout& layout, const std::string& id) {
  const bool is_python = layout.arguments == Arguments::kPython;
  const std::string comma = is_python ? R"( ", ")" : R"( ",")";
  const std::string value = " value_" + id;
  const std::string python_text = R"x((/"([^"\\\n]|\\.)*"/ | /'([^'\\\n]|\\.)*'/))x";
  const std::string key =
      is_python ? " " + python_text + R"( ": ")" : R"( /[A-Za-z_][A-Za-z0-9_\-]*/ ":")";
  rule("text_value_" + id,
       is_python ? " " + python_text
                 : literal(layout.string_quote) + text_before(layout.string_quote, id));
  rule("number_" + id, R"( /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?/)");
  rule("list_" + id, R"( "[" ()" + value + " (" + comma + value + R"()*)? "]")");
  rule("object_" + id, R"( "{" (pair_)" + id + " (" + comma + " pair_" + id + R"()*)? "}")");
  rule("pair_" + id, key + value);
  rule("value_" + id,
       " text_value_" + id + " | number_" + id + " | list_" + id + " | object_" + id +
           (is_python ? R"( | "True" | "False" | "None")" : R"( | "true" | "false" | "null")"));
}

}  // namespace

std::string with_fixed_spaces(std::string_view text) {
  auto schema = parse_ordered_json(text, "schema");
  if (!schema || !schema->is_object()) return with_fixed_spaces(kAnyObject);
  if (!schema->contains("x-guidance")) {
    (*schema)["x-guidance"] = {
        {"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}};
  }
  return constraint::to_known_form(schema->dump());
}

GrammarTriggers call_triggers(const text::ReplyLayout& layout, const OfferedTools& tools) {
  GrammarTriggers triggers;
  triggers.repeats = tools.calls_several;
  for (const text::CallLayout& call : layout.calls) {
    if (!call.opening.empty()) {
      triggers.openings.push_back(call.opening);
      continue;
    }
    for (const OfferedFunction& function : tools.functions) {
      triggers.first_openings.push_back(call.section_begin + call.call_begin + function.name +
                                        end_of_name(call).substr(0, 1));
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
      // References are to the function's schema.
      const std::string text = property.dump();
      if (text.find("\"$ref\"") == std::string::npos) parameter.schema = text;
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

Grammar make_call_grammar(const text::ReplyLayout& layout, const OfferedTools& tools,
                          const tokenizer::Tokenizer& tokenizer) {
  return {Grammar::Kind::kLark, LarkWriter(layout, tools, tokenizer).write()};
}

}  // namespace lmtp::server
