// Options of `lmql serve-model` that lmtp-serve does not have.
#pragma once

#include <string>
#include <string_view>

namespace lmtp::tools {

// What to write instead of an option or word of the command line that nothing here takes: a
// sentence, which names it.
std::string instead_of(std::string_view word);

}  // namespace lmtp::tools
