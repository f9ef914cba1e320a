// Graphs of a device: a step that puts the same work into the stream again does it by one launch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "kernels/stream.h"
#include "lmtp/agent/agent_options.h"

namespace lmtp::agent {

// What a decode step is computed as: all of it is rounded up, so that few kinds of step come again
// and again.
struct DecodeShape {
  int num_rows = 0;
  std::int32_t context_max = 0;
  std::int32_t num_table_blocks = 0;  // of all rows

  auto operator<=>(const DecodeShape&) const = default;
};

// The shape for a step: rows (rows_max of them at most), the longest context in splits of
// attention, and blocks are powers of two; blocks fill a split a row or more, at most the longest
// context in all rows. REQUIRES: 1 <= num_rows <= rows_max <= BatchLimits::kSequencesMax.
DecodeShape decode_shape(int num_rows, int rows_max, std::int32_t context_max,
                         std::int32_t num_table_blocks);

// Graphs take memory of the device: beyond so many the one that was used least recently goes.
inline constexpr int kGraphsMax = 32;

// Owner: an agent; one thread.
class DecodeGraphs {
 public:
  // `stream` must outlive this.
  explicit DecodeGraphs(kernels::Stream& stream) : stream_(stream) {}
  ~DecodeGraphs() { clear(); }
  DecodeGraphs(const DecodeGraphs&) = delete;
  DecodeGraphs& operator=(const DecodeGraphs&) = delete;

  // `work` puts a step of that shape into the stream. It is called the first time, captured the
  // second, and from then on the graph runs in its place; where no graph can be had of it, `work`
  // is called each time, and the log says so once. `num_moves`: where it has grown, memory that
  // `work` uses lies elsewhere and what was captured is thrown away. Throws what `work` does, and
  // DeviceError where the device is lost.
  void run(const DecodeShape& shape, std::int64_t num_moves, const std::function<void()>& work);

 private:
  struct Entry {
    void* graph = nullptr;  // null: has run once, or can't be had
    bool is_eager = false;
    std::int64_t last_used = 0;
  };

  void clear();
  void release(const Entry& entry);
  void drop_oldest();
  void* capture(const std::function<void()>& work);
  bool launch(const DecodeShape& shape, Entry& entry, const std::function<void()>& work);

  kernels::Stream& stream_;
  std::map<DecodeShape, Entry> graphs_;
  std::int64_t num_moves_ = 0;
  std::int64_t num_runs_ = 0;
};

}  // namespace lmtp::agent
