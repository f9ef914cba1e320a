// Numbers in the files of others. A pure function; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace lmtp {

// The number that the bytes are, the lowest first. REQUIRES: at most 8.
constexpr std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  int shift = 0;
  for (const char byte : bytes) {
    value |= std::uint64_t{static_cast<unsigned char>(byte)} << shift;
    shift += 8;
  }
  return value;
}

}  // namespace lmtp
