// Parses regular expressions, as far as make_byte_regex() needs it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"
#include "unicode_data.h"

namespace lmtp::tokenizer {

// A piece of a pattern: either a set of characters (a literal is a set of one), or syntax that is
// copied, since Oniguruma and PCRE2 agree on it.
struct RegexPart {
  std::string syntax;
  std::vector<CodePointRange> set;  // sorted, none touching the next
  bool is_set = false;
};

// REQUIRES: valid UTF-8. The error names what is not supported.
Result<std::vector<RegexPart>> parse_regex(std::string_view pattern);

}  // namespace lmtp::tokenizer
