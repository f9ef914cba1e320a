// How far a misspelt name is from a known one.
#pragma once

#include <cstddef>
#include <string_view>

namespace lmtp::tools {

// Levenshtein distance, in bytes.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace lmtp::tools
