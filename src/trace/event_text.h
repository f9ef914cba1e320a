// The events of a trace as JSON, in the form that Chrome's "Trace Event Format" describes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

#include "lmtp/trace/trace.h"

namespace lmtp::trace {

// Owner: the Trace; its writer's thread.
class EventText {
 public:
  explicit EventText(Clock::time_point origin) : origin_(origin) {}

  // Each appends whole events, with a comma in front.
  void add(const Record& record, std::string& out);
  void add_process(int process, std::string_view name, std::string_view thread, std::string& out);
  // A moment of the whole trace, with text or a number.
  void add_moment(const char* name, const char* argument, std::string_view text, std::string& out);
  void add_moment(const char* name, const char* argument, std::int64_t value, std::string& out);

 private:
  void begin(const Record& record, char phase, Clock::time_point at, std::string& out) const;
  void begin_moment(const char* name, std::string& out) const;

  const Clock::time_point origin_;
  // Tracks whose beginning is in the file; others do not end.
  std::unordered_set<std::uint64_t> open_;
};

}  // namespace lmtp::trace
