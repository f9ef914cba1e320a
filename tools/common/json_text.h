// Displays a server's JSON, and parses token ids that a user types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"

namespace lmtp::tools {

// The JSON as Python prints the same value: {'token': 5, 'finish_reason': None}. The text itself
// if it is not JSON, or larger than any answer of a server.
std::string python_repr(const std::string& json);

// The JSON over several lines, indented by two spaces a level; the text itself in the same cases.
std::string indented(const std::string& json);

// The elements of an array as ids. The error names the first that is none.
Result<std::vector<TokenId>> json_ids(const Json& array);
// "[1, 2, 3]" as ids. The error says what is wrong.
Result<std::vector<TokenId>> parse_ids(std::string_view json);

}  // namespace lmtp::tools
