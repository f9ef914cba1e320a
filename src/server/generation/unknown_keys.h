// The fields of requests that nobody reads, in the log.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmtp::server {

// Logs which keys `sender` gave that were ignored: a name stands in the log once, though again
// where clients have brought too many others since. At most one line a second, since clients choose
// the names: they are shortened by who read them, and log::warning() escapes them. Any thread.
void log_unknown_keys(std::string_view sender, const std::vector<std::string>& keys);

// The same of other names that clients give: `line`, and those that have not stood in one.
void log_once(const std::string& line, const std::vector<std::string>& names);

}  // namespace lmtp::server
