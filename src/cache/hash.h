// What the hashes of this module's maps are mixed by.
#pragma once

#include <cstdint>

namespace lmtp::cache {

inline std::uint64_t mixed(std::uint64_t hash) {
  hash *= 0xFF51AFD7ED558CCDULL;
  return hash ^ hash >> 32;
}

}  // namespace lmtp::cache
