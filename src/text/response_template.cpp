// transformers' utils/chat_parsing reads replies as regions, each with an opening and a closing,
// which are literals or patterns, and a reader of what is between them. What published templates
// have of this is a layout.
#include "response_template.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"

namespace lmtp::text {
namespace {

using Arguments = CallLayout::Arguments;
using Names = std::array<std::string_view, 2>;

constexpr std::string_view kPunctuation = R"(\|[](){}<>.*+?^$/-"'=: )";

Error no_layout(const std::string& what) { return {ErrorCode::kInvalid, what}; }

bool has(std::string_view set, char c) { return set.find(c) != std::string_view::npos; }

// The end of the group that begins at `at`, after its ')'; npos: it has none.
std::size_t group_end(std::string_view pattern, std::size_t at) {
  int depth = 0;
  for (bool in_set = false; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '\\') {
      ++at;
    } else if (in_set) {
      in_set = c != ']';
    } else if (c == '[') {
      in_set = true;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')' && --depth == 0) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

// The literal texts of a pattern around its groups of these names, which are in this order; white
// space that may be there or not is left away. Nullopt: there is more in it.
std::optional<std::vector<std::string>> literals(std::string_view pattern, const Names& names) {
  std::vector<std::string> texts(1);
  for (std::size_t at = 0; at < pattern.size();) {
    const std::string_view rest = pattern.substr(at);
    const std::size_t index = texts.size() - 1;
    const std::string group = index < names.size() ? "(?P<" + std::string(names[index]) + ">" : "(";
    if (rest.starts_with("\\s*") || rest.starts_with("\\s+") || rest.starts_with(" ?") ||
        rest.starts_with("\\n?") || rest.starts_with(" *")) {
      at += rest[0] == '\\' ? 3 : 2;
    } else if (rest.starts_with("\\n")) {
      texts.back() += '\n';
      at += 2;
    } else if (rest[0] == '\\') {
      if (rest.size() < 2 || !has(kPunctuation, rest[1])) return std::nullopt;
      texts.back() += rest[1];
      at += 2;
    } else if (rest[0] == '(') {
      at = group_end(pattern, at);
      if (index >= names.size() || names[index].empty() || !rest.starts_with(group) ||
          at == std::string_view::npos) {
        return std::nullopt;
      }
      texts.emplace_back();
    } else {
      const bool is_repeated = rest.size() > 1 && has("*+?{", rest[1]);
      if (is_repeated || has("[)*+?|^$.", rest[0])) return std::nullopt;
      texts.back() += rest[0];
      ++at;
    }
  }
  return texts;
}

// `key` is a literal, or the first of several; `key`_pattern a pattern. One text, or two around the
// name.
std::optional<std::vector<std::string>> delimiter(const Json& field, const std::string& key) {
  if (const Json* literal = find_json(field, key)) {
    const Json& first = literal->is_array() && !literal->empty() ? literal->front() : *literal;
    if (!first.is_string()) return std::nullopt;
    return std::vector{first.get<std::string>()};
  }
  const std::string* pattern = find_json_text(field, key + "_pattern");
  return pattern == nullptr ? std::nullopt : literals(*pattern, {"name", ""});
}

// "{content.x}", "{x}" -> x; empty: it is something else.
std::string placeholder(const Json& object, const char* key) {
  const std::string* text = find_json_text(object, key);
  if (text == nullptr || text->size() < 3 || text->front() != '{' || text->back() != '}') return {};
  const std::string name = text->substr(1, text->size() - 2);
  constexpr std::string_view kContent = "content.";
  return name.starts_with(kContent) ? name.substr(kContent.size()) : name;
}

// Objects of JSON that have the name in them, each or a list of them between the two texts.
Result<CallLayout> json_layout(const Json& field, const std::string& open,
                               const std::string& close) {
  const Json* transform = find_json(field, "transform");
  const Json* function = transform == nullptr ? nullptr : find_json(*transform, "function");
  if (function == nullptr) return no_layout("its calls have no function");
  std::string name = "name";
  std::string arguments = "arguments";
  if (function->is_object()) {
    name = placeholder(*function, "name");
    arguments = placeholder(*function, "arguments");
  } else if (placeholder(*transform, "function") != "content") {
    name.clear();
  }
  if (name.empty() || arguments.empty()) {
    return no_layout("it does not tell where a call's name and arguments are");
  }
  CallLayout layout = {.opening = open,
                       .call_begin = open + "{\"" + name + "\": \"",
                       .name_end = "\", \"" + arguments + "\": ",
                       .call_end = "}" + close};
  if (find_json_bool(field, "transform_each").value_or(false)) {
    layout.section_begin = open + "[";
    layout.separator = ", ";
    layout.section_end = "]" + close;
    layout.call_begin = "{\"" + name + "\": \"";
    layout.call_end = "}";
  }
  return layout;
}

// The name stands in the opening, before the arguments.
Result<CallLayout> named_layout(const Json& field, const std::vector<std::string>& open,
                                const std::string& close) {
  CallLayout layout = {
      .opening = open[0], .call_begin = open[0], .name_end = open[1], .call_end = close};
  const Json* options = find_json(field, "content_args");
  const std::string* content = find_json_text(field, "content");
  if (content != nullptr && *content == "json") {
    const Json* delimiters = options == nullptr ? nullptr : find_json(*options, "string_delims");
    if (delimiters == nullptr || delimiters->empty()) return layout;
    const Json& pair = delimiters->front();
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || pair[0] != pair[1] ||
        pair[0] == "") {
      return no_layout("its strings have other ends than beginnings, or none");
    }
    layout.arguments = Arguments::kLoose;
    layout.string_quote = pair[0].get<std::string>();
    return layout;
  }
  const std::string* tags = options == nullptr ? nullptr : find_json_text(*options, "tag_pattern");
  if (content == nullptr || *content != "xml-inline" || tags == nullptr) {
    return no_layout("its arguments are neither JSON nor tags");
  }
  const auto texts = literals(*tags, {"key", "value"});
  if (!texts || texts->size() != 3) return no_layout("its tag_pattern is no literal text");
  layout.arguments = Arguments::kTagged;
  layout.argument_begin = (*texts)[0];
  layout.argument_name_end = (*texts)[1];
  layout.argument_end = (*texts)[2];
  return layout;
}

Result<CallLayout> call_layout(const Json& field) {
  const auto open = delimiter(field, "open");
  const auto close = delimiter(field, "close");
  if (!open || !close || close->size() != 1 || open->front().empty()) {
    return no_layout("what opens or closes its calls is no literal text");
  }
  if (open->size() == 2) return named_layout(field, *open, close->front());
  return json_layout(field, open->front(), close->front());
}

}  // namespace

Result<ResponseTemplate> read_response_template(const std::string& text) {
  const auto json = parse_json_object(text, "response_template");
  if (!json) return json.error();
  const Json* fields = find_json(*json, "fields");
  if (fields == nullptr) return no_layout("it has no fields");
  ResponseTemplate found;
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    const Json* field = find_json(*fields, name);
    const auto open = field == nullptr ? std::nullopt : delimiter(*field, "open");
    const auto close = field == nullptr ? std::nullopt : delimiter(*field, "close");
    if (!open || !close || open->size() != 1 || close->size() != 1) continue;
    if (!open->front().empty() && !close->front().empty()) {
      found.reasoning = ReasoningLayout{open->front(), close->front()};
    }
  }
  if (const Json* field = find_json(*fields, "tool_calls")) {
    auto calls = call_layout(*field);
    if (!calls) return calls.error();
    found.calls = *std::move(calls);
  }
  return found;
}

}  // namespace lmtp::text
