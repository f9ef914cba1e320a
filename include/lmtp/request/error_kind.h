// What a client sees of an Error beside its sentence, whatever protocol it speaks.
#pragma once

#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp {

struct ErrorKind {
  ErrorCode code;
  std::string_view name;  // for logs, metrics and protocols that have a word for it
  int http_status;
};

const ErrorKind& error_kind(ErrorCode code);

}  // namespace lmtp
