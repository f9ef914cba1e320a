// What `not` leaves of a JSON Schema, said without `not`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lmtp/base/json.h"

namespace lmtp::constraint {

// {keyword: value}.
OrderedJson schema_with(const std::string& keyword, OrderedJson value);

// A schema of exactly the values that `schema` does not allow; nothing where it says more than
// types, values that are no lists or objects, bounds, required members, `not`, `anyOf` and `allOf`.
std::optional<OrderedJson> negated(const OrderedJson& schema);

}  // namespace lmtp::constraint
