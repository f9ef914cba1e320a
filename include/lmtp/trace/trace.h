// Trace: what the server does, in a file that Perfetto and chrome://tracing open (docs/tracing.md).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::trace {

using Clock = std::chrono::steady_clock;

// One event of the file, or the two ends of one. A value without owned memory; all texts are
// literals, or live as long as the process.
struct Record {
  enum class Kind : std::uint8_t {
    kSlice,  // of a process's one thread: [begin, end]
    kOpen,   // of a track: what it is of begins
    kSpan,   // of a track: [begin, end]
    kMark,   // of a track: the moment `begin`
    kClose,  // of a track: what it is of ends, at `begin`
  };
  struct Number {
    const char* name = nullptr;
    std::int64_t value = 0;
  };
  static constexpr std::size_t kNumbersMax = 14;

  Kind kind = Kind::kSlice;
  std::uint8_t num_numbers = 0;
  int process = 0;            // Trace::add_process
  std::uint64_t track = 0;    // of `category`; unused by a slice
  const char* category = "";  // "request", "connection"
  const char* name = "";      // of kOpen and kClose it is the same
  Clock::time_point begin = {};
  Clock::time_point end = {};  // of kSlice and kSpan, not before `begin`
  const char* text_name = "";  // with `text` one argument more; empty: none
  std::string_view text = {};
  std::array<Number, kNumbersMax> numbers{};

  // REQUIRES: fewer than kNumbersMax have been added.
  Record& with(const char* number, std::int64_t value) {
    numbers[num_numbers++] = {number, value};
    return *this;
  }
};

// Of TraceOptions::max_bytes.
inline constexpr std::int64_t kTraceBytesMin = std::int64_t{64} << 10;

struct TraceOptions {
  std::string path;                                   // created, or emptied
  std::int64_t max_bytes = std::int64_t{1} << 28;     // tracing ends there
  std::size_t num_queued_max = std::size_t{1} << 14;  // records; more are dropped
};

// Records wait in a queue of fixed size for a thread of the trace's own, which makes text of them
// and writes it. The file is an array of JSON: what a process that was killed leaves lacks its end,
// which both programs accept. Where it cannot be written any more, or is as long as it may be, a
// line of the log says so, and is_on() is false from then on.
// Owner: shared by all who record; they go before main() ends. Any thread.
class Trace {
 public:
  // An error where the file cannot be made or its first bytes be written.
  static Result<std::shared_ptr<Trace>> open(TraceOptions options);
  // Writes what is queued, and the array's end.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // False: nothing is taken any more, what was is written; but at a server's end the log says why.
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

  // The number of a group of tracks, shown under this name. Its one thread is called `thread`.
  int add_process(std::string_view name, std::string_view thread);
  // That of the server itself.
  static constexpr int kServerProcess = 1;
  // The number of a new track, of any category.
  std::uint64_t next_track() { return next_track_.fetch_add(1, std::memory_order_relaxed); }

  // Takes no memory, and waits for no disk. What finds no place is dropped and counted, in the
  // trace and in the log.
  void add(std::span<const Record> records);
  void add_dropped(std::size_t count);

 private:
  class Writer;

  Trace();

  std::atomic<bool> is_on_ = true;
  std::atomic<std::uint64_t> next_track_ = 1;
  std::atomic<int> next_process_ = kServerProcess + 1;
  std::unique_ptr<Writer> writer_;
};

}  // namespace lmtp::trace
