// Regular expressions over classes of characters instead of characters.
//
// A pattern such as `\s+(?!\S)|[^\r\n\p{L}\p{N}]?\p{L}+` tells characters apart only by the sets it
// names. Each character beyond ASCII is therefore replaced by one byte, 0x80 and on, that stands
// for all characters which no set of the pattern tells apart from it, and the pattern by one over
// bytes. So the letters are those of Hugging Face's version of Unicode rather than PCRE2's, a set
// costs one look into a bitmap, and positions count characters.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "code_point_table.h"
#include "lmtp/base/result.h"

namespace lmtp::tokenizer {

struct ByteRegex {
  std::string pattern;     // for PCRE2 without UTF
  CodePointTable classes;  // the bytes; ASCII is itself and not in here
};

// `pattern` in Oniguruma's syntax, as tokenizer.json has it, without the parts that no tokenizer
// was seen to use, which the error names. For PCRE2 with PCRE2_MULTILINE. REQUIRES: valid UTF-8.
Result<ByteRegex> make_byte_regex(std::string_view pattern);

// One character of these. REQUIRES: sorted, none touching the next.
ByteRegex make_byte_regex(std::span<const CodePointRange> ranges);

}  // namespace lmtp::tokenizer
