// What no other request has: ids and seeds. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lmtp::server {

// `prefix` and 32 random digits.
std::string fresh_id(std::string_view prefix);

// For a request without a seed, so that its client can be told which it was. Below 2^53, so that
// every JSON reader gets it right; so is it for each sample, whose index is added.
std::uint64_t fresh_seed();

// Now, in seconds since 1970.
std::int64_t unix_seconds();

}  // namespace lmtp::server
