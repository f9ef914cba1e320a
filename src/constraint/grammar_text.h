// From a grammar as clients write it to one that llguidance reads.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"
#include "lmtp/request/grammar.h"

namespace lmtp::constraint {

// What llg_new_matcher() takes.
struct LibraryGrammar {
  std::string kind;
  std::string text;
};

// The error, kInvalid, is a sentence without the name of a field.
Result<LibraryGrammar> to_library_grammar(const Grammar& grammar);

// A regular expression of exactly this text.
std::string quote_regex(std::string_view text);

}  // namespace lmtp::constraint
