#include "lmtp/request/error_kind.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace lmtp {
namespace {

// 429 is what TGI and OpenAI answer under overload; 499 is nginx's code for a client that closed
// the connection. Reloading a model takes seconds.
constexpr std::array kErrorKinds = {
    ErrorKind{ErrorCode::kInvalid, "invalid", 400, "invalid_request", 0},
    ErrorKind{ErrorCode::kTooLong, "too_long", 400, "context_length", 0},
    ErrorKind{ErrorCode::kNotFound, "not_found", 404, "unknown_model", 0},
    ErrorKind{ErrorCode::kOverloaded, "overloaded", 429, "overloaded", 1000},
    ErrorKind{ErrorCode::kUnavailable, "unavailable", 503, "unavailable", 2000},
    ErrorKind{ErrorCode::kStopping, "stopping", 503, "shutting_down", 1000},
    ErrorKind{ErrorCode::kCancelled, "cancelled", 499, "cancelled", 0},
    ErrorKind{ErrorCode::kTimeout, "timeout", 504, "timeout", 0},
    ErrorKind{ErrorCode::kConstraint, "constraint", 422, "constraint", 0},
    ErrorKind{ErrorCode::kDeviceLost, "device_lost", 503, "model_failed", 5000},
    ErrorKind{ErrorCode::kInternal, "internal", 500, "internal", 0},
};

constexpr std::size_t row_of(ErrorCode code) { return static_cast<std::size_t>(code); }

static_assert(kErrorKinds.size() == row_of(ErrorCode::kInternal) + 1);
static_assert(std::ranges::is_sorted(kErrorKinds, {},
                                     [](const ErrorKind& kind) { return row_of(kind.code); }));

}  // namespace

const ErrorKind& error_kind(ErrorCode code) { return kErrorKinds[row_of(code)]; }

}  // namespace lmtp
