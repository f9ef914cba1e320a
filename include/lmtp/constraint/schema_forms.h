// JSON Schemas in equal forms that llguidance takes.
#pragma once

#include <string>

namespace lmtp::constraint {

// A schema of the same values: without formats that llguidance does not know, which are logged once
// by name; `anyOf` for a `oneOf` whose branches exclude each other by types, values, or a member
// that one requires and the other forbids or gives another value; `dependentRequired`,
// `dependentSchemas` and `dependencies` as alternatives; and what `not` leaves of types, numbers,
// texts and other single values, bounds and required members. A text that is no JSON object, that
// is longer than kMaxGrammarBytes, or that has nothing of that stays as it is. Any thread.
std::string to_known_form(const std::string& schema);

}  // namespace lmtp::constraint
