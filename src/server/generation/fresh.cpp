#include "fresh.h"

#include <chrono>

#include "lmtp/base/runtime.h"

namespace lmtp::server {
namespace {

// Samples of a request at most, as a power of two.
constexpr std::uint64_t kSamples = 256;

}  // namespace

std::string fresh_id(std::string_view prefix) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  runtime::RandomDevice random;
  std::string id(prefix);
  for (int i = 0; i < 4; ++i) {
    auto bits = random();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

std::uint64_t fresh_seed() {
  runtime::RandomDevice random;
  const std::uint64_t high = random();
  return ((high << 32 | random()) & ((std::uint64_t{1} << 53) - 1)) & ~(kSamples - 1);
}

std::int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace lmtp::server
