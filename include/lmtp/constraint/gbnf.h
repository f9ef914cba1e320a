// GBNF, llama.cpp's notation of grammars, to Lark.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::constraint {

// A grammar in Lark's notation, as llguidance reads it, of the same texts, but that of two literals
// or terminals which may stand in the same place the longer one is read: `("a" | "ab") "b"` has abb
// and not ab. The error, kInvalid, names line and column. Any thread.
Result<std::string> gbnf_to_lark(std::string_view text);

}  // namespace lmtp::constraint
