// Which JSON Schemas have no value in common.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/json.h"

namespace lmtp::constraint {

// A set of types of values, a bit each. Numbers are integers or fractions; a number without a
// fraction is an integer however it is written.
using JsonTypes = unsigned;
inline constexpr JsonTypes kJsonInteger = 1;
inline constexpr JsonTypes kJsonFraction = 2;
inline constexpr JsonTypes kJsonObject = 4;
inline constexpr JsonTypes kJsonString = 8;
inline constexpr JsonTypes kJsonBoolean = 16;
inline constexpr JsonTypes kJsonNull = 32;
inline constexpr JsonTypes kJsonArray = 64;
inline constexpr JsonTypes kJsonAll = 127;

// What `type` says, a name or a list of them; an unknown name is all types.
JsonTypes types_named(const OrderedJson& type);
// The type of one value; a number that is written with a point has both of a number's.
JsonTypes types_of_value(const OrderedJson& value);

// Proofs within one root schema, which outlives it. They all together take a bounded number of
// steps: beyond these nothing is proven. One thread.
class ExcludingSchemas {
 public:
  // root: what `text` says.
  ExcludingSchemas(const OrderedJson& root, std::string_view text);

  // Whether each value that `schema` allows is of one branch of its `oneOf` at most.
  bool are_exclusive(const OrderedJson& schema);

 private:
  // What is certain of the values of some schemas that apply together.
  struct Facts {
    JsonTypes types = kJsonAll;
    std::optional<std::vector<const OrderedJson*>> values;  // no others
    std::set<std::string> required;
    std::vector<const OrderedJson*> properties;  // objects of schemas
    std::vector<const OrderedJson*> closed;      // as well; no member has another name
  };

  void add(const OrderedJson& schema, Facts& facts, int depth);
  bool exclude(const OrderedJson& a, const OrderedJson& b, const Facts& around, int depth);
  bool have_no_common(const Facts& a, const Facts& b);
  bool differ_in_a_member(const Facts& a, const Facts& b, int depth);
  // Whether a member of `a` that is required is one that `b` forbids.
  bool forbids(const Facts& a, const Facts& b);
  const OrderedJson* target_of(const OrderedJson& schema) const;
  bool may_go_on(std::size_t num_steps);

  const OrderedJson& root_;
  bool knows_const_ = true;       // not in draft 4
  bool follows_pointers_ = true;  // no other schema inside has an identifier of its own
  std::size_t num_steps_ = 0;
};

}  // namespace lmtp::constraint
