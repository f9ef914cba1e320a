// The parameters of a function, one by one, as tags or Python write its arguments.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/json.h"
#include "offered_tools.h"

namespace lmtp::server {

// Types of values, as bits.
using JsonTypes = std::uint32_t;
inline constexpr std::string_view kJsonTypes[] = {"string", "null",  "boolean", "integer",
                                                  "number", "array", "object"};
inline constexpr JsonTypes kStringType = 1;
inline constexpr JsonTypes kAnyType = 127;

// What values of a schema may be, as far as their types go. `root`: what its references lead into.
JsonTypes types_of(const OrderedJson& root, const OrderedJson& schema);
// As `type` names it.
JsonTypes type_named(const OrderedJson& name);
// The type of a value's text, which is JSON.
JsonTypes type_of_json(std::string_view json);

// What a chain of references and of `allOf` with one schema leads to; itself where it is none.
const OrderedJson& target_of(const OrderedJson& root, const OrderedJson& schema);

// Whether nothing is said of its values but by these keywords, and for people.
bool says_only(const OrderedJson& schema, const std::vector<std::string_view>& keywords);
// Whether its types are all that is said of its values.
bool is_plain(const OrderedJson& root, const OrderedJson& schema);

// Whether it takes each string.
bool takes_any_text(const OrderedJson& root, const OrderedJson& schema);

// A schema of its own, with what it refers to and fixed spaces; empty: it refers to something else.
std::string schema_alone(const OrderedJson& root, const OrderedJson& schema);

struct Parameter {
  std::string name;
  bool is_required = false;
  JsonTypes types = kAnyType;
  std::vector<std::string> texts = {};  // the only ones; empty: any
  OrderedJson value = {};               // its schema
  std::string schema = {};              // schema_alone()

  // It is written as it is.
  bool is_text() const { return types == kStringType; }
  // Neither of both: it is a string where it is no JSON of one of the other types.
  bool is_json() const { return (types & kStringType) == 0; }
};

struct Parameters {
  OrderedJson root;             // the function's schema
  std::vector<Parameter> each;  // in its order
  bool is_whole = true;         // nothing else is said of them together
};
Parameters parameters_of(const OfferedFunction& function);

}  // namespace lmtp::server
