// Grammars of texts, as they are within a string of JSON.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::server {

// A grammar in Lark's notation whose texts are those of `lark` with the escapes of JSON: \" \\ \n
// \r \t \b \f; texts with other control characters are left out. Within it are rules, texts,
// regular expressions (characters, classes, groups and quantifiers) and %ignore, %import of common.
// The error says what of it is not allowed; it is for after the name of the field.
Result<std::string> escaped_lark(std::string_view lark);

}  // namespace lmtp::server
