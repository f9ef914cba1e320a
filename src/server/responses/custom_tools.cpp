#include "custom_tools.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "generation/escaped_lark.h"
#include "generation/ordered_members.h"
#include "generation/regular_lark.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kGrammarBytesMax = std::size_t{64} << 10;
constexpr std::size_t kGrammarsBytesMax = std::size_t{4} << 20;  // of all, as they are compiled
constexpr std::string_view kInputBegin = R"({"input":")";

struct Format {
  bool is_regex = false;
  std::string definition = {};  // empty: any text
};

bool ends_in_escape(std::string_view regex) {
  const std::size_t last = regex.find_last_not_of('\\');
  const std::size_t num = regex.size() - (last == std::string_view::npos ? 0 : last + 1);
  return num % 2 == 1;
}

// The error is for after the name of the tool.
Result<Format> format_of(const OrderedJson& tool) {
  const OrderedJson* const format = find_ordered(tool, "format");
  if (format == nullptr) return Format{};
  const std::string* const type = find_ordered_text(*format, "type");
  if (type != nullptr && *type == "text") return Format{};
  const std::string* const syntax = find_ordered_text(*format, "syntax");
  const std::string* const definition = find_ordered_text(*format, "definition");
  if (type == nullptr || *type != "grammar" || syntax == nullptr || definition == nullptr ||
      definition->empty() || (*syntax != "lark" && *syntax != "regex")) {
    return Error{ErrorCode::kInvalid,
                 "format: is unknown; allowed are {\"type\": \"text\"} and {\"type\": \"grammar\", "
                 "\"syntax\": \"lark\" or \"regex\", \"definition\": ...}"};
  }
  if (*syntax == "regex" && ends_in_escape(*definition)) {
    return Error{ErrorCode::kInvalid,
                 "format: has a regular expression that ends with \\; a character is needed"};
  }
  if (definition->size() > kGrammarBytesMax) {
    return Error{ErrorCode::kInvalid,
                 "format: has a definition of " + std::to_string(definition->size()) +
                     " bytes; allowed are at most " + std::to_string(kGrammarBytesMax)};
  }
  return Format{*syntax == "regex", *definition};
}

std::set<std::string, std::less<>> names_of_functions(const OrderedJson& tools) {
  std::set<std::string, std::less<>> names;
  for (const OrderedJson& tool : tools) {
    const std::string* const type = find_ordered_text(tool, "type");
    if (type == nullptr || *type != "function") continue;
    const OrderedJson* const function = find_ordered(tool, "function");
    const bool is_nested = function != nullptr && function->is_object();
    const std::string* const name = find_ordered_text(is_nested ? *function : tool, "name");
    if (name != nullptr) names.insert(*name);
  }
  return names;
}

// All of it is to match.
std::string pattern_of(const std::string& regex) { return "^(?:" + regex + ")$"; }

std::string lark_of_regex(const std::string& regex) {
  std::string escaped;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    if (regex[i] == '/') escaped += '\\';
    escaped += regex[i];
    if (regex[i] == '\\' && i + 1 < regex.size()) escaped += regex[++i];
  }
  return "start: /" + escaped + "/";
}

Result<void> set_grammar_of(const OrderedJson& tool, OfferedFunction& function) {
  const auto format = format_of(tool);
  if (!format) return format.error();
  if (format->definition.empty()) return {};
  function.is_strict = true;  // or the request is refused
  function.input_lark = format->is_regex ? lark_of_regex(format->definition) : format->definition;
  if (format->is_regex) return {};  // the pattern of its parameters says so
  auto escaped = escaped_lark(format->definition);
  if (!escaped) {
    return Error{ErrorCode::kInvalid, "format.definition: " + escaped.error().message};
  }
  // Where JSON escapes nothing of it a rule ends where it did.
  function.input_lark_in_json =
      *escaped == format->definition ? *std::move(escaped) : regular_lark(*escaped);
  return {};
}

}  // namespace

bool is_custom_tool(const OrderedJson& tool) {
  const std::string* const type = find_ordered_text(tool, "type");
  return type != nullptr && *type == "custom";
}

OrderedJson function_of_custom(const OrderedJson& tool) {
  OrderedJson function = OrderedJson::object();
  for (const std::string_view name : {"name", "description"}) {
    if (const OrderedJson* const value = find_ordered(tool, name)) function[name] = *value;
  }
  function.emplace("description", "");  // without one gpt-oss's template fails
  OrderedJson input = {{"type", "string"}};
  const auto format = format_of(tool);
  if (format && !format->definition.empty()) {
    input["description"] = std::string(format->is_regex ? "A text of the regular expression\n"
                                                        : "A text of the Lark grammar\n") +
                           format->definition;
    if (format->is_regex) input["pattern"] = pattern_of(format->definition);
  }
  OrderedJson properties = OrderedJson::object();
  properties["input"] = std::move(input);
  function["parameters"] = {{"type", "object"},
                            {"properties", std::move(properties)},
                            {"required", OrderedJson::array({"input"})},
                            {"additionalProperties", false}};
  return {{"type", "function"}, {"function", std::move(function)}};
}

std::set<std::string, std::less<>> read_custom_tools(JsonFields& fields, const OrderedJson& tools,
                                                     OfferedTools* offered) {
  std::set<std::string, std::less<>> names;
  if (!tools.is_array()) return names;  // it has been refused
  const auto functions = names_of_functions(tools);
  std::size_t num_bytes = 0;
  for (std::size_t i = 0; i < tools.size() && !fields.failed(); ++i) {
    const std::string* const name = find_ordered_text(tools[i], "name");
    if (!is_custom_tool(tools[i]) || name == nullptr) continue;
    names.insert(*name);
    if (functions.contains(*name)) {
      fields.fail("tools[" + std::to_string(i) + "]: has the name of a function, '" + *name +
                  "'; allowed is a name that no function has");
    }
    OfferedFunction unused;
    OfferedFunction* function = &unused;
    if (offered != nullptr) {
      const auto found = std::ranges::find(offered->functions, *name, &OfferedFunction::name);
      if (found != offered->functions.end()) function = &*found;
    }
    if (auto set = set_grammar_of(tools[i], *function); !set) {
      fields.fail("tools[" + std::to_string(i) + "]." + set.error().message);
    }
    num_bytes += function->input_lark.size() + function->input_lark_in_json.size();
    if (num_bytes > kGrammarsBytesMax) {
      fields.fail("tools", "have grammars of more than the allowed 4 MiB, as they are written");
    }
  }
  return names;
}

std::string custom_arguments(const std::string& input) {
  std::string out = R"({"input": )";
  append_json_string(input, out);
  return out + "}";
}

std::string CustomInput::push(std::string_view json) {
  std::string out;
  for (const char c : json) {
    switch (state_) {
      case State::kBefore:
        if (std::string_view(" \t\r\n").find(c) != std::string_view::npos) break;
        before_ += c;
        if (!kInputBegin.starts_with(before_)) {
          state_ = State::kOther;
          out += before_;
        } else if (before_.size() == kInputBegin.size()) {
          state_ = State::kText;
          before_.clear();
        }
        break;
      case State::kText:
        push_text(c, out);
        break;
      case State::kAfter:
        break;
      case State::kOther:
        out += c;
        break;
    }
  }
  return out;
}

// before_: the escape so far.
void CustomInput::push_text(char c, std::string& out) {
  if (before_.empty()) {
    if (c == '\\') {
      before_ = c;
    } else if (c == '"') {
      state_ = State::kAfter;
    } else {
      out += c;
    }
    return;
  }
  before_ += c;
  if (before_[1] == 'u') {
    if (before_.size() == 6) push_unit(out);
    return;
  }
  constexpr std::string_view kLetters = "nrtbf";
  constexpr std::string_view kMeant = "\n\r\t\b\f";
  const std::size_t at = kLetters.find(c);
  out += at == std::string_view::npos ? c : kMeant[at];
  before_.clear();
}

void CustomInput::push_unit(std::string& out) {
  unsigned unit = 0;
  std::from_chars(before_.data() + 2, before_.data() + 6, unit, 16);
  before_.clear();
  const bool is_low = unit >= 0xDC00 && unit < 0xE000;
  if (unit >= 0xD800 && unit < 0xDC00) {
    high_ = unit;
  } else if (is_low && high_ != 0) {
    append_utf8(0x10000 + ((std::exchange(high_, 0) - 0xD800) << 10U) + (unit - 0xDC00), out);
  } else {
    append_utf8(is_low ? U'\uFFFD' : static_cast<char32_t>(unit), out);
  }
}

}  // namespace lmtp::server
