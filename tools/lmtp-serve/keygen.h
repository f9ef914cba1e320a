// lmtp-serve keygen: a new API key for a client, and its element of the file of keys.
#pragma once

#include <string>
#include <vector>

namespace lmtp::tools {

// The words after `keygen`: a name, or none. The key and its element are a line each of standard
// output. The exit code.
int print_fresh_key(const std::vector<std::string>& words);

}  // namespace lmtp::tools
