// Translates a regular expression over characters into one over bytes, which are classes of
// characters.
//
// A pattern such as `\s+(?!\S)|[^\r\n\p{L}\p{N}]?\p{L}+` distinguishes characters only by the sets
// in it. Non-ASCII characters that are in the same sets form one class; a class is one byte, 0x80
// and up. The text is translated into classes and the pattern into one over bytes. So the sets are
// those of Hugging Face's version of Unicode instead of PCRE2's, a set costs one bitmap look-up,
// and positions count characters.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "code_point_table.h"
#include "lmtp/base/result.h"

namespace lmtp::tokenizer {

struct ByteRegex {
  std::string pattern;     // for PCRE2 without UTF
  CodePointTable classes;  // the byte of each non-ASCII character
};

// `pattern`: in Oniguruma's syntax, as in tokenizer.json. The error names unsupported syntax (what
// no known tokenizer uses). The result is for PCRE2_MULTILINE. REQUIRES: valid UTF-8.
Result<ByteRegex> make_byte_regex(std::string_view pattern);

// Matches one character of these ranges. REQUIRES: sorted, none touching the next.
ByteRegex make_byte_regex(std::span<const CodePointRange> ranges);

}  // namespace lmtp::tokenizer
