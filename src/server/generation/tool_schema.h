// A function's schema, as forms of calls need it that write arguments one by one: in tags, as
// Python, or as Gemma does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lark_rules.h"
#include "lmtp/base/json.h"
#include "offered_tools.h"
#include "schema_reading.h"

namespace lmtp::server {

// Types of values, as bits. kFraction: a number that is not whole.
using JsonTypes = std::uint32_t;
inline constexpr JsonTypes kText = 1;
inline constexpr JsonTypes kNull = 2;
inline constexpr JsonTypes kBoolean = 4;
inline constexpr JsonTypes kWhole = 8;
inline constexpr JsonTypes kFraction = 16;
inline constexpr JsonTypes kList = 32;
inline constexpr JsonTypes kObject = 64;
inline constexpr JsonTypes kAnyType = 127;

// What a value is. REQUIRES: the text is JSON.
JsonTypes type_of_json(std::string_view json);

// The values of these types that meet a schema, which is no union of others.
struct Alternative {
  const OrderedJson* schema = nullptr;
  JsonTypes types = kAnyType;
};
using Alternatives = std::vector<Alternative>;
JsonTypes types_of(const Alternatives& alternatives);

// A member of an object.
struct Member {
  std::string name;
  const OrderedJson* schema = nullptr;
  bool is_required = false;
};

// Keywords that constrain values, by the types of those.
using SchemaKeywords = std::vector<std::string_view>;
extern const SchemaKeywords kTextKeywords;
extern const SchemaKeywords kNumberKeywords;
extern const SchemaKeywords kListKeywords;
extern const SchemaKeywords kObjectKeywords;
extern const SchemaKeywords kCombiningKeywords;  // those of any value, but type, enum and const
bool has_any(const OrderedJson& schema, const SchemaKeywords& keywords,
             const SchemaKeywords& but_for = {});

// Whatever a client's schema is, one budget bounds what all calls of its members do together, and
// with it what they give out; a schema that is met again, within itself or not, counts again. What
// is beyond this budget, or that of the request, is any value; so is all of a text that is no JSON.
// Owner: one thread. What is given out lives as long as this.
class ToolSchema {
 public:
  // REQUIRES: the budget outlives it.
  ToolSchema(const std::string& parameters, SchemaBudget& budget);
  ToolSchema(const ToolSchema&) = delete;
  ToolSchema& operator=(const ToolSchema&) = delete;

  // An object.
  const OrderedJson& root() const { return root_; }

  // What anyOf, oneOf, lists of types, references and allOf of one schema lead to. Never empty;
  // more than a grammar can have beside one another are any value of their types.
  Alternatives alternatives(const OrderedJson& schema);
  // An object's, in the order of the schema: those of its allOf and references first.
  std::vector<Member> members(const OrderedJson& schema);
  // The values that an enum or const lists; empty: there is none, or the budget is used up.
  std::vector<const OrderedJson*> listed(const Alternative& alternative);
  // JSON Schema with all that it refers to, and with fixed spaces. Empty: it cannot be had.
  std::string standalone(const Alternative& alternative);

  // Counts all that is in it.
  void count(const OrderedJson& value);

  // More values are let through than the function's schema has.
  void loosen() { is_kept_ = false; }
  bool is_kept() const { return is_kept_; }
  bool is_used_up() const { return num_left_ < 0 || budget_.is_used_up(); }

 private:
  using Seen = std::set<std::pair<const OrderedJson*, JsonTypes>>;
  struct Gathered;

  // False: a budget is used up.
  bool charge(std::size_t num);
  bool are_equal(const OrderedJson& one, const OrderedJson& other);
  void flatten(const OrderedJson& schema, JsonTypes types, std::size_t depth, Seen& seen,
               Alternatives& to);
  JsonTypes types_of_all(const OrderedJson& schema, JsonTypes types, std::size_t depth);
  void gather(const OrderedJson& schema, bool is_sure, std::size_t depth, Gathered& to);
  void add_properties(const OrderedJson& schema, Gathered& to);

  SchemaBudget& budget_;
  OrderedJson root_;
  SchemaParts parts_{root_};
  int num_left_;  // schemas that may be looked at
  bool is_kept_ = true;
};

// Whether a grammar may have all of these parameters as JSON Schema: they are counted as they would
// be elsewhere, the values that they list, too.
bool is_within(const std::string& parameters, SchemaBudget& budget);

// Whether more members may be left out than a grammar can follow.
bool are_too_many(const std::vector<Member>& members);

// A parameter of a function, as a reader of tags needs it.
struct Parameter {
  std::string name;
  JsonTypes types = kAnyType;
  bool takes_any_text = true;  // where it takes texts: not those of a list alone

  // It is written as it is.
  bool is_text() const { return types == kText; }
  // Neither of both: it is a string where it is no JSON of one of the other types.
  bool is_json() const { return (types & kText) == 0; }
};
using Parameters = std::vector<Parameter>;
// Each function's. None: any are taken.
std::vector<Parameters> parameters_of(const std::vector<OfferedFunction>& functions);

}  // namespace lmtp::server
