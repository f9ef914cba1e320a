// The parts of URLs that decide where a request, and with it a token, is sent.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::hub {

// "https://host:443": scheme, host in lower case, port. An error for anything but http(s), and for
// a URL with a user name (it would be logged with its password).
Result<std::string> origin_of(const std::string& url);

// Percent-encodes all but letters, digits and "-_.~" (and "/" if `keep_slashes`).
std::string quote(std::string_view text, bool keep_slashes);

}  // namespace lmtp::hub
