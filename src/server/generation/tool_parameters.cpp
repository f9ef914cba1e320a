#include "tool_parameters.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "call_grammar.h"
#include "schema_reading.h"

namespace lmtp::server {
namespace {

constexpr int kReferencesMax = 16;  // in one another

JsonTypes types_within(const OrderedJson& root, const OrderedJson& schema, int depth) {
  if (!schema.is_object() || depth > kReferencesMax) return kAnyType;
  JsonTypes types = kAnyType;
  const auto each = [&](std::string_view key, const auto& types_of_one) {
    const OrderedJson* const list = find_member(schema, key);
    JsonTypes any = 0;
    if (list == nullptr || !list->is_array()) return kAnyType;
    for (const OrderedJson& one : *list) any |= types_of_one(one);
    return any;
  };
  const auto of_branch = [&](const OrderedJson& one) { return types_within(root, one, depth + 1); };
  const auto of_value = [](const OrderedJson& one) { return type_of_json(one.dump()); };
  if (const OrderedJson* const type = find_member(schema, "type")) {
    types &= type->is_array() ? each("type", type_named) : type_named(*type);
  }
  types &= each("enum", of_value) & each("anyOf", of_branch) & each("oneOf", of_branch);
  if (const OrderedJson* const one = find_member(schema, "const")) types &= of_value(*one);
  if (const OrderedJson* const all = find_member(schema, "allOf")) {
    for (const OrderedJson& one : *all) types &= of_branch(one);
  }
  const OrderedJson* const reference = find_member(schema, "$ref");
  const OrderedJson* const target = reference == nullptr ? nullptr : find_target(root, *reference);
  return target == nullptr ? types : types & of_branch(*target);
}

// The only ones that a schema lists, where all are strings; empty: any.
std::vector<std::string> only_texts(const OrderedJson& schema) {
  const OrderedJson* const one = find_member(schema, "const");
  if (one != nullptr && one->is_string()) return {*one};
  const OrderedJson* const values = find_member(schema, "enum");
  const bool are_texts = values != nullptr && values->is_array() &&
                         std::ranges::all_of(*values, &OrderedJson::is_string);
  return are_texts ? values->get<std::vector<std::string>>() : std::vector<std::string>();
}

// Collects what a schema of an object says of its members, in all of its parts.
class Gathering {
 public:
  explicit Gathering(Parameters& to) : to_(to) {}

  // is_sure: it holds for each object, and not for some of them.
  void gather(const OrderedJson& schema, bool is_sure, int depth = 0) {
    if (!schema.is_object() || depth > kReferencesMax) return leave();
    if (!says_only(schema, {"type", "properties", "required", "additionalProperties", "$ref",
                            "allOf", "anyOf", "oneOf"})) {
      leave();
    }
    if (const OrderedJson* const reference = find_member(schema, "$ref")) {
      const OrderedJson* const target = find_target(to_.root, *reference);
      if (target == nullptr) leave();
      if (target != nullptr) gather(*target, is_sure, depth + 1);
    }
    for (const std::string_view key : {"allOf", "anyOf", "oneOf"}) {
      const OrderedJson* const branches = find_member(schema, key);
      if (branches == nullptr || !branches->is_array()) continue;
      const bool is_all = key == "allOf" || branches->size() == 1;
      if (!is_all) leave();
      for (const OrderedJson& one : *branches) gather(one, is_sure && is_all, depth + 1);
    }
    // As the library orders them in JSON.
    if (const OrderedJson* const properties = find_member(schema, "properties")) add(*properties);
    if (is_sure) require(schema);
  }

 private:
  void leave() { to_.is_whole = false; }

  void add(const OrderedJson& properties) {
    if (!properties.is_object()) return leave();
    for (const auto& [name, property] : properties.items()) {
      const auto known = std::ranges::find(to_.each, name, &Parameter::name);
      if (known == to_.each.end()) {
        to_.each.push_back({.name = name, .value = property});
      } else if (known->value != property) {
        leave();
        known->value = OrderedJson::object();
      }
    }
  }

  void require(const OrderedJson& schema) {
    const OrderedJson* const names = find_member(schema, "required");
    if (names == nullptr || !names->is_array()) return;
    for (const OrderedJson& name : *names) {
      const auto found = std::ranges::find_if(
          to_.each, [&](const Parameter& parameter) { return name == parameter.name; });
      if (found == to_.each.end()) leave();
      if (found != to_.each.end()) found->is_required = true;
    }
  }

  Parameters& to_;
};

}  // namespace

JsonTypes type_named(const OrderedJson& name) {
  if (name == "number") return 8 | 16;  // some are whole
  for (std::size_t i = 0; i < std::size(kJsonTypes); ++i) {
    if (name == kJsonTypes[i]) return JsonTypes{1} << i;
  }
  return 0;
}

JsonTypes types_of(const OrderedJson& root, const OrderedJson& schema) {
  return types_within(root, schema, 0);
}

JsonTypes type_of_json(std::string_view json) {
  const std::size_t begin = json.find_first_not_of(" \t\r\n");
  switch (begin == std::string_view::npos ? '\0' : json[begin]) {
    case '"':
      return kStringType;
    case 'n':
      return 2;
    case 't':
    case 'f':
      return 4;
    case '[':
      return 32;
    case '{':
      return 64;
    default:
      return json.find_first_of(".eE") == std::string_view::npos ? 8 : 16;
  }
}

const OrderedJson& target_of(const OrderedJson& root, const OrderedJson& schema) {
  const OrderedJson* at = &schema;
  for (int i = 0; i < kReferencesMax && at->is_object(); ++i) {
    const OrderedJson* next = nullptr;
    const OrderedJson* const reference = find_member(*at, "$ref");
    const OrderedJson* const all = find_member(*at, "allOf");
    if (reference != nullptr && says_only(*at, {"$ref"})) next = find_target(root, *reference);
    if (all != nullptr && all->is_array() && all->size() == 1 && says_only(*at, {"allOf"})) {
      next = &all->front();
    }
    if (next == nullptr) break;
    at = next;
  }
  return *at;
}

bool says_only(const OrderedJson& schema, const std::vector<std::string_view>& keywords) {
  static const std::vector<std::string_view> kForPeople = {
      "title",    "description", "default", "examples", "deprecated",  "readOnly",  "writeOnly",
      "$comment", "$schema",     "$id",     "$defs",    "definitions", "x-guidance"};
  return std::ranges::all_of(schema.items(), [&](const auto& item) {
    return std::ranges::find(keywords, item.key()) != keywords.end() ||
           std::ranges::find(kForPeople, item.key()) != kForPeople.end();
  });
}

bool is_plain(const OrderedJson& root, const OrderedJson& schema) {
  const OrderedJson& target = target_of(root, schema);
  if (!target.is_object()) return target == true;
  if (says_only(target, {"type"})) return true;
  for (const std::string_view key : {"anyOf", "oneOf"}) {
    const OrderedJson* const branches = find_member(target, key);
    if (branches == nullptr || !branches->is_array() || !says_only(target, {key})) continue;
    return std::ranges::all_of(*branches, [&](const OrderedJson& one) {
      return !one.contains(key) && is_plain(root, one);
    });
  }
  return false;
}

bool takes_any_text(const OrderedJson& root, const OrderedJson& schema) {
  if (is_plain(root, schema)) return (types_of(root, schema) & kStringType) != 0;
  const OrderedJson& target = target_of(root, schema);
  for (const std::string_view key : {"anyOf", "oneOf"}) {
    const OrderedJson* const branches = find_member(target, key);
    if (branches == nullptr || !branches->is_array() || !says_only(target, {key})) continue;
    return std::ranges::any_of(*branches, [&](const OrderedJson& one) {
      return !one.contains(key) && takes_any_text(root, one);
    });
  }
  return false;
}

std::string schema_alone(const OrderedJson& root, const OrderedJson& property) {
  if (!property.is_object()) return {};
  OrderedJson alone = property;
  const std::string text = property.dump();
  bool is_defined = true;
  for (auto at = text.find("\"$ref\""); at != std::string::npos;
       at = text.find("\"$ref\"", at + 1)) {
    const std::string_view to = std::string_view(text).substr(at + 7);
    is_defined = is_defined && (to.starts_with("\"#/$defs/") || to.starts_with("\"#/definitions/"));
    for (const char* key : {"$defs", "definitions"}) {
      const OrderedJson* const known = find_member(root, key);
      if (known != nullptr) alone.emplace(std::string(key), OrderedJson(*known));
    }
  }
  return is_defined ? with_fixed_spaces(std::move(alone)) : std::string();
}

Parameters parameters_of(const OfferedFunction& function) {
  Parameters parameters;
  auto schema = parse_ordered_json(function.parameters, "parameters");
  if (!schema || !schema->is_object()) return parameters;
  parameters.root = *std::move(schema);
  Gathering(parameters).gather(parameters.root, true);
  for (Parameter& parameter : parameters.each) {
    parameter.value = target_of(parameters.root, parameter.value);
    parameter.types = types_of(parameters.root, parameter.value);
    if (parameter.is_text()) parameter.texts = only_texts(parameter.value);
    parameter.schema = schema_alone(parameters.root, parameter.value);
  }
  return parameters;
}

}  // namespace lmtp::server
