// JSON Schemas as the clients of OpenAI's and TGI's APIs mean them. By the letter, `properties`
// without `type` takes any number, and an object may have members that the schema does not name.
#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>

#include "lmtp/base/json.h"

namespace lmtp::server {

// In place: where object keywords stand and nothing says of what type the value is, it is an
// object; and an object with `properties` and without `additionalProperties` has no other members,
// where that leaves a schema's parts compatible: not inside `allOf`, and not where other keywords,
// from a
// `$ref` to this schema or from around it, may name members as well. Any thread.
void read_schema_as_meant(OrderedJson& schema);

// False: each value would have one of the same schema inside, without end, which llguidance finds
// out only while a stream runs. Any thread.
bool can_be_met(const OrderedJson& schema);

// How many members may be left out at one place of a schema's values. More than kOptionalMembersMax
// are too much for llguidance, which finds that out only while a stream runs. Any thread.
inline constexpr std::size_t kOptionalMembersMax = 350;
std::size_t most_optional_members(const OrderedJson& schema);

// Null: there is none. REQUIRES: an object.
const OrderedJson* find_member(const OrderedJson& object, std::string_view key);

// Finds parts of a schema by name in a time that its size bounds, however often it is asked. Owner:
// one thread. REQUIRES: what it was given outlives it, unchanged.
class SchemaParts {
 public:
  explicit SchemaParts(const OrderedJson& root) : root_(root) {}

  // What a `$ref` leads to; null: it leads elsewhere, is percent-encoded, a mistake, or longer than
  // 1,024 bytes or 64 steps.
  const OrderedJson* target(const OrderedJson& reference);
  // Null: there is none. REQUIRES: an object.
  const OrderedJson* member(const OrderedJson& object, std::string_view key);

 private:
  using Members = std::unordered_map<std::string_view, const OrderedJson*>;

  const OrderedJson* found(std::string_view pointer);

  const OrderedJson& root_;
  Members targets_;  // by their texts
  std::unordered_map<const OrderedJson*, Members> members_;
};

}  // namespace lmtp::server
