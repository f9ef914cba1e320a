#include "schema_reading.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace lmtp::server {
namespace {

using Keywords = std::vector<std::string_view>;

constexpr std::size_t kPointerBytesMax = 1024;  // of references
constexpr std::size_t kPointerStepsMax = 64;

const Keywords kBranches = {"allOf", "anyOf", "oneOf"};
const Keywords kReferences = {"$ref", "$dynamicRef", "$recursiveRef"};
// Beside one of these, `properties` does not name all members.
const Keywords kNamingMembers = {"allOf",        "anyOf",
                                 "oneOf",        "$ref",
                                 "$dynamicRef",  "$recursiveRef",
                                 "if",           "then",
                                 "else",         "dependentSchemas",
                                 "dependencies", "dependentRequired",
                                 "not",          "patternProperties"};
const Keywords kOfObjects = {"properties", "required", "additionalProperties"};
const Keywords kSayingType = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};

std::size_t count(const OrderedJson& schema, const Keywords& keywords) {
  return static_cast<std::size_t>(
      std::ranges::count_if(keywords, [&](std::string_view key) { return schema.contains(key); }));
}

bool has(const OrderedJson& schema, const Keywords& keywords) {
  return count(schema, keywords) > 0;
}

std::size_t num_members(const OrderedJson& schema, std::string_view key) {
  const OrderedJson* const object = find_member(schema, key);
  return object != nullptr && object->is_object() ? object->size() : 0;
}

// How the rest of the schema reaches one of its parts; more of it is true with each way there.
struct Context {
  bool stays_open = false;  // others may name members of the same object
  bool has_a_type = false;  // another than "object" is named for the same value

  bool operator==(const Context&) const = default;
};

// Whether the type is one of objects; of a list, whether objects are in it.
bool takes_objects(const OrderedJson& type) {
  return type == "object" || (type.is_array() && std::ranges::find(type, "object") != type.end());
}

// Finds the subschemas of a schema and how they are reached; those behind `not`, `if`, `contains`
// and others that do not just describe a value are no part of it, and stay as written.
class Parts {
 public:
  explicit Parts(const OrderedJson& root) : parts_(root) {
    reach(root, {});
    while (!waiting_.empty()) {
      const OrderedJson* const schema = waiting_.back();
      waiting_.pop_back();
      expand(*schema, contexts_.at(schema));
    }
  }

  // Null: it is none, or it is behind such a keyword.
  const Context* find(const OrderedJson& value) const {
    const auto found = contexts_.find(&value);
    return found == contexts_.end() ? nullptr : &found->second;
  }
  // A $ref leads to where nobody knows what it names.
  bool is_lost() const { return is_lost_; }

 private:
  // Again only where there is more to know than before, so that circles of references end.
  void reach(const OrderedJson& schema, Context context) {
    if (!schema.is_object()) return;
    const auto [found, is_new] = contexts_.try_emplace(&schema, context);
    Context all = found->second;
    all.stays_open = all.stays_open || context.stays_open;
    all.has_a_type = all.has_a_type || context.has_a_type;
    if (!is_new && all == found->second) return;
    found->second = all;
    waiting_.push_back(&schema);
  }

  void reach_each(const OrderedJson& schema, std::string_view key, Context context) {
    const OrderedJson* const parts = find_member(schema, key);
    if (parts == nullptr || !parts->is_structured()) return;
    for (const OrderedJson& part : *parts) reach(part, context);
  }

  void reach_target(const OrderedJson& reference, Context context) {
    if (const OrderedJson* const target = parts_.target(reference)) {
      reach(*target, context);
    } else {
      is_lost_ = is_lost_ || context.stays_open;
    }
  }

  // What describes the same value.
  void expand_in_place(const OrderedJson& schema, Context context) {
    const bool is_alone = count(schema, kNamingMembers) == 1 && !has(schema, kOfObjects) &&
                          !schema.contains("unevaluatedProperties") &&
                          !schema.contains("minProperties") && !schema.contains("propertyNames");
    context.stays_open = context.stays_open || !is_alone;
    context.has_a_type = context.has_a_type || names_type(schema);
    reach_each(schema, "anyOf", context);
    reach_each(schema, "oneOf", context);
    const OrderedJson* const all = find_member(schema, "allOf");
    const bool is_typed = all != nullptr && all->is_array() &&
                          std::ranges::any_of(*all, [](const OrderedJson& branch) {
                            return branch.is_object() && names_type(branch);
                          });
    reach_each(schema, "allOf", {true, context.has_a_type || is_typed});
    for (const std::string_view key : kReferences) {
      if (const OrderedJson* const reference = find_member(schema, key)) {
        reach_target(*reference, context);
      }
    }
  }

  static bool names_type(const OrderedJson& schema) {
    const OrderedJson* const type = find_member(schema, "type");
    return (type != nullptr && *type != "object") || has(schema, {"enum", "const"});
  }

  void expand(const OrderedJson& schema, Context context) {
    expand_in_place(schema, context);
    const bool is_open = context.stays_open || has_rivals(schema);
    const std::size_t num_patterns = num_members(schema, "patternProperties");
    const bool has_names = num_members(schema, "properties") > 0;
    reach_each(schema, "properties", {is_open || num_patterns > 0, false});
    reach_each(schema, "patternProperties", {is_open || has_names || num_patterns > 1, false});
    const Context of_items{is_open || schema.contains("contains"), false};
    reach_each(schema, "prefixItems", of_items);
    for (const std::string_view key : {"items", "additionalItems", "unevaluatedItems",
                                       "additionalProperties", "unevaluatedProperties"}) {
      const OrderedJson* const others = find_member(schema, key);
      if (others == nullptr) continue;
      reach(*others, of_items);
      if (others->is_array()) reach_each(schema, key, of_items);
    }
  }

  // Whether other keywords may describe the same member or item as this schema's own.
  static bool has_rivals(const OrderedJson& schema) {
    return has(schema, kReferences) || has(schema, {"if", "dependentSchemas", "dependencies"}) ||
           std::ranges::any_of(kBranches, [&](std::string_view key) {
             const OrderedJson* const branches = find_member(schema, key);
             return branches != nullptr && branches->is_array() &&
                    std::ranges::any_of(*branches, has_parts);
           });
  }
  static bool has_parts(const OrderedJson& branch) {
    return branch.is_object() &&
           (has(branch, kNamingMembers) ||
            has(branch, {"properties", "additionalProperties", "unevaluatedProperties", "items",
                         "prefixItems", "additionalItems", "unevaluatedItems", "contains"}));
  }

  SchemaParts parts_;
  std::unordered_map<const OrderedJson*, Context> contexts_;
  std::vector<const OrderedJson*> waiting_;
  bool is_lost_ = false;
};

std::unordered_set<std::string_view> required_names(const OrderedJson& schema) {
  std::unordered_set<std::string_view> names;
  const OrderedJson* const required = find_member(schema, "required");
  if (required == nullptr || !required->is_array()) return names;
  for (const OrderedJson& name : *required) {
    if (const auto* const text = name.get_ptr<const std::string*>()) names.insert(*text);
  }
  return names;
}

// Those of the properties that are required.
std::size_t num_required(const OrderedJson& schema, const OrderedJson& properties) {
  const auto names = required_names(schema);
  std::size_t num = 0;
  for (auto at = properties.begin(); at != properties.end(); ++at) num += names.count(at.key());
  return num;
}

bool is_to_be_closed(const OrderedJson& schema) {
  const OrderedJson* const type = find_member(schema, "type");
  const OrderedJson* const properties = find_member(schema, "properties");
  if (type == nullptr || !takes_objects(*type)) return false;
  if (properties == nullptr || !properties->is_object()) return false;
  if (has(schema, {"additionalProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "if",
                   "patternProperties", "dependentSchemas", "dependencies", "dependentRequired"}) ||
      has(schema, kReferences)) {
    return false;
  }
  const OrderedJson* const least = find_member(schema, "minProperties");
  if (least != nullptr && least->is_number() &&
      least->get<double>() > static_cast<double>(properties->size())) {
    return false;
  }
  return num_required(schema, *properties) == required_names(schema).size();
}

// Inner values first: what is added moves a value's own members.
void read_each(OrderedJson& value, const Parts& parts) {
  if (!value.is_structured()) return;
  for (OrderedJson& inner : value) read_each(inner, parts);
  const Context* const context = parts.find(value);
  if (context == nullptr) return;
  if (!context->has_a_type && has(value, kOfObjects) && !has(value, kSayingType)) {
    value["type"] = "object";
  }
  if (!context->stays_open && !parts.is_lost() && is_to_be_closed(value)) {
    value["additionalProperties"] = false;
  }
}

// Looks for a value of a schema that ends: one that needs no value of the same schema inside.
class Endings {
 public:
  explicit Endings(const OrderedJson& root) : parts_(root) {}

  bool can_end(const OrderedJson& schema) {
    if (--num_left_ < 0 || !schema.is_object()) return true;
    if (std::ranges::find(around_, &schema) != around_.end()) return false;
    around_.push_back(&schema);
    const bool ends = members_can(schema) && branches_can(schema) && reference_can(schema);
    around_.pop_back();
    return ends;
  }

 private:
  bool members_can(const OrderedJson& schema) {
    const OrderedJson* const type = find_member(schema, "type");
    const OrderedJson* const items = find_member(schema, "items");
    const OrderedJson* const least = find_member(schema, "minItems");
    if (type == nullptr || !type->is_string()) return true;
    if (*type == "array" && items != nullptr && least != nullptr && *least > 0) {
      return can_end(*items);
    }
    const OrderedJson* const properties = find_member(schema, "properties");
    const OrderedJson* const required = find_member(schema, "required");
    if (*type != "object" || properties == nullptr || !properties->is_object() ||
        required == nullptr || !required->is_array()) {
      return true;
    }
    return std::ranges::all_of(*required, [&](const OrderedJson& name) {
      const auto* const text = name.get_ptr<const std::string*>();
      if (text == nullptr || --num_left_ < 0) return true;
      const OrderedJson* const needed = parts_.member(*properties, *text);
      return needed == nullptr || can_end(*needed);
    });
  }

  bool branches_can(const OrderedJson& schema) {
    return std::ranges::all_of(kBranches, [&](std::string_view key) {
      const OrderedJson* const branches = find_member(schema, key);
      if (branches == nullptr || !branches->is_array() || branches->empty()) return true;
      const auto can = [&](const OrderedJson& branch) { return can_end(branch); };
      return key == "allOf" ? std::ranges::all_of(*branches, can)
                            : std::ranges::any_of(*branches, can);
    });
  }

  bool reference_can(const OrderedJson& schema) {
    const OrderedJson* const reference = find_member(schema, "$ref");
    const OrderedJson* const target = reference == nullptr ? nullptr : parts_.target(*reference);
    return target == nullptr || can_end(*target);
  }

  SchemaParts parts_;
  std::vector<const OrderedJson*> around_;
  int num_left_ = 10'000;  // schemas and names to look at; beyond them they are taken to end
};

// Those of an object and of what else may stand in its place; `most`: of any inside it.
std::size_t count_optional_members(const OrderedJson& schema, std::size_t& most) {
  if (!schema.is_structured()) return 0;
  std::size_t num = 0;
  if (schema.is_object()) {
    const OrderedJson* const properties = find_member(schema, "properties");
    num = num_members(schema, "properties");
    if (num > 0) num -= num_required(schema, *properties);
  }
  for (const auto& [key, inner] : schema.items()) {
    const bool is_here = std::ranges::find(kBranches, key) != kBranches.end() && inner.is_array();
    if (!is_here) {
      count_optional_members(inner, most);
      continue;
    }
    for (const OrderedJson& one : inner) num += count_optional_members(one, most);
  }
  most = std::max(most, num);
  return num;
}

}  // namespace

const OrderedJson* find_member(const OrderedJson& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

const OrderedJson* SchemaParts::target(const OrderedJson& reference) {
  const auto* const text = reference.get_ptr<const std::string*>();
  if (text == nullptr || text->size() > kPointerBytesMax) return nullptr;
  const auto [known, is_new] = targets_.try_emplace(*text);
  if (is_new && text->starts_with('#')) known->second = found(std::string_view(*text).substr(1));
  return known->second;
}

// A JSON pointer (RFC 6901).
const OrderedJson* SchemaParts::found(std::string_view pointer) {
  const OrderedJson* at = &root_;
  for (std::size_t num = 0; !pointer.empty() && at != nullptr; ++num) {
    if (pointer.front() != '/' || num == kPointerStepsMax) return nullptr;
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string key;
    for (std::size_t i = 1; i < end; ++i) {
      if (pointer[i] != '~') {
        key += pointer[i];
        continue;
      }
      const char escaped = ++i < end ? pointer[i] : '\0';
      if (escaped != '0' && escaped != '1') return nullptr;
      key += escaped == '0' ? '~' : '/';
    }
    pointer.remove_prefix(end);
    if (at->is_object()) {
      at = member(*at, key);
      continue;
    }
    std::size_t index = 0;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool is_index = at->is_array() && read.ec == std::errc() && std::to_string(index) == key;
    at = is_index && index < at->size() ? &(*at)[index] : nullptr;
  }
  return at;
}

const OrderedJson* SchemaParts::member(const OrderedJson& object, std::string_view key) {
  const auto [all, is_new] = members_.try_emplace(&object);
  for (auto at = object.begin(); is_new && at != object.end(); ++at) {
    all->second.try_emplace(at.key(), &*at);
  }
  const auto found = all->second.find(key);
  return found == all->second.end() ? nullptr : found->second;
}

std::size_t most_optional_members(const OrderedJson& schema) {
  std::size_t most = 0;
  count_optional_members(schema, most);
  return most;
}

bool can_be_met(const OrderedJson& schema) { return Endings(schema).can_end(schema); }

void read_schema_as_meant(OrderedJson& schema) { read_each(schema, Parts(schema)); }

}  // namespace lmtp::server
