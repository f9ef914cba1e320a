// Result<T>: a value, or the reason why there is none. gcc 12 has no std::expected.
//
// Expected failures (bad input, a missing file, a full pool) are returned as Result; bugs abort
// with LMTP_CHECK; exceptions do not leave the module in which they are caught.
#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "lmtp/base/check.h"

namespace lmtp {

// The cause of an error, for the program: what a client gets as answer and status depends on this
// alone (request/error_kind.h).
enum class ErrorCode {
  kInvalid,      // a malformed request or file: a retry fails in the same way
  kTooLong,      // invalid: it does not fit the model's context
  kNotFound,     // nothing has that name
  kOverloaded,   // a queue or a pool is full: a later retry may succeed
  kUnavailable,  // for now: out of memory, no network
  kStopping,     // the server shuts down
  kCancelled,    // by the client
  kTimeout,      // it took longer than the client allowed
  kConstraint,   // what constrains the stream's text lets nothing follow, or has failed
  kDeviceLost,   // the device is gone, or must be reset
  kInternal,     // a bug of this program
};

// The code for an errno of a file operation.
inline ErrorCode errno_code(int error_number) {
  const bool is_missing = error_number == ENOENT || error_number == ENOTDIR;
  return is_missing ? ErrorCode::kNotFound : ErrorCode::kUnavailable;
}

// The code for an exception, by its type.
inline ErrorCode exception_code(const std::exception& thrown) {
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
  return no_memory ? ErrorCode::kUnavailable : ErrorCode::kInternal;
}

// A code for the program, and for a person one sentence that names the remedy.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  // How long to wait before a retry, where that is known better than by the code (retry_after_ms()
  // of request/error_kind.h); else 0.
  int wait_ms = 0;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: a function returns its value or an Error as it is.
  Result(T value)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // REQUIRES: ok().
  T& value() & {
    LMTP_CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  const T& value() const& {
    LMTP_CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  T&& value() && {
    LMTP_CHECK(ok(), error_text());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: !ok().
  const Error& error() const {
    LMTP_CHECK(!ok());
    return std::get<1>(state_);
  }

 private:
  std::string error_text() const { return ok() ? std::string() : std::get<1>(state_).message; }

  std::variant<T, Error> state_;
};

// Of an operation that may fail but gives no value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }

  // REQUIRES: !ok().
  const Error& error() const {
    LMTP_CHECK(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace lmtp
