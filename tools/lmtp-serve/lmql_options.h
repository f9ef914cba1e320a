// Options of `lmql serve-model` that lmtp-serve does not have.
#pragma once

#include <string>
#include <string_view>

namespace lmtp::tools {

// An error message for an unknown option or argument, with what to use instead.
std::string instead_of(std::string_view word);

}  // namespace lmtp::tools
