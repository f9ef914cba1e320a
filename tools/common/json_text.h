// JSON that a server sent, shown to a person, and token ids that a person gives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"

namespace lmtp::tools {

// The JSON as Python prints the same value: {'token': 5, 'finish_reason': None}. The text itself
// where it is not JSON, or larger than any of a server's answers.
std::string python_repr(const std::string& json);

// The JSON over several lines, each level two spaces further in; the text itself likewise.
std::string indented(const std::string& json);

// The elements of an array as ids. The error says which is none.
Result<std::vector<TokenId>> json_ids(const Json& array);
// "[1, 2, 3]" as ids. The error says what is wrong.
Result<std::vector<TokenId>> parse_ids(std::string_view json);

}  // namespace lmtp::tools
