// Grammars that need no parser: as one terminal.
#pragma once

#include <string>

namespace lmtp::server {

// The same grammar in Lark's notation, whose rules are terminals, but for start, which is one of
// them: then its texts are those of one regular expression. A lexer that takes the longest terminal
// does not find the end of one where what follows begins with the same byte, as escapes of JSON do:
// of /.+/ and "\\n" the second one is never found. As it is where that cannot be: a rule leads to
// itself, something is ignored, or its notation is another one.
std::string regular_lark(const std::string& lark);

}  // namespace lmtp::server
