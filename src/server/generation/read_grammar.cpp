#include "read_grammar.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "schema_reading.h"

namespace lmtp::server {
namespace {

using Kind = Grammar::Kind;

// Null: missing, or null.
const OrderedJson* find(const OrderedJson& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string grammar_text(const OrderedJson* value) {
  const auto* text = value == nullptr ? nullptr : value->get_ptr<const std::string*>();
  return text == nullptr ? std::string() : *text;
}

// As vLLM tells them apart: rules of GBNF, and of no other notation, have "::=".
std::string_view notation_of(const OrderedJson& grammar) {
  return grammar_text(&grammar).find("::=") != std::string::npos ? "gbnf" : "lark";
}

// make_grammar(); a schema is read first, also one that is given as text.
Result<Grammar> make_read(std::string_view type, const OrderedJson* value, SchemaReading reading) {
  const bool has_schema = type == "json" || type == "json_schema" || type == "json_object";
  if (value == nullptr || !has_schema || reading == SchemaReading::kAsWritten) {
    return make_grammar(type, grammar_value(value));
  }
  OrderedJson schema = *value;
  if (value->is_string()) {
    if (grammar_text(value).size() > kMaxGrammarBytes) {
      return make_grammar(type, grammar_value(value));  // says so
    }
    auto parsed = parse_ordered_json(grammar_text(value), "the schema");
    if (!parsed) return Error{ErrorCode::kInvalid, ".value: " + parsed.error().message};
    schema = std::move(*parsed);
  }
  const OrderedJson as_written = schema;
  read_schema_as_meant(schema);
  return make_grammar(type, grammar_value(schema == as_written ? value : &schema));
}

// Of a field that is the value itself.
Result<Grammar> plain_grammar(std::string_view type, const OrderedJson& value,
                              SchemaReading reading) {
  auto grammar = make_read(type, &value, reading);
  if (grammar) return grammar;
  constexpr std::string_view kValue = ".value";
  return Error{ErrorCode::kInvalid, grammar.error().message.substr(kValue.size())};
}

Result<Grammar> within(std::string_view key, Result<Grammar> grammar) {
  if (grammar) return grammar;
  return Error{ErrorCode::kInvalid, "." + std::string(key) + grammar.error().message};
}

// OpenAI's and TGI's {"name": ..., "schema": ..., "strict": ...}.
Result<Grammar> read_named_schema(const OrderedJson* named, SchemaReading reading) {
  const OrderedJson* schema = named == nullptr ? nullptr : find(*named, "schema");
  const OrderedJson* strict = named == nullptr ? nullptr : find(*named, "strict");
  if (strict != nullptr && *strict == false) reading = SchemaReading::kAsWritten;
  if (schema != nullptr) return within("schema", plain_grammar("json_schema", *schema, reading));
  return Error{ErrorCode::kInvalid, ": has no schema; allowed is {\"name\": ..., \"schema\": ...}"};
}

// OpenAI's {"type": "json_schema", "json_schema": {"name", "schema"}} and {"type": "json_object"},
// llama.cpp's {"type": "json_object", "schema": ...}, and TGI's {"type", "value"}.
Result<Grammar> read_response_format(const OrderedJson& format, SchemaReading reading) {
  const std::string type = grammar_text(find(format, "type"));
  if (type == "json_schema" && find(format, "json_schema") != nullptr) {
    return within("json_schema", read_named_schema(find(format, "json_schema"), reading));
  }
  if (type == "json_object" && find(format, "schema") != nullptr) {
    return within("schema", plain_grammar("json_schema", *find(format, "schema"), reading));
  }
  if (find(format, "value") != nullptr || type == "json_object") {
    return read_typed_grammar(format, reading);
  }
  return Error{ErrorCode::kInvalid,
               type == "json_schema" ? ".json_schema: is missing"
                                     : ".type: is unknown; allowed are \"text\", \"json_object\" "
                                       "and \"json_schema\""};
}

// vLLM's: one of these.
struct Structured {
  std::string_view key;
  std::string_view type;
};
constexpr std::array kStructured = {
    Structured{"json", "json_schema"}, Structured{"regex", "regex"},
    Structured{"choice", "choice"},    Structured{"grammar", ""},
    Structured{"json_object", ""},
};

Result<Grammar> read_structured(std::string_view key, std::string_view type,
                                const OrderedJson& value, SchemaReading reading) {
  if (key.ends_with("json_object")) return Grammar{Kind::kJson, {}};  // true, or it has no effect
  return plain_grammar(type.empty() ? notation_of(value) : type, value, reading);
}

Result<Grammar> read_structured_outputs(const OrderedJson& outputs, SchemaReading reading) {
  std::optional<Result<Grammar>> grammar;
  for (const auto& [key, type] : kStructured) {
    const OrderedJson* value = find(outputs, key);
    if (value == nullptr || *value == false || *value == "") continue;
    if (grammar) return Error{ErrorCode::kInvalid, ": has several of its fields; one is allowed"};
    grammar = within(key, read_structured(key, type, *value, reading));
  }
  if (grammar) return *grammar;
  return Error{ErrorCode::kInvalid,
               ": has none of json, regex, choice, grammar and json_object; one is allowed"};
}

Result<Grammar> read_field(std::string_view field, const OrderedJson& value,
                           SchemaReading reading) {
  if (field == "response_format") return read_response_format(value, reading);
  if (field == "structured_outputs") return read_structured_outputs(value, reading);
  std::string_view type;
  if (field == "guided_json" || field == "json_schema") type = "json_schema";
  if (field == "guided_regex") type = "regex";
  if (field == "guided_choice") type = "choice";
  return read_structured(field, type, value, reading);
}

constexpr std::array<std::string_view, 9> kFields = {
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar",  "guided_json_object", "grammar",     "json_schema",
};

// Clients write out defaults.
bool is_without_effect(std::string_view field, const Json& value) {
  if (field == "response_format") {
    const std::string* type = find_json_text(value, "type");
    if (type != nullptr) return *type == "text";
  }
  return value == false || is_empty_json(value);
}

}  // namespace

GrammarValue grammar_value(const OrderedJson* value) {
  if (value == nullptr || value->is_null()) return {};
  if (value->is_string()) return {GrammarValue::Kind::kText, grammar_text(value)};
  if (value->is_array()) return {GrammarValue::Kind::kList, value->dump()};
  if (value->is_object()) return {GrammarValue::Kind::kObject, value->dump()};
  return {GrammarValue::Kind::kOther, {}};
}

Result<Grammar> read_typed_grammar(const OrderedJson& value, SchemaReading reading) {
  const OrderedJson* type = find(value, "type");
  if (type == nullptr || !type->is_string()) {
    return Error{ErrorCode::kInvalid, ": allowed is {\"type\": TYPE, \"value\": VALUE}"};
  }
  const OrderedJson* given = find(value, "value");
  if (grammar_text(type) == "json_schema" && given != nullptr &&
      find(*given, "schema") != nullptr) {
    return within("value", read_named_schema(given, reading));
  }
  return make_read(grammar_text(type), given, reading);
}

void set_grammar(std::string_view field, Grammar grammar, JsonFields& fields,
                 GenerationRequest& request) {
  if (request.grammar == grammar) return;  // in an older spelling beside the newer one
  if (request.grammar) {
    return fields.fail(field, "stands beside " + request.grammar_field + "; one is allowed");
  }
  request.grammar = std::move(grammar);
  request.grammar_field = field;
}

void read_grammar(JsonFields& fields, const std::string& body, SchemaReading reading,
                  GenerationRequest& request) {
  std::optional<Result<OrderedJson>> ordered;
  for (const std::string_view field : kFields) {
    const Json* value = fields.find(field);
    if (value == nullptr || is_without_effect(field, *value)) continue;
    if (!ordered) ordered = parse_ordered_json(body, "body");
    if (!*ordered) return fields.fail(field, ordered->error().message);
    auto grammar = read_field(field, *find(**ordered, field), reading);
    if (grammar) {
      set_grammar(field, std::move(*grammar), fields, request);
    } else {
      fields.fail(std::string(field) + grammar.error().message);
    }
  }
}

}  // namespace lmtp::server
