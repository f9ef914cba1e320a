#include "negated_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "excluding_schemas.h"
#include "lmtp/base/utf8.h"

namespace lmtp::constraint {
namespace {

using Schemas = std::vector<OrderedJson>;

OrderedJson typed(const char* type, const char* keyword, OrderedJson value) {
  OrderedJson schema = schema_with("type", type);
  schema[keyword] = std::move(value);
  return schema;
}

OrderedJson any_of(Schemas branches) {
  if (branches.empty()) return OrderedJson(false);
  return branches.size() == 1 ? std::move(branches.front())
                              : schema_with("anyOf", std::move(branches));
}

// The values of these types; both or none of an integer's and a fraction's.
OrderedJson of_types(JsonTypes types) {
  OrderedJson names = OrderedJson::array();
  if ((types & kJsonFraction) != 0) names.push_back("number");
  if ((types & kJsonObject) != 0) names.push_back("object");
  if ((types & kJsonString) != 0) names.push_back("string");
  if ((types & kJsonBoolean) != 0) names.push_back("boolean");
  if ((types & kJsonNull) != 0) names.push_back("null");
  if ((types & kJsonArray) != 0) names.push_back("array");
  return names.empty() ? OrderedJson(false) : schema_with("type", std::move(names));
}

// Texts by their characters.
struct TextTree {
  std::map<char32_t, TextTree> next;
  bool is_end = false;
};

void append_class_character(char32_t character, std::string& to) {
  constexpr std::u32string_view kSpecial = U"\\]^-[&~";
  if (kSpecial.find(character) != std::u32string_view::npos) to += '\\';
  append_utf8(character, to);
}

// A regular expression of all texts but those that end below: such a text ends before one of them
// does, or goes on otherwise.
void append_others(const TextTree& node, std::string& to) {
  to += '(';
  if (!node.is_end) to += '|';
  if (node.next.empty()) {
    to += "(?s:.)+)";
    return;
  }
  to += "[^";
  for (const auto& [character, next] : node.next) append_class_character(character, to);
  to += "](?s:.)*";
  for (const auto& [character, next] : node.next) {
    to += "|[";
    append_class_character(character, to);
    to += ']';
    append_others(next, to);
  }
  to += ')';
}

constexpr std::size_t kTextBytesMax = 80;  // three levels each; llguidance reads 250
constexpr std::size_t kTextsBytesMax = 4096;
constexpr double kNumberMax = 0x1p53;  // bounds are doubles

std::optional<OrderedJson> other_texts(const std::vector<const OrderedJson*>& texts) {
  TextTree root;
  std::size_t num_bytes = 0;
  for (const OrderedJson* const text : texts) {
    const auto& characters = text->get_ref<const std::string&>();
    num_bytes += characters.size();
    if (characters.size() > kTextBytesMax || num_bytes > kTextsBytesMax) return std::nullopt;
    if (!is_utf8(characters)) return std::nullopt;
    TextTree* node = &root;
    for (std::size_t pos = 0; pos < characters.size();) {
      const CodePoint at = code_point_at(characters, pos);
      node = &node->next[at.value];
      pos += at.num_bytes;
    }
    node->is_end = true;
  }
  std::string pattern = "^";
  append_others(root, pattern);
  return typed("string", "pattern", pattern + "$");
}

bool is_exact(const OrderedJson& number) { return std::fabs(number.get<double>()) < kNumberMax; }

// Numbers below the least of these, between two of them, and above. False: there is no such form.
bool add_other_numbers(const std::vector<const OrderedJson*>& numbers, Schemas& branches) {
  Schemas sorted;
  for (const OrderedJson* const number : numbers) {
    if (!is_exact(*number)) return false;
    sorted.push_back(*number);
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i <= sorted.size(); ++i) {
    OrderedJson between = schema_with("type", "number");
    if (i > 0) between["exclusiveMinimum"] = sorted[i - 1];
    if (i < sorted.size()) between["exclusiveMaximum"] = sorted[i];
    if (i > 0 && i < sorted.size()) {
      if (!(sorted[i - 1] < sorted[i])) continue;  // twice the same
      // llguidance 1.9.1 takes 0 for a number above 0 and below 0.5.
      if (sorted[i - 1] == 0 && sorted[i] < 1) return false;
    }
    branches.push_back(std::move(between));
  }
  return true;
}

std::optional<OrderedJson> other_values(const std::vector<const OrderedJson*>& values) {
  std::map<JsonTypes, std::vector<const OrderedJson*>> by_type;
  for (const OrderedJson* const value : values) {
    if (value->is_structured()) return std::nullopt;  // equal in any spelling
    by_type[value->is_number() ? kJsonInteger | kJsonFraction : types_of_value(*value)].push_back(
        value);
  }
  JsonTypes untouched = kJsonAll;
  Schemas branches;
  for (const auto& [types, some] : by_type) {
    untouched &= ~types;
    if (types == kJsonString) {
      std::optional<OrderedJson> texts = other_texts(some);
      if (!texts) return std::nullopt;
      branches.push_back(*std::move(texts));
    } else if (types == kJsonBoolean) {
      for (const bool value : {false, true}) {
        if (std::ranges::none_of(some, [&](const OrderedJson* one) { return *one == value; })) {
          branches.push_back(schema_with("enum", OrderedJson::array({value})));
        }
      }
    } else if (types != kJsonNull && !add_other_numbers(some, branches)) {
      return std::nullopt;
    }
  }
  if (untouched != 0) branches.insert(branches.begin(), of_types(untouched));
  return any_of(std::move(branches));
}

// An object without one of these members.
std::optional<OrderedJson> lacking(const OrderedJson& names) {
  if (!names.is_array()) return std::nullopt;
  Schemas branches;
  for (const OrderedJson& name : names) {
    if (!name.is_string()) return std::nullopt;
    branches.push_back(
        typed("object", "properties", schema_with(name.get_ref<const std::string&>(), false)));
  }
  return any_of(std::move(branches));
}

struct Bound {
  const char* keyword;
  const char* type;
  const char* opposite;
  int step;  // from the bound to the opposite one
};
constexpr Bound kBounds[] = {
    {"minimum", "number", "exclusiveMaximum", 0}, {"maximum", "number", "exclusiveMinimum", 0},
    {"exclusiveMinimum", "number", "maximum", 0}, {"exclusiveMaximum", "number", "minimum", 0},
    {"minLength", "string", "maxLength", -1},     {"maxLength", "string", "minLength", 1},
    {"minItems", "array", "maxItems", -1},        {"maxItems", "array", "minItems", 1},
};

std::optional<OrderedJson> beyond(const Bound& bound, const OrderedJson& value) {
  if (!value.is_number() || !is_exact(value)) return std::nullopt;
  if (bound.step == 0) return typed(bound.type, bound.opposite, value);
  const auto* const whole = value.get_ptr<const OrderedJson::number_integer_t*>();
  if (whole == nullptr || *whole < 0 || *whole > std::numeric_limits<std::int32_t>::max()) {
    return std::nullopt;
  }
  if (*whole + bound.step < 0) return OrderedJson(false);
  return typed(bound.type, bound.opposite, *whole + bound.step);
}

std::optional<OrderedJson> all_negated(const OrderedJson& schemas, bool are_alternatives) {
  if (!schemas.is_array()) return std::nullopt;
  Schemas rests;
  for (const OrderedJson& schema : schemas) {
    std::optional<OrderedJson> rest = negated(schema);
    if (!rest) return std::nullopt;
    rests.push_back(*std::move(rest));
  }
  return are_alternatives ? any_of(std::move(rests)) : schema_with("allOf", std::move(rests));
}

bool says_nothing(std::string_view keyword) {
  constexpr std::string_view kAnnotations[] = {"title",    "description", "default", "examples",
                                               "$comment", "deprecated",  "readOnly"};
  return std::ranges::find(kAnnotations, keyword) != std::end(kAnnotations);
}

bool knows_all(const OrderedJson& names) {
  return std::ranges::all_of(names,
                             [](const OrderedJson& name) { return types_named(name) != kJsonAll; });
}

// What a schema of this keyword alone does not allow.
std::optional<OrderedJson> negated_keyword(const std::string& keyword, const OrderedJson& value) {
  if (keyword == "not") return value;
  if (keyword == "anyOf") return all_negated(value, false);
  if (keyword == "allOf") return all_negated(value, true);
  if (keyword == "required") return lacking(value);
  if (keyword == "const") return other_values({&value});
  if (keyword == "enum" && value.is_array()) {
    std::vector<const OrderedJson*> values;
    for (const OrderedJson& one : value) values.push_back(&one);
    return other_values(values);
  }
  if (keyword == "type") {
    if (value.is_array() ? !knows_all(value) : types_named(value) == kJsonAll) return std::nullopt;
    const JsonTypes rest = kJsonAll & ~types_named(value);
    const JsonTypes numbers = rest & (kJsonInteger | kJsonFraction);
    if (numbers == kJsonFraction) return std::nullopt;  // fractions alone have no name
    return of_types(rest);
  }
  for (const Bound& bound : kBounds) {
    if (keyword == bound.keyword) return beyond(bound, value);
  }
  return std::nullopt;
}

}  // namespace

OrderedJson schema_with(const std::string& keyword, OrderedJson value) {
  OrderedJson schema = OrderedJson::object();
  schema[keyword] = std::move(value);
  return schema;
}

std::optional<OrderedJson> negated(const OrderedJson& schema) {
  if (schema.is_boolean()) return OrderedJson(!schema.get<bool>());
  if (!schema.is_object()) return std::nullopt;
  Schemas branches;
  for (const auto& [keyword, value] : schema.items()) {
    if (says_nothing(keyword)) continue;
    std::optional<OrderedJson> rest = negated_keyword(keyword, value);
    if (!rest) return std::nullopt;
    branches.push_back(*std::move(rest));
  }
  return any_of(std::move(branches));
}

}  // namespace lmtp::constraint
