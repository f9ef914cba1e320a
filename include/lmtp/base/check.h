// LMTP_CHECK(condition, values...): aborts with the place, the condition and the values printed.
//
// For bugs of this program only: errors that a client, a file or a device can cause are Results.
#pragma once

#include <sstream>
#include <string>

namespace lmtp::internal {

// Writes one line to stderr and aborts. Any thread.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);

template <typename... Values>
std::string join_values(const Values&... values) {
  std::ostringstream out;
  ((out << ' ' << values), ...);
  return out.str();
}

}  // namespace lmtp::internal

#define LMTP_CHECK(condition, ...)                                      \
  (static_cast<bool>(condition)                                         \
       ? static_cast<void>(0)                                           \
       : ::lmtp::internal::check_failed(__FILE__, __LINE__, #condition, \
                                        ::lmtp::internal::join_values(__VA_ARGS__)))
