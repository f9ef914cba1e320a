#include "read_tools.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "call_grammar.h"
#include "ordered_members.h"
#include "schema_reading.h"
#include "unknown_keys.h"
#include "vendor_tools.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kFunctionNameBytesMax = 128;  // Anthropic's; OpenAI's are 64

// The grammar's rules and the openings of texts have it as it is.
bool is_tool_name(const std::string& name) {
  return !name.empty() && name.size() <= kFunctionNameBytesMax &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

std::optional<OfferedFunction> function_of(const OrderedJson& tool, SchemaReading reading) {
  if (!tool.is_object()) return std::nullopt;
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) return std::nullopt;
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string()) return std::nullopt;
  const auto given = function->find("parameters");
  OrderedJson parameters = {
      {"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
  if (given != function->end() && given->is_object()) parameters = *given;
  parameters.emplace("type", "object");  // arguments of a function are one
  const auto strict = function->find("strict");
  const bool is_object = parameters["type"] == "object";
  if (!is_object) parameters = {{"type", "object"}};
  const bool is_lax = strict != function->end() && *strict == false;
  const bool is_large = parameters.dump().size() > kMaxGrammarBytes;
  if (reading == SchemaReading::kAsMeant && !is_lax && !is_large) read_schema_as_meant(parameters);
  const bool can_be_had = is_object && !is_large && can_be_met(parameters) &&
                          most_optional_members(parameters) <= kOptionalMembersMax;
  OfferedFunction read{name->get<std::string>(), with_fixed_spaces(std::move(parameters))};
  read.is_strict = strict != function->end() && *strict == true;
  read.is_loose = !can_be_had || read.parameters.size() > kMaxGrammarBytes;
  return is_tool_name(read.name) ? std::optional(std::move(read)) : std::nullopt;
}

std::vector<OfferedFunction> read_functions(JsonFields& fields, const OrderedJson& tools,
                                            SchemaReading reading) {
  std::vector<OfferedFunction> functions;
  for (const OrderedJson& tool : tools) {
    auto function = function_of(tool, reading);
    if (!function) {
      fields.fail("tools", "[" + std::to_string(functions.size()) +
                               "] is no function; allowed is {\"type\": \"function\", "
                               "\"function\": {\"name\": ..., \"parameters\": ...}} with a name of "
                               "1 to 64 letters, digits, _ and -");
      return functions;
    }
    functions.push_back(std::move(*function));
  }
  return functions;
}

// The name of {"type": "function", "function": {"name": ...}}, of which TGI's clients leave the
// type out; null: it is none.
const std::string* named_by(const Json& choice) {
  const std::string* type = find_json_text(choice, "type");
  const Json* function = find_json(choice, "function");
  if ((type != nullptr && *type != "function") || function == nullptr) return nullptr;
  return find_json_text(*function, "name");
}

// Those alone that the choice allows, in any of the forms that there are.
void keep_allowed(JsonFields& fields, const Json& allowed, OfferedTools& tools) {
  const std::string* mode = find_json_text(allowed, "mode");
  const Json* list = find_json(allowed, "tools");
  if (list == nullptr || !list->is_array() ||
      (mode != nullptr && *mode != "auto" && *mode != "required")) {
    return fields.fail(
        "tool_choice",
        "is no choice of allowed tools; allowed is {\"type\": \"allowed_tools\", "
        "\"allowed_tools\": {\"mode\": \"auto\" or \"required\", \"tools\": [{\"type\": "
        "\"function\", \"function\": {\"name\": ...}}, ...]}}");
  }
  if (mode != nullptr && *mode == "required") tools.choice = OfferedTools::Choice::kRequired;
  std::erase_if(tools.functions, [&](const OfferedFunction& function) {
    return std::ranges::none_of(*list, [&](const Json& tool) {
      const std::string* name = named_by(tool);
      if (name == nullptr) name = find_json_text(tool, "name");
      return name != nullptr && *name == function.name;
    });
  });
  if (tools.functions.empty()) {
    fields.fail("tool_choice", "allows no function that is among the tools");
  }
}

void keep_named(JsonFields& fields, const std::string& name, OfferedTools& tools) {
  tools.choice = OfferedTools::Choice::kNamed;
  std::erase_if(tools.functions,
                [&](const OfferedFunction& function) { return function.name != name; });
  if (tools.functions.empty()) {
    fields.fail("tool_choice", "names a function that is not among the tools");
  }
}

void read_choice(JsonFields& fields, const Json& choice, OfferedTools& tools) {
  if (choice == "auto") return;
  const std::string* type = find_json_text(choice, "type");
  const std::string* name = named_by(choice);
  if (choice == "required") {
    tools.choice = OfferedTools::Choice::kRequired;
  } else if (name != nullptr) {
    keep_named(fields, *name, tools);
  } else if (type != nullptr && *type == "allowed_tools") {
    const Json* allowed = find_json(choice, "allowed_tools");
    keep_allowed(fields, allowed != nullptr ? *allowed : choice, tools);
  } else {
    fields.fail("tool_choice",
                "is unknown; allowed are \"none\", \"auto\", \"required\", "
                "{\"type\": \"function\", \"function\": {\"name\": ...}} and "
                "{\"type\": \"allowed_tools\", \"allowed_tools\": ...}");
  }
}

// What is wrong with a tool of a chat; empty: nothing.
std::string wrong_member(const OrderedJson& tool) {
  const OrderedJson* const function = find_ordered(tool, "function");
  if (function == nullptr || !function->is_object()) return ": is no tool";
  const std::string* const name = find_ordered_text(*function, "name");
  if (name == nullptr || !is_tool_name(*name)) return ": has no name, or one that is not allowed";
  const auto is_other = [&](const char* key, bool (OrderedJson::*is_good)() const noexcept) {
    const OrderedJson* const value = find_ordered(*function, key);
    return value != nullptr && !(value->*is_good)();
  };
  if (is_other("description", &OrderedJson::is_string)) return ": has a description of no text";
  if (is_other("parameters", &OrderedJson::is_object)) return ": has a schema that is no object";
  return is_other("strict", &OrderedJson::is_boolean) ? ": has a strict that is no boolean" : "";
}

}  // namespace

OrderedJson read_tool_list(JsonFields& fields, const OrderedJson& body,
                           OrderedJson (*convert)(const OrderedJson&), std::string_view form) {
  OrderedJson tools = OrderedJson::array();
  const Json* const given = fields.given("tools");
  if (given == nullptr) return tools;
  if (!given->is_array()) {
    fields.fail("tools", seen(*given) + "; allowed is an array");
    return tools;
  }
  constexpr std::size_t kToolsMax = 1024;
  if (given->size() > kToolsMax) {
    fields.fail("tools", "has " + std::to_string(given->size()) + " of them; allowed are at most " +
                             std::to_string(kToolsMax));
    return tools;
  }
  for (const OrderedJson& tool : *body.find("tools")) {
    tools.push_back(convert(tool));
    if (is_vendor_tool(tools.back())) continue;
    const std::string at = "tools[" + std::to_string(tools.size() - 1) + "]";
    const std::string wrong = wrong_member(tools.back());
    if (wrong.empty()) continue;
    fields.fail(at + wrong + "; allowed is " + std::string(form) +
                " with a name of 1 to 128 letters, digits, _ and -");
    return OrderedJson::array();
  }
  return without_vendor_tools(tools).kept;
}

std::optional<OfferedTools> read_tools(JsonFields& fields, const OrderedJson& given,
                                       SchemaReading reading) {
  const Json* choice = fields.given("tool_choice");
  return read_tools(fields, given, {choice, fields.boolean("parallel_tool_calls", true)}, reading);
}

std::optional<OfferedTools> read_tools(JsonFields& fields, const OrderedJson& given,
                                       ToolChoice chosen, SchemaReading reading) {
  const Json* const choice = chosen.choice;
  OfferedTools tools;
  tools.calls_several = chosen.calls_several;
  const bool is_forced = choice != nullptr && *choice != "auto" && *choice != "none";
  if (given.empty()) {
    if (is_forced) fields.fail("tool_choice", "needs tools");
    return std::nullopt;
  }
  if (choice != nullptr && *choice == "none") return std::nullopt;
  tools.functions = read_functions(fields, given, reading);
  if (fields.failed()) return std::nullopt;
  if (choice != nullptr) read_choice(fields, *choice, tools);
  std::vector<std::string> loose;
  for (const OfferedFunction& function : tools.functions) {
    if (!function.is_loose) continue;
    if (!function.is_strict && tools.choice == OfferedTools::Choice::kAuto) {
      loose.push_back(function.name);
      continue;
    }
    fields.fail("tools", "'" + function.name +
                             "' has parameters that no call can have; allowed is a schema that "
                             "some object meets, of at most " +
                             std::to_string(kMaxGrammarBytes) + " bytes and " +
                             std::to_string(kOptionalMembersMax) +
                             " members of an object that may be left out");
  }
  log_once("tools: no call can have the parameters of these, and any object is an argument:",
           loose);
  return tools;
}

}  // namespace lmtp::server
