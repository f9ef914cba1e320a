#include "tool_calls.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "generation/reply_formats.h"
#include "generation/schema_reading.h"
#include "lmtp/constraint/schema_forms.h"
#include "request.h"

namespace lmtp::server {
namespace {

struct Function {
  std::string name;
  std::string parameters;  // a schema
};

constexpr std::size_t kNameBytesMax = 64;  // OpenAI's

// The grammar's rules and the openings of texts have it as it is.
bool is_tool_name(const std::string& name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

std::optional<Function> function_of(const OrderedJson& tool, SchemaReading reading) {
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
  const bool is_lax = strict != function->end() && *strict == false;
  if (reading == SchemaReading::kAsMeant && !is_lax) read_schema_as_meant(parameters);
  // As templates write calls, so that keys and separators are certain; else white space in what
  // Lark takes for JSON could go on for ever.
  if (!parameters.contains("x-guidance")) {
    parameters["x-guidance"] = {
        {"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}};
  }
  Function read{name->get<std::string>(), parameters.dump()};
  return is_tool_name(read.name) ? std::optional(std::move(read)) : std::nullopt;
}

std::vector<Function> read_functions(JsonFields& fields, const OrderedJson& tools,
                                     SchemaReading reading) {
  std::vector<Function> functions;
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

// The name of {"type": "function", "function": {"name": ...}}; null: it is none.
const std::string* named_by(const Json& choice) {
  const std::string* type = find_json_text(choice, "type");
  const Json* function = find_json(choice, "function");
  if (type == nullptr || *type != "function" || function == nullptr) return nullptr;
  return find_json_text(*function, "name");
}

void call_named(JsonFields& fields, const std::vector<Function>& functions, const std::string& name,
                OpenAiRequest& request) {
  const auto found = std::ranges::find(functions, name, &Function::name);
  if (found == functions.end()) {
    return fields.fail("tool_choice", "names a function that is not among the tools");
  }
  request.generation.text.format = make_format({{{"", found->name}}, ""});
  request.answer.call_is_chosen = true;
  set_grammar("tool_choice", {Grammar::Kind::kJsonSchema, found->parameters}, fields,
              request.generation);
}

// {"name": "f", "arguments": {...}}, one of the functions.
void call_any(JsonFields& fields, const std::vector<Function>& functions, OpenAiRequest& request) {
  std::size_t num_bytes = 0;
  for (const Function& function : functions) num_bytes += function.parameters.size();
  const bool is_too_much = num_bytes > kMaxGrammarBytes;  // and will be refused
  ForcedCalls calls{{}, "}"};
  std::string start = "start: ";
  std::string rules;
  for (const Function& function : functions) {
    const std::string number = std::to_string(calls.calls.size());
    std::string opening = R"({"name": ")" + function.name + R"(", "arguments": )";
    start += (number == "0" ? "call_" : " | call_") + number;
    rules += "call_" + number + ": ";
    append_json_string(opening, rules);
    rules += " arguments_" + number + " \"}\"\narguments_" + number + ": %json " +
             (is_too_much ? function.parameters : constraint::to_known_form(function.parameters)) +
             "\n";
    calls.calls.push_back({std::move(opening), function.name});
  }
  request.generation.text.format = make_format(std::move(calls));
  set_grammar("tool_choice", {Grammar::Kind::kLark, start + "\n" + rules}, fields,
              request.generation);
}

}  // namespace

void read_tool_calls(JsonFields& fields, const OrderedJson& body, SchemaReading reading,
                     OpenAiRequest& request) {
  const Json* tools = fields.given("tools");
  const Json* choice = fields.given("tool_choice");
  if (tools != nullptr && !tools->is_array()) {
    return fields.fail("tools", seen(*tools) + "; allowed is an array");
  }
  const bool has_tools = tools != nullptr && !tools->empty();
  if (choice == nullptr || *choice == "auto") {
    if (!has_tools) return;
    // Calls would come back as text, which nobody takes for calls.
    return fields.fail("tool_choice",
                       "calls are not read out of free text here; with \"required\" or a named "
                       "function the answer is a call, and with \"none\" the template shows the "
                       "tools to the model, and a call is part of the text");
  }
  if (*choice == "none") return;
  const std::string* name = named_by(*choice);
  if (name == nullptr && *choice != "required") {
    return fields.fail("tool_choice",
                       "is unknown; allowed are \"none\", \"required\" and "
                       "{\"type\": \"function\", \"function\": {\"name\": ...}}");
  }
  if (!has_tools) return fields.fail("tool_choice", "needs tools");
  const std::vector<Function> functions = read_functions(fields, *body.find("tools"), reading);
  if (fields.failed()) return;
  if (name != nullptr) return call_named(fields, functions, *name, request);
  call_any(fields, functions, request);
}

}  // namespace lmtp::server
