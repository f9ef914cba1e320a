// The runtime's end of the shared memory that an engine has made: messages in, messages out, rows.
//
// This is written on its own, from the protocol's text, and shares nothing with the engine's end in
// src/aici, so that each is a check of the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::aicirt {

// Memory of another process by its name; made where it is not there. Owner: whoever opened it.
class Mapping {
 public:
  static Result<Mapping> open(const std::string& name, std::size_t size, bool unlinks);
  Mapping(Mapping&& from) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::span<unsigned char> bytes() const { return {at_, size_}; }

 private:
  Mapping(unsigned char* at, std::size_t size) : at_(at), size_(size) {}

  unsigned char* at_;
  std::size_t size_;
};

struct AreaOptions {
  std::string prefix = "/aici0-";
  std::size_t bytes = 0;
  bool futex = false;
  int busy_wait_ms = 200;
  std::function<bool()> is_over;  // asked now and then while one waits
};

// What the engine says. One thread.
class Inbox {
 public:
  virtual ~Inbox() = default;
  // Empty where it is over. The error: a length that cannot be.
  virtual Result<std::string> receive() = 0;
};

// What the engine is told. One thread.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // The error: it is longer than the area, or over.
  virtual Result<void> send(const std::string& message) = 0;
};

// name: "cmd" or "resp", with "-side" behind it.
Result<std::unique_ptr<Inbox>> open_inbox(const AreaOptions& options, const std::string& name);
Result<std::unique_ptr<Outbox>> open_outbox(const AreaOptions& options, const std::string& name);

}  // namespace lmtp::aicirt
