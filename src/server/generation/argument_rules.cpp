#include "argument_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "call_grammar.h"
#include "lmtp/base/json.h"
#include "schema_reading.h"
#include "tool_schema.h"

namespace lmtp::server {
namespace {

using text::CallLayout;

constexpr std::size_t kNestingMax = 32;           // of schemas in one another
constexpr std::uint64_t kCountedItemsMax = 1000;  // of a list whose length is kept

// What one member becomes.
struct Link {
  std::string rule;
  bool is_required = false;
};

// In the order of the links, the required ones and any of the others. Empty: there are none.
std::string chain(LarkRules& rules, const std::vector<Link>& links, const std::string& comma) {
  std::string first;  // nothing is written yet
  std::string more;   // a comma goes before the next one
  bool is_optional = true;
  for (auto at = links.rbegin(); at != links.rend(); ++at) {
    is_optional = is_optional && !at->is_required;
    if (comma.empty()) {
      more.insert(0, at->rule + (at->is_required ? "" : "?"));
      continue;
    }
    first = rules.rule(at->rule + more + (at->is_required || first.empty() ? "" : " |" + first));
    const std::string with = comma + at->rule;
    more = rules.rule((at->is_required ? with : " (" + with + ")?") + more);
  }
  if (comma.empty()) return more;
  return is_optional && !first.empty() ? " (" + first + ")?" : first;
}

class ArgumentWriter {
 protected:
  ArgumentWriter(LarkRules& rules, const CallLayout& layout, const OfferedFunction& function)
      : rules_(rules),
        layout_(layout),
        function_(function),
        takes_any_(function.is_loose || rules.budget().is_used_up()),
        schema_(takes_any_ ? std::string("{}") : function.parameters, rules.budget()) {}

  // Whether arguments have names that the schema does not tell.
  bool takes_any(const std::vector<Member>& members) {
    return takes_any_ || schema_.is_used_up() || are_too_many(members);
  }
  ArgumentRules ended(std::string body, bool is_any = false) const {
    return {std::move(body), schema_.is_kept() && !is_any, schema_.is_used_up() || is_any};
  }

  LarkRules& rules_;
  const CallLayout& layout_;
  const OfferedFunction& function_;
  const bool takes_any_;
  ToolSchema schema_;
  // What has been written, and in place of what is being written the name that it gets.
  std::map<std::pair<const OrderedJson*, JsonTypes>, std::string> known_;
};

// Arguments between tags.
class TaggedWriter final : ArgumentWriter {
 public:
  TaggedWriter(LarkRules& rules, const CallLayout& layout, const OfferedFunction& function)
      : ArgumentWriter(rules, layout, function) {}

  ArgumentRules write() {
    const std::string comma = rules_.literal(layout_.argument_separator);
    if (!function_.input_lark.empty()) return ended(input());
    const std::vector<Member> members = schema_.members(schema_.root());
    if (takes_any(members)) {
      static const OrderedJson kAnything(true);
      const std::string name = rules_.literal(layout_.argument_begin) + " /[A-Za-z0-9_.\\-]+/";
      const std::string one = rules_.rule(argument(name, {{&kAnything, kAnyType}}));
      return ended(" (" + one + " (" + comma + one + ")*)?", true);
    }
    std::vector<Alternatives> values;  // as a reader counts them
    for (const Member& each : members) values.push_back(schema_.alternatives(*each.schema));
    std::vector<Link> links;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (is_told_apart(members[i].name)) {
        const std::string name = rules_.literal(layout_.argument_begin + members[i].name);
        links.push_back({rules_.rule(argument(name, values[i])), members[i].is_required});
      } else if (members[i].is_required) {
        schema_.loosen();
      }
    }
    return ended(chain(rules_, links, comma));
  }

 private:
  bool is_told_apart(const std::string& name) const {
    return (layout_.argument_name_end.empty() ||
            name.find(layout_.argument_name_end.front()) == std::string::npos) &&
           (layout_.string_name_end.empty() ||
            name.find(layout_.string_name_end.front()) == std::string::npos) &&
           !rules_.has_special(name);
  }

  // The text of a grammar, as it is.
  std::string input() {
    const bool is_marked = !layout_.string_name_end.empty();
    return rules_.literal(layout_.argument_begin + "input" +
                          (is_marked ? layout_.string_name_end : layout_.argument_name_end)) +
           rules_.rule(lark_within(function_.input_lark)) + rules_.literal(layout_.argument_end);
  }

  std::string argument(const std::string& name, const Alternatives& values) {
    std::vector<std::string> texts;
    std::vector<std::string> others;
    const bool is_marked = !layout_.string_name_end.empty();
    const JsonTypes types = is_marked ? kText : types_of(values);
    for (const Alternative& value : values) {
      if ((value.types & kText) == 0) continue;
      if (auto one = text({value.schema, types})) texts.push_back(*std::move(one));
    }
    const bool takes_any_text =
        std::ranges::find(texts, "") != texts.end() || (texts.empty() && types_of(values) == kText);
    if (takes_any_text) texts = {any_text()};
    for (const Alternative& value : values) {
      const Alternative other{value.schema, value.types & ~kText};
      if (other.types == 0) continue;
      if (!takes_any_text || is_marked) {
        others.push_back(json(other));
      } else if (says_more(*other.schema)) {
        schema_.loosen();  // a text may be the JSON of a value that the schema does not take
      }
    }
    if (!others.empty()) {
      others = {lark_any_of(others) + rules_.literal(layout_.argument_end)};
    }
    if (!is_marked) texts.insert(texts.end(), others.begin(), others.end());
    std::vector<std::string> either;
    if (!texts.empty()) {
      const std::string& end = is_marked ? layout_.string_name_end : layout_.argument_name_end;
      either.push_back(name + rules_.literal(end) + lark_any_of(texts));
    }
    if (is_marked && !others.empty()) {
      either.push_back(name + rules_.literal(layout_.argument_name_end) + others.front());
    }
    return lark_any_of(either);
  }

  // With what ends it. Empty: any. Nothing: no text that a reader would take for one. Its types are
  // those of all values in its place.
  std::optional<std::string> text(const Alternative& value) {
    const auto [found, is_new] = texts_.try_emplace({value.schema, value.types}, "");
    std::optional<std::string>& known = found->second;
    if (!is_new) return known;
    // A text may be of another format, as where the format is unknown.
    if (has_any(*value.schema, kTextKeywords, {"format"}) ||
        has_any(*value.schema, kCombiningKeywords)) {
      schema_.loosen();
    }
    std::vector<std::string> texts;
    const auto listed = schema_.listed({value.schema, kText});
    for (const OrderedJson* const one : listed) {
      const auto& given = one->get_ref<const std::string&>();
      if (is_read_as_it_is(given, value.types)) {
        texts.push_back(rules_.literal(given + layout_.argument_end));
      } else {
        schema_.loosen();
      }
    }
    if (!texts.empty()) return known = rules_.rule(lark_any_of(texts));
    if (!listed.empty()) known.reset();
    return known;
  }

  bool is_read_as_it_is(const std::string& text, JsonTypes types) const {
    const bool is_other =
        types != kText && nlohmann::json::accept(text) && (type_of_json(text) & types) != 0;
    const std::string whole = text + layout_.argument_end;
    return !is_other && whole.find(layout_.argument_end) == text.size() &&
           (layout_.text_begin.empty() || !text.starts_with(layout_.text_begin)) &&
           !rules_.has_special(text);
  }

  std::string any_text() {
    std::string plain = rules_.text_before(layout_.argument_end, layout_.text_begin);
    if (layout_.text_begin.empty()) return plain;
    return lark_any_of({plain, rules_.literal(layout_.text_begin) +
                                   rules_.text_before(layout_.text_end + layout_.argument_end)});
  }

  static bool says_more(const OrderedJson& schema) {
    return has_any(schema, {"enum", "const"}) || has_any(schema, kCombiningKeywords) ||
           has_any(schema, kNumberKeywords) || has_any(schema, kListKeywords) ||
           has_any(schema, kObjectKeywords);
  }

  std::string json(const Alternative& value) {
    std::string& known = known_[{value.schema, value.types}];
    if (!known.empty()) return known;
    const std::string text = schema_.standalone(value);
    return known = rules_.rule(lark_json(text.empty() ? any_json() : text));
  }

  std::map<std::pair<const OrderedJson*, JsonTypes>, std::optional<std::string>> texts_;
};

// Arguments as Python or Gemma write them.
class NamedWriter final : ArgumentWriter {
 public:
  NamedWriter(LarkRules& rules, const CallLayout& layout, const std::string& id,
              const OfferedFunction& function)
      : ArgumentWriter(rules, layout, function), id_(id) {}

  ArgumentRules write() {
    if (!function_.input_lark.empty()) schema_.loosen();
    const std::vector<Member> members = schema_.members(schema_.root());
    if (takes_any(members)) {
      const std::string one = rules_.rule(R"( /[A-Za-z_][A-Za-z0-9_]*/ "=")" + named("value"));
      return ended(is_python_ ? " (" + one + " (" + comma() + one + ")*)?" : named("object"), true);
    }
    std::vector<Link> links;
    for (const Member& member : members) {
      if (is_name(member.name)) {
        const std::string name = rules_.literal(member.name + (is_python_ ? "=" : ":"));
        links.push_back({rules_.rule(name + value(*member.schema, 0)), member.is_required});
      } else if (member.is_required) {
        schema_.loosen();
      }
    }
    const std::string body = chain(rules_, links, comma());
    return ended(is_python_ ? body : R"( "{")" + body + R"( "}")");
  }

 private:
  static bool is_name(std::string_view name) {
    return !name.empty() && std::ranges::all_of(name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    });
  }

  std::string comma() const { return is_python_ ? R"( ", ")" : R"( ",")"; }
  // The rule of that name, of which each layout has its own.
  std::string named(const char* what) {
    if (rules_.is_new("values_" + id_)) add_values();
    return " " + std::string(what) + "_" + id_;
  }

  std::string value(const OrderedJson& given, std::size_t depth) {
    if (depth > kNestingMax) schema_.loosen();
    if (depth > kNestingMax) return named("value");
    std::vector<std::string> bodies;
    for (const Alternative& one : schema_.alternatives(given)) bodies.push_back(part(one, depth));
    return lark_any_of(bodies);
  }

  // Within itself it has a name before it has a body.
  std::string part(const Alternative& one, std::size_t depth) {
    const auto [found, is_new] = known_.try_emplace({one.schema, one.types});
    std::string& known = found->second;
    if (!is_new && known.empty()) known = rules_.unique_name();
    if (!is_new) return known;
    const std::string body = new_part(one, depth);
    if (known.empty()) return known = body;
    rules_.add(known, body);
    return known;
  }

  std::string new_part(const Alternative& one, std::size_t depth) {
    const OrderedJson& of = *one.schema;
    const auto listed = schema_.listed(one);
    const bool is_plain = std::ranges::all_of(listed, &OrderedJson::is_primitive);
    // members() follows those of an object.
    const bool is_merged =
        one.types == kObject && of.contains("allOf") && !has_any(of, kCombiningKeywords, {"allOf"});
    if ((has_any(of, kCombiningKeywords) && !is_merged) || !is_plain) schema_.loosen();
    std::vector<std::string> bodies;
    if (!listed.empty() && is_plain) {
      if (has_any(of, kTextKeywords) || has_any(of, kNumberKeywords)) schema_.loosen();
      for (const OrderedJson* const each : listed) {
        if (is_written(*each)) bodies.push_back(scalar(*each));
      }
      if (bodies.size() < listed.size()) schema_.loosen();
      return bodies.empty() ? any_of_types(one.types) : rules_.rule(lark_any_of(bodies));
    }
    JsonTypes rest = one.types;
    const auto says = [&](JsonTypes types, const SchemaKeywords& keywords) {
      if ((one.types & types) == 0 || !has_any(of, keywords)) return false;
      rest &= ~types;
      return true;
    };
    if (says(kText, kTextKeywords)) bodies.push_back(text(of));
    if (says(kWhole | kFraction, kNumberKeywords)) {
      bodies.push_back(json({&of, one.types & (kWhole | kFraction)}));
    }
    if (says(kList, kListKeywords)) bodies.push_back(list(of, depth));
    if (says(kObject, kObjectKeywords) || (is_merged && says(kObject, {"allOf"}))) {
      bodies.push_back(object(of, depth));
    }
    if (rest != 0) bodies.push_back(any_of_types(rest));
    return lark_any_of(bodies);
  }

  // What is written as in JSON.
  std::string json(const Alternative& value) {
    const std::string alone = schema_.standalone(value);
    return alone.empty() ? any_of_types(value.types) : rules_.rule(lark_json(alone));
  }

  // A text may be of another format, as where the format is unknown. In JSON's quotes alone more
  // can be kept.
  std::string text(const OrderedJson& of) {
    const bool says_more = has_any(of, kTextKeywords, {"format"});
    if (says_more && is_python_ && function_.is_strict) return json({&of, kText});
    if (says_more) schema_.loosen();
    return named("text_value");
  }

  std::string list(const OrderedJson& of, std::size_t depth) {
    if (has_any(of, kListKeywords, {"items", "minItems", "maxItems"})) schema_.loosen();
    const auto items = of.find("items");
    const bool has_one = items != of.end() && !items->is_array();
    if (items != of.end() && !has_one) schema_.loosen();
    const std::string one = has_one ? value(*items, depth + 1) : named("value");
    const auto count = [&](const char* key) -> std::optional<std::uint64_t> {
      const auto found = of.find(key);
      if (found == of.end()) return std::nullopt;
      const auto* const number = found->get_ptr<const OrderedJson::number_unsigned_t*>();
      if (number != nullptr && *number <= kCountedItemsMax) return *number;
      schema_.loosen();
      return std::nullopt;
    };
    const auto least = count("minItems");
    const auto most = count("maxItems");
    if (most && *most == 0) return R"( "[]")";
    std::string times = "*";
    if (least || most) {
      times = "{" + std::to_string(std::max<std::uint64_t>(least.value_or(0), 1) - 1) + "," +
              (most ? std::to_string(*most - 1) : "") + "}";
    }
    const std::string body = one + " (" + comma() + one + ")" + times;
    const bool may_be_empty = least.value_or(0) == 0;
    return rules_.rule(R"( "[" ()" + body + (may_be_empty ? ")?" : ")") + R"( "]")");
  }

  std::string object(const OrderedJson& of, std::size_t depth) {
    const auto others = of.find("additionalProperties");
    const bool is_closed = others != of.end() && *others == false;
    const std::vector<Member> members = schema_.members(of);
    if (are_too_many(members)) schema_.loosen();
    if (are_too_many(members) || schema_.is_used_up()) return named("object");
    if (members.empty() && is_closed) return R"( "{}")";
    if (members.empty()) {
      if (others == of.end()) return named("object");
      const std::string pair = rules_.rule(any_key() + value(*others, depth + 1));
      return rules_.rule(R"( "{" ()" + pair + " (" + comma() + pair + R"()*)? "}")");
    }
    std::vector<Link> links;
    for (const Member& member : members) {
      if (is_python_ ? is_written(member.name) : is_name(member.name)) {
        const std::string key = is_python_ ? " (" + scalar(member.name) + R"() ": ")"
                                           : rules_.literal(member.name + ":");
        links.push_back({rules_.rule(key + value(*member.schema, depth + 1)), member.is_required});
      } else if (member.is_required) {
        schema_.loosen();
      }
    }
    return rules_.rule(R"( "{")" + chain(rules_, links, comma()) + R"( "}")");
  }

  // Whether a text has none of what ends it.
  bool is_written(const OrderedJson& value) const {
    const auto* const text = value.get_ptr<const std::string*>();
    const std::string& quote = layout_.string_quote;
    return text == nullptr ||
           (!rules_.has_special(*text) &&
            (is_python_ || quote.empty() || (*text + quote).find(quote) == text->size()));
  }
  std::string scalar(const OrderedJson& value) {
    if (is_python_ && value.is_boolean()) return value.get<bool>() ? R"( "True")" : R"( "False")";
    if (is_python_ && value.is_null()) return R"( "None")";
    if (!value.is_string()) return rules_.literal(value.dump());
    const auto& text = value.get_ref<const std::string&>();
    if (!is_python_) return rules_.literal(layout_.string_quote + text + layout_.string_quote);
    const std::string quoted = value.dump();
    const bool is_plain = quoted.size() == text.size() + 2 && text.find('\'') == std::string::npos;
    return rules_.literal(quoted) + (is_plain ? " |" + rules_.literal("'" + text + "'") : "");
  }

  std::string any_of_types(JsonTypes types) {
    if (types == kAnyType) return named("value");
    std::vector<std::string> bodies;
    const auto add = [&](JsonTypes type, const std::string& body) {
      if ((types & type) != 0) bodies.push_back(body);
    };
    add(kText, named("text_value"));
    add(kNull, is_python_ ? R"( "None")" : R"( "null")");
    add(kBoolean, is_python_ ? R"( "True" | "False")" : R"( "true" | "false")");
    if ((types & kFraction) == 0) add(kWhole, " /-?(0|[1-9][0-9]{0,17})/");
    add(kFraction, named("number"));
    add(kList, named("list"));
    add(kObject, named("object"));
    return " (" + lark_any_of(bodies) + ")";
  }

  std::string python_text() const { return R"x( (/"([^"\\\n]|\\.)*"/ | /'([^'\\\n]|\\.)*'/))x"; }
  std::string any_key() const {
    return is_python_ ? python_text() + R"( ": ")" : R"( /[A-Za-z_][A-Za-z0-9_\-]*/ ":")";
  }

  // Values of any kind.
  void add_values() {
    const std::string value = named("value");
    const auto several = [&](const std::string& one) {
      return " (" + one + " (" + comma() + one + ")*)?";
    };
    rules_.add(named("text_value"), is_python_ ? python_text()
                                               : rules_.literal(layout_.string_quote) +
                                                     rules_.text_before(layout_.string_quote));
    rules_.add(named("number"),
               R"( /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?/)");
    rules_.add(named("list"), R"( "[")" + several(value) + R"( "]")");
    rules_.add(named("object"), R"( "{")" + several(named("pair")) + R"( "}")");
    rules_.add(named("pair"), any_key() + value);
    rules_.add(value, named("text_value") + " |" + named("number") + " |" + named("list") + " |" +
                          named("object") +
                          (is_python_ ? R"( | "True" | "False" | "None")"
                                      : R"( | "true" | "false" | "null")"));
  }

  const std::string id_;
  const bool is_python_ = layout_.arguments == CallLayout::Arguments::kPython;
};

}  // namespace

ArgumentRules argument_rules(LarkRules& rules, const CallLayout& layout, const std::string& id,
                             const OfferedFunction& function) {
  if (layout.arguments == CallLayout::Arguments::kTagged) {
    return TaggedWriter(rules, layout, function).write();
  }
  return NamedWriter(rules, layout, id, function).write();
}

}  // namespace lmtp::server
