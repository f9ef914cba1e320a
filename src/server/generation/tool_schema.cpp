#include "tool_schema.h"

#include <algorithm>
#include <limits>

#include "call_grammar.h"
#include "schema_reading.h"

namespace lmtp::server {
namespace {

constexpr int kSchemasMax = 10'000;       // of a function
constexpr std::size_t kSchemaBytes = 64;  // that count as another one
constexpr std::size_t kSchemaValues = 8;  // the same: of keys, or of an enum
constexpr std::size_t kStepsMax = 200;    // of unions and references in one another
// Beside one another: llguidance takes 2,000 items at one place, of which a value may need two, and
// finds out only while a stream runs.
constexpr std::size_t kAlternativesMax = 900;

const OrderedJson& anything() {
  static const OrderedJson any(true);
  return any;
}

const OrderedJson* find_list(const OrderedJson& schema, std::string_view key) {
  const OrderedJson* const found = find_member(schema, key);
  return found != nullptr && found->is_array() ? found : nullptr;
}

constexpr std::pair<JsonTypes, std::string_view> kTypeNames[] = {
    {kText, "string"},     {kNull, "null"},  {kBoolean, "boolean"}, {kWhole, "integer"},
    {kFraction, "number"}, {kList, "array"}, {kObject, "object"}};

JsonTypes type_named(const OrderedJson& given) {
  for (const auto& [type, name] : kTypeNames) {
    if (given == name) return type == kFraction ? kWhole | kFraction : type;
  }
  return 0;
}

OrderedJson names_of(JsonTypes types) {
  if ((types & kFraction) != 0) types &= ~kWhole;
  OrderedJson names = OrderedJson::array();
  for (const auto& [type, name] : kTypeNames) {
    if ((types & type) != 0) names.push_back(name);
  }
  return names;
}

JsonTypes type_of_value(const OrderedJson& value) {
  if (value.is_string()) return kText;
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_number()) return value.is_number_float() ? kWhole | kFraction : kWhole;
  return value.is_array() ? kList : kObject;
}

// Those of an enum or const that are of these types.
std::vector<const OrderedJson*> listed_values(const Alternative& alternative) {
  const OrderedJson& schema = *alternative.schema;
  std::vector<const OrderedJson*> values;
  if (!schema.is_object()) return values;
  const auto add = [&](const OrderedJson& value) {
    if ((type_of_value(value) & alternative.types) != 0) values.push_back(&value);
  };
  const OrderedJson* const one = find_member(schema, "const");
  const OrderedJson* const some = find_list(schema, "enum");
  if (one != nullptr) add(*one);
  if (one == nullptr && some != nullptr) std::ranges::for_each(*some, add);
  return values;
}

JsonTypes own_types(const OrderedJson& schema) {
  if (!schema.is_object()) return kAnyType;
  const auto any_of = [](const OrderedJson& values, auto type) {
    JsonTypes types = 0;
    for (const OrderedJson& value : values) types |= type(value);
    return types;
  };
  JsonTypes types = kAnyType;
  if (const OrderedJson* const type = find_member(schema, "type")) {
    types &= type->is_array() ? any_of(*type, type_named) : type_named(*type);
  }
  if (const OrderedJson* const one = find_member(schema, "const")) types &= type_of_value(*one);
  const OrderedJson* const some = find_list(schema, "enum");
  return some == nullptr ? types : types & any_of(*some, type_of_value);
}

// That looking at it takes.
std::size_t cost_of(const OrderedJson& schema) {
  std::size_t num = schema.size();
  for (const std::string_view key : {"enum", "type", "required"}) {
    if (const OrderedJson* const values = find_list(schema, key)) num += values->size();
  }
  return 1 + num / kSchemaValues;
}

// The keyword of a schema that says nothing but what others mean; empty: it says something itself.
std::string_view only_leads_by(const OrderedJson& schema) {
  for (const std::string_view key : {"$ref", "anyOf", "oneOf", "allOf"}) {
    if (!schema.contains(key)) continue;
    const bool is_alone = !has_any(schema, kCombiningKeywords, {key}) &&
                          !has_any(schema, {"enum", "const"}) && !has_any(schema, kTextKeywords) &&
                          !has_any(schema, kNumberKeywords) && !has_any(schema, kListKeywords) &&
                          !has_any(schema, kObjectKeywords);
    return is_alone ? key : std::string_view();
  }
  return {};
}

bool is_one_of(std::string_view key, const SchemaKeywords& keys) {
  return std::ranges::find(keys, key) != keys.end();
}

// Copies schemas, which then refer to the definitions of a schema of their own.
class Copying {
 public:
  explicit Copying(SchemaParts& parts) : parts_(parts) {}

  OrderedJson copied(const OrderedJson& value, bool has_names = false) {
    static const SchemaKeywords kNamed = {"properties", "patternProperties", "dependentSchemas"};
    static const SchemaKeywords kLeftOut = {"title",    "description", "default",     "examples",
                                            "$comment", "$defs",       "definitions", "$id",
                                            "$schema",  "x-guidance"};
    if (value.is_array()) {
      OrderedJson all = OrderedJson::array();
      for (const OrderedJson& one : value) all.push_back(copied(one));
      return all;
    }
    if (!value.is_object()) return value;
    OrderedJson copy = OrderedJson::object();
    auto& members = *copy.get_ptr<OrderedJson::object_t*>();
    for (const auto& [key, inner] : value.items()) {
      if (!has_names && is_one_of(key, kLeftOut)) continue;
      const bool is_reference = !has_names && key == "$ref";
      const bool is_value = !has_names && (key == "enum" || key == "const");
      members.emplace_back(key, is_reference ? reference(inner)
                                : is_value   ? inner
                                             : copied(inner, !has_names && is_one_of(key, kNamed)));
      is_lost = is_lost || (!has_names && (key == "$dynamicRef" || key == "$recursiveRef"));
    }
    return copy;
  }

  std::vector<const OrderedJson*> targets;  // of references, by their numbers
  bool is_lost = false;                     // one of them leads nowhere

 private:
  OrderedJson reference(const OrderedJson& reference) {
    const OrderedJson* const target = parts_.target(reference);
    if (target == nullptr) is_lost = true;
    if (target == nullptr) return reference;
    const auto [found, is_new] = numbers_.try_emplace(target, targets.size());
    if (is_new) targets.push_back(target);
    return "#/$defs/" + std::to_string(found->second);
  }

  SchemaParts& parts_;
  std::unordered_map<const OrderedJson*, std::size_t> numbers_;
};

}  // namespace

const SchemaKeywords kTextKeywords = {"pattern", "format", "minLength", "maxLength"};
const SchemaKeywords kNumberKeywords = {"minimum", "maximum", "exclusiveMinimum",
                                        "exclusiveMaximum", "multipleOf"};
const SchemaKeywords kListKeywords = {
    "items",       "prefixItems", "additionalItems", "minItems",   "maxItems", "unevaluatedItems",
    "uniqueItems", "contains",    "minContains",     "maxContains"};
const SchemaKeywords kObjectKeywords = {
    "properties",    "required",          "additionalProperties",  "patternProperties",
    "minProperties", "maxProperties",     "unevaluatedProperties", "propertyNames",
    "dependencies",  "dependentRequired", "dependentSchemas"};
const SchemaKeywords kCombiningKeywords = {
    "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef", "$recursiveRef"};

bool has_any(const OrderedJson& schema, const SchemaKeywords& keywords,
             const SchemaKeywords& but_for) {
  return schema.is_object() && std::ranges::any_of(keywords, [&](std::string_view key) {
           return schema.contains(key) && !is_one_of(key, but_for);
         });
}

JsonTypes type_of_json(std::string_view json) {
  const std::size_t begin = json.find_first_not_of(" \t\r\n");
  switch (begin == std::string_view::npos ? '\0' : json[begin]) {
    case '"':
      return kText;
    case 'n':
      return kNull;
    case 't':
    case 'f':
      return kBoolean;
    case '[':
      return kList;
    case '{':
      return kObject;
    default:
      return json.find_first_of(".eE") == std::string_view::npos ? kWhole : kFraction;
  }
}

JsonTypes types_of(const Alternatives& alternatives) {
  JsonTypes types = 0;
  for (const Alternative& one : alternatives) types |= one.types;
  return types;
}

ToolSchema::ToolSchema(const std::string& parameters, SchemaBudget& budget)
    : budget_(budget), root_(OrderedJson::object()), num_left_(kSchemasMax) {
  auto schema = parse_ordered_json(parameters, "parameters");
  if (schema && schema->is_object()) {
    root_ = *std::move(schema);
  } else {
    charge(kSchemasMax + 1);
  }
}

bool ToolSchema::charge(std::size_t num) {
  num = std::min<std::size_t>(num, kSchemasMax + 1);
  budget_.num_schemas -= std::min(budget_.num_schemas, num);
  num_left_ = std::max(num_left_ - static_cast<int>(num), -1);
  if (is_used_up()) loosen();
  return !is_used_up();
}

bool ToolSchema::are_equal(const OrderedJson& one, const OrderedJson& other) {
  if (&one == &other) return true;
  if (one.type() != other.type() || one.size() != other.size()) return false;
  const auto* const text = one.get_ptr<const std::string*>();
  if (!charge(1 + (text == nullptr ? 0 : text->size() / kSchemaBytes))) return false;
  if (!one.is_structured()) return one == other;
  for (auto at = one.begin(), it = other.begin(); at != one.end(); ++at, ++it) {
    if ((one.is_object() && at.key() != it.key()) || !are_equal(*at, *it)) return false;
  }
  return true;
}

Alternatives ToolSchema::alternatives(const OrderedJson& schema) {
  Alternatives found;
  Seen seen;
  flatten(schema, kAnyType, 0, seen, found);
  if (found.empty()) {  // nothing meets it
    loosen();
    found.push_back({&anything(), kAnyType});
  }
  std::size_t num = 0;
  for (const auto& one : found) num += std::max<std::size_t>(listed_values(one).size(), 1);
  if (num > kAlternativesMax) {
    loosen();
    found = {{&anything(), types_of(found)}};
  }
  return found;
}

void ToolSchema::flatten(const OrderedJson& schema, JsonTypes types, std::size_t depth, Seen& seen,
                         Alternatives& to) {
  if (schema == false || types == 0 || !seen.emplace(&schema, types).second) return;
  const bool is_within = schema.is_object() && depth < kStepsMax && charge(cost_of(schema));
  if (!is_within) {
    if (schema != true) loosen();
    return to.push_back({&anything(), types});
  }
  types &= own_types(schema);
  const std::string_view key = only_leads_by(schema);
  const OrderedJson* const target = key == "$ref" ? parts_.target(schema.at("$ref")) : nullptr;
  if (target != nullptr) return flatten(*target, types, depth + 1, seen, to);
  const OrderedJson* const branches = key.empty() ? nullptr : find_list(schema, key);
  if (branches == nullptr || branches->empty() || (key == "allOf" && branches->size() > 1)) {
    types &= types_of_all(schema, types, depth);
    if (types != 0) to.push_back({&schema, types});
    return;
  }
  if (key == "oneOf" && branches->size() > 1) loosen();  // they may not exclude each other
  for (const OrderedJson& one : *branches) {
    if (is_used_up()) return to.push_back({&anything(), types});
    flatten(one, types, depth + 1, seen, to);
  }
}

// What allOf leaves of the types.
JsonTypes ToolSchema::types_of_all(const OrderedJson& schema, JsonTypes types, std::size_t depth) {
  const OrderedJson* const all = find_list(schema, "allOf");
  for (std::size_t i = 0; all != nullptr && i < all->size() && !is_used_up(); ++i) {
    Alternatives found;
    Seen seen;
    flatten((*all)[i], types, depth + 1, seen, found);
    types = types_of(found);
  }
  return types;
}

// What a schema of an object says of its members, in all of its parts.
struct ToolSchema::Gathered {
  std::vector<Member> members;
  std::unordered_map<std::string_view, std::size_t> places;  // of names
  std::vector<const OrderedJson*> required;                  // names
  std::set<std::pair<const OrderedJson*, bool>> seen;
  bool is_open = true;
  std::size_t num_closed = std::numeric_limits<std::size_t>::max();  // members of a closed part
};

std::vector<Member> ToolSchema::members(const OrderedJson& schema) {
  Gathered gathered;
  gather(schema, true, 0, gathered);
  if (gathered.members.size() > gathered.num_closed) loosen();  // another part has more of them
  for (const OrderedJson* const required : gathered.required) {
    const auto& name = required->get_ref<const std::string&>();
    const auto [found, is_new] = gathered.places.try_emplace(name, gathered.members.size());
    if (is_new) gathered.members.push_back({name, &anything()});
    if (is_new && !gathered.is_open) loosen();
    gathered.members[found->second].is_required = true;
  }
  return std::move(gathered.members);
}

// is_sure: it holds for each object, and not for some of them.
void ToolSchema::gather(const OrderedJson& schema, bool is_sure, std::size_t depth, Gathered& to) {
  if (schema == true || !to.seen.emplace(&schema, is_sure).second) return;
  if (!schema.is_object() || depth > kStepsMax || !charge(cost_of(schema))) return loosen();
  if (has_any(schema, kCombiningKeywords, {"allOf", "anyOf", "oneOf", "$ref"}) ||
      has_any(schema, {"enum", "const"}) ||
      has_any(schema, kObjectKeywords, {"properties", "required", "additionalProperties"})) {
    loosen();
  }
  if (const OrderedJson* const reference = find_member(schema, "$ref")) {
    const OrderedJson* const target = parts_.target(*reference);
    if (target == nullptr) loosen();
    if (target != nullptr) gather(*target, is_sure, depth + 1, to);
  }
  for (const std::string_view key : {"allOf", "anyOf", "oneOf"}) {
    const OrderedJson* const branches = find_list(schema, key);
    if (branches == nullptr) continue;
    const bool is_all = key == "allOf" || branches->size() == 1;
    if (!is_all) loosen();
    for (const OrderedJson& one : *branches) {
      if (is_used_up()) return;
      gather(one, is_sure && is_all, depth + 1, to);
    }
  }
  add_properties(schema, to);
  const OrderedJson* const required = is_sure ? find_list(schema, "required") : nullptr;
  if (required != nullptr) {
    for (const OrderedJson& name : *required) {
      if (name.is_string()) to.required.push_back(&name);
    }
  }
  const OrderedJson* const others = find_member(schema, "additionalProperties");
  if (others == nullptr || *others == true) return;
  to.is_open = false;
  const OrderedJson* const own = find_member(schema, "properties");
  to.num_closed = std::min(to.num_closed, own != nullptr && own->is_object() ? own->size() : 0);
}

void ToolSchema::add_properties(const OrderedJson& schema, Gathered& to) {
  const OrderedJson* const properties = find_member(schema, "properties");
  if (properties == nullptr || !properties->is_object()) return;
  for (auto at = properties->begin(); at != properties->end(); ++at) {
    const auto [found, is_new] = to.places.try_emplace(at.key(), to.members.size());
    if (is_new) {
      to.members.push_back({at.key(), &*at});
      continue;
    }
    const OrderedJson*& known = to.members[found->second].schema;
    if (are_equal(*known, *at)) continue;
    loosen();
    known = &anything();
  }
}

std::vector<const OrderedJson*> ToolSchema::listed(const Alternative& alternative) {
  std::vector<const OrderedJson*> values = listed_values(alternative);
  std::size_t num_bytes = 0;
  for (const OrderedJson* const value : values) {
    const auto* const text = value->get_ptr<const std::string*>();
    num_bytes += text == nullptr ? 0 : text->size();
  }
  if (num_bytes >= kSchemaBytes && !charge(num_bytes / kSchemaBytes)) values.clear();
  return values;
}

void ToolSchema::count(const OrderedJson& value) {
  std::size_t num_bytes = 0;
  for (const OrderedJson& inner : value) {
    const auto* const text = inner.get_ptr<const std::string*>();
    if (text != nullptr) num_bytes += text->size();
    if (inner.is_structured() && !is_used_up()) count(inner);
  }
  charge(1 + value.size() / kSchemaValues + num_bytes / kSchemaBytes);
}

std::string ToolSchema::standalone(const Alternative& alternative) {
  if (!charge(1)) return {};
  Copying copying(parts_);
  OrderedJson alone = copying.copied(*alternative.schema);
  if (!alone.is_object()) alone = OrderedJson::object();
  if (own_types(*alternative.schema) != alternative.types) {
    alone["type"] = names_of(alternative.types);
    if (find_list(alone, "enum") != nullptr) {
      alone["enum"] = OrderedJson::array();
      for (const OrderedJson* const value : listed_values(alternative)) {
        alone["enum"].push_back(*value);
      }
    }
  }
  OrderedJson definitions = OrderedJson::object();
  for (std::size_t i = 0; i < copying.targets.size(); ++i) {
    definitions.get_ptr<OrderedJson::object_t*>()->emplace_back(
        std::to_string(i), copying.copied(*copying.targets[i]));
  }
  if (!definitions.empty()) alone["$defs"] = std::move(definitions);
  alone["x-guidance"] = fixed_spaces();
  for (const char* key : {"$schema", "x-guidance"}) {
    if (const OrderedJson* const of_all = find_member(root_, key)) alone[key] = *of_all;
  }
  if (copying.is_lost) loosen();
  std::string text = copying.is_lost ? std::string() : alone.dump();
  return charge(text.size() / kSchemaBytes) ? text : std::string();
}

bool is_within(const std::string& parameters, SchemaBudget& budget) {
  if (budget.is_used_up()) return false;
  if (parameters.size() <= kSchemasMax) {  // of which each has two brackets
    budget.num_schemas -= std::min(budget.num_schemas, 1 + parameters.size() / kSchemaBytes);
    return true;
  }
  ToolSchema schema(parameters, budget);
  schema.count(schema.root());
  return !schema.is_used_up();
}

bool are_too_many(const std::vector<Member>& members) {
  const auto num = std::ranges::count(members, false, &Member::is_required);
  return static_cast<std::size_t>(num) > kOptionalMembersMax;
}

std::vector<Parameters> parameters_of(const std::vector<OfferedFunction>& functions) {
  std::vector<Parameters> all(functions.size());
  SchemaBudget budget;
  for (std::size_t i = 0; i < functions.size() && !budget.is_used_up(); ++i) {
    if (functions[i].is_loose) continue;
    ToolSchema schema(functions[i].parameters, budget);
    std::vector<Member> members = schema.members(schema.root());
    if (schema.is_used_up() || are_too_many(members)) continue;
    for (Member& member : members) {
      const Alternatives alternatives = schema.alternatives(*member.schema);
      const bool takes_any_text = std::ranges::any_of(alternatives, [&](const Alternative& one) {
        return (one.types & kText) != 0 && schema.listed(one).empty();
      });
      all[i].push_back({std::move(member.name), types_of(alternatives), takes_any_text});
    }
  }
  return all;
}

}  // namespace lmtp::server
