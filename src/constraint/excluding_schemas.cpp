#include "excluding_schemas.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace lmtp::constraint {
namespace {

constexpr int kDepthMax = 8;  // of references, branches and properties in a proof
constexpr std::size_t kStepsMax = std::size_t{1} << 18;

const OrderedJson* member(const OrderedJson& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

JsonTypes type_named(const OrderedJson& name) {
  if (name == "integer") return kJsonInteger;
  if (name == "number") return kJsonInteger | kJsonFraction;
  if (name == "object") return kJsonObject;
  if (name == "string") return kJsonString;
  if (name == "boolean") return kJsonBoolean;
  if (name == "null") return kJsonNull;
  return name == "array" ? kJsonArray : kJsonAll;
}

}  // namespace

JsonTypes types_named(const OrderedJson& type) {
  if (!type.is_array()) return type_named(type);
  JsonTypes types = 0;
  for (const OrderedJson& name : type) types |= type_named(name);
  return types;
}

JsonTypes types_of_value(const OrderedJson& value) {
  if (value.is_number_integer()) return kJsonInteger;
  if (value.is_number()) return kJsonInteger | kJsonFraction;
  if (value.is_object()) return kJsonObject;
  if (value.is_string()) return kJsonString;
  if (value.is_boolean()) return kJsonBoolean;
  return value.is_null() ? kJsonNull : kJsonArray;
}

ExcludingSchemas::ExcludingSchemas(const OrderedJson& root, std::string_view text) : root_(root) {
  knows_const_ = text.find("draft-04") == std::string_view::npos;
  for (const char* key : {"$id", "id"}) {
    if (key == std::string_view("id") && knows_const_) break;  // a member's name since then
    const std::string quoted = '"' + std::string(key) + '"';
    const std::size_t first = text.find(quoted);
    if (first == std::string_view::npos) continue;
    const bool is_again = text.find(quoted, first + 1) != std::string_view::npos;
    if (is_again || member(root, key) == nullptr) follows_pointers_ = false;
  }
}

bool ExcludingSchemas::are_exclusive(const OrderedJson& schema) {
  const OrderedJson* const branches = member(schema, "oneOf");
  if (branches == nullptr || !branches->is_array()) return false;
  Facts around;
  add(schema, around, 0);
  for (std::size_t i = 0; i < branches->size(); ++i) {
    for (std::size_t k = i + 1; k < branches->size(); ++k) {
      if (!exclude((*branches)[i], (*branches)[k], around, 0)) return false;
    }
  }
  return true;
}

bool ExcludingSchemas::may_go_on(std::size_t num_steps) {
  num_steps_ += num_steps;
  return num_steps_ <= kStepsMax;
}

bool ExcludingSchemas::exclude(const OrderedJson& a, const OrderedJson& b, const Facts& around,
                               int depth) {
  if (a == false || b == false) return true;
  if (!may_go_on(1 + around.required.size() + around.properties.size())) return false;
  Facts of_a = around;
  Facts of_b = around;
  add(a, of_a, depth);
  add(b, of_b, depth);
  const JsonTypes both = of_a.types & of_b.types;
  if (both == 0 || have_no_common(of_a, of_b)) return true;
  return both == kJsonObject &&
         (forbids(of_a, of_b) || forbids(of_b, of_a) || differ_in_a_member(of_a, of_b, depth));
}

void ExcludingSchemas::add(const OrderedJson& schema, Facts& facts, int depth) {
  if (!schema.is_object() || depth > kDepthMax || !may_go_on(1 + schema.size())) return;
  if (schema.contains("$ref")) {  // old drafts ignore what stands beside it
    if (const OrderedJson* const target = target_of(schema)) add(*target, facts, depth + 1);
    return;
  }
  const auto add_values = [&](std::vector<const OrderedJson*> values) {
    JsonTypes types = 0;
    for (const OrderedJson* const value : values) types |= types_of_value(*value);
    facts.types &= types;
    facts.values = std::move(values);  // any one of several lists will do
  };
  if (const OrderedJson* const type = member(schema, "type")) facts.types &= types_named(*type);
  const OrderedJson* const constant = member(schema, "const");
  if (constant != nullptr && knows_const_) add_values({constant});
  if (const OrderedJson* const list = member(schema, "enum"); list != nullptr && list->is_array()) {
    std::vector<const OrderedJson*> values;
    if (may_go_on(list->size())) {
      for (const OrderedJson& value : *list) values.push_back(&value);
      add_values(std::move(values));
    }
  }
  if (const OrderedJson* const names = member(schema, "required");
      names != nullptr && names->is_array() && may_go_on(names->size())) {
    for (const OrderedJson& name : *names) {
      if (name.is_string()) facts.required.insert(name.get<std::string>());
    }
  }
  static const OrderedJson kNone = OrderedJson::object();
  const OrderedJson* const properties = member(schema, "properties");
  if (properties != nullptr) facts.properties.push_back(properties);
  const OrderedJson* const others = member(schema, "additionalProperties");
  if (others != nullptr && *others == false && !schema.contains("patternProperties")) {
    facts.closed.push_back(properties != nullptr ? properties : &kNone);
  }
  if (const OrderedJson* const all = member(schema, "allOf");
      all != nullptr && all->is_array() && may_go_on(all->size())) {
    for (const OrderedJson& branch : *all) add(branch, facts, depth + 1);
  }
}

// Lists and objects may be equal in other spellings.
bool ExcludingSchemas::have_no_common(const Facts& a, const Facts& b) {
  if (!a.values || !b.values || !may_go_on(a.values->size() * b.values->size())) return false;
  return std::ranges::all_of(*a.values, [&](const OrderedJson* value) {
    return std::ranges::none_of(*b.values, [&](const OrderedJson* other) {
      const bool is_same_kind = (types_of_value(*value) & types_of_value(*other)) != 0;
      return is_same_kind && (value->is_structured() || *value == *other);
    });
  });
}

bool ExcludingSchemas::forbids(const Facts& a, const Facts& b) {
  const auto is_forbidden = [&](const std::string& name) {
    const bool is_no_name = std::ranges::any_of(
        b.closed, [&](const OrderedJson* names) { return member(*names, name) == nullptr; });
    return is_no_name || std::ranges::any_of(b.properties, [&](const OrderedJson* schemas) {
             const OrderedJson* const schema = member(*schemas, name);
             return schema != nullptr && *schema == false;
           });
  };
  std::size_t num_names = 0;
  for (const auto* const lists : {&b.closed, &b.properties}) {
    for (const OrderedJson* const names : *lists) num_names += 1 + names->size();
  }
  return may_go_on(a.required.size() * num_names) && std::ranges::any_of(a.required, is_forbidden);
}

bool ExcludingSchemas::differ_in_a_member(const Facts& a, const Facts& b, int depth) {
  if (depth >= kDepthMax) return false;
  for (const OrderedJson* const of_a : a.properties) {
    if (!of_a->is_object()) continue;
    for (const auto& [name, schema] : of_a->items()) {
      if (!a.required.contains(name) || !b.required.contains(name)) continue;
      for (const OrderedJson* const of_b : b.properties) {
        if (!may_go_on(of_b->size())) return false;
        const OrderedJson* const other = member(*of_b, name);
        if (other != nullptr && exclude(schema, *other, {}, depth + 1)) return true;
      }
    }
  }
  return false;
}

const OrderedJson* ExcludingSchemas::target_of(const OrderedJson& schema) const {
  const OrderedJson* const reference = member(schema, "$ref");
  const auto* const text =
      reference == nullptr ? nullptr : reference->get_ptr<const std::string*>();
  if (text == nullptr || !text->starts_with("#/") || !follows_pointers_ ||
      text->find('%') != std::string::npos) {
    return nullptr;
  }
  try {
    return &root_.at(OrderedJson::json_pointer(text->substr(1)));
  } catch (const OrderedJson::exception&) {
    return nullptr;  // says nothing
  }
}

}  // namespace lmtp::constraint
