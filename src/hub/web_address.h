// The parts of web addresses that decide where a request, and with it a token, goes.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::hub {

// "https://host:443": scheme, host in lower case, port. An error for anything but http(s), and for
// an address with a user in it (which would be logged with its password).
Result<std::string> origin_of(const std::string& url);

// With %XX for all that is not a letter, a digit or one of "-_.~" (and "/", where kept).
std::string quote(std::string_view text, bool keep_slashes);

}  // namespace lmtp::hub
