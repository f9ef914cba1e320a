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
  // How long to wait before the same request is sent again; 0: it would fail again.
  int retry_after_ms;
};

const ErrorKind& error_kind(ErrorCode code);

}  // namespace lmtp
