// TraceFile: the file of a trace, always a whole number of events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::trace {

// An array of JSON without its end, until end(). Owner: the Trace; one thread at a time.
class TraceFile {
 public:
  static Result<TraceFile> create(const std::string& path);
  TraceFile(TraceFile&& other) noexcept;
  TraceFile& operator=(TraceFile&&) = delete;
  ~TraceFile();

  // Events, each with ",\n" in front. After an error those that could be written are there; nothing
  // more can be added.
  Result<void> add(std::string_view events);
  // The end of the array, where there is room for it.
  void end();

  std::int64_t num_bytes() const { return num_bytes_; }

 private:
  explicit TraceFile(int file) : file_(file) {}

  int file_ = -1;
  std::int64_t num_bytes_ = 0;
};

}  // namespace lmtp::trace
