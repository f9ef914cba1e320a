// MessageArea: the place in shared memory where one message at a time goes one way between this
// process and a runtime's. What the runtime writes is not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"
#include "process/shared_memory.h"

namespace lmtp::aici {

// To or from the runtime.
enum class Direction { kCommands, kAnswers };

// Owner: a Channel. One thread at a time.
class MessageArea {
 public:
  virtual ~MessageArea() = default;

  // Of a message that has room.
  virtual std::size_t bytes_max() const = 0;
  // False where the last message was not taken until then. REQUIRES: kCommands, and at least one
  // byte, at most bytes_max().
  virtual bool send(std::string_view message, Time until) = 0;
  // Nothing where none came until then; an error where it says that it is longer than the area.
  // REQUIRES: kAnswers.
  virtual Result<std::optional<std::string>> receive(Time until) = 0;
  // Once the runtime has opened what it needs.
  virtual void unlink() = 0;
};

// name: with the runtime's prefix, without a suffix. size: of the memory, as the runtime is told.
Result<std::unique_ptr<MessageArea>> make_semaphore_area(const std::string& name, std::size_t size);
Result<std::unique_ptr<MessageArea>> make_futex_area(const std::string& name, std::size_t size,
                                                     Direction direction);

// The error of an answer that says it has so many bytes.
Error too_long_answer(std::uint32_t length, std::size_t bytes_max);

}  // namespace lmtp::aici
