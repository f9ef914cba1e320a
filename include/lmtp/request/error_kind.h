// What a client of any protocol gets of an Error besides its message.
#pragma once

#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp {

struct ErrorKind {
  ErrorCode code;
  std::string_view name;  // for logs and metrics
  int http_status;
  std::string_view lmtp_code;
  int retry_after_ms;  // where the error says nothing more exact; 0: a retry would fail again
};

const ErrorKind& error_kind(ErrorCode code);

// How long to wait before the same request is sent again; 0: it would fail again.
inline int retry_after_ms(const ErrorKind& kind, int wait_ms) {
  return kind.retry_after_ms > 0 && wait_ms > 0 ? wait_ms : kind.retry_after_ms;
}
inline int retry_after_ms(const Error& error) {
  return retry_after_ms(error_kind(error.code), error.wait_ms);
}

}  // namespace lmtp
