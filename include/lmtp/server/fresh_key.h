// A new API key, and what a file of keys (--api-key-file) has of it.
#pragma once

#include <string>

#include "lmtp/base/result.h"

namespace lmtp::server {

struct FreshKey {
  std::string key;    // for its client: 256 random bits
  std::string entry;  // an element of "keys", with the key's SHA-256 in the place of the key
};

// The error says what a name is. Any thread.
Result<FreshKey> make_fresh_key(const std::string& name);

}  // namespace lmtp::server
