// DecodeGraphs: captures the work of a decode step as a graph, which later steps of the same shape
// replay by one launch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "kernels/stream.h"
#include "lmtp/agent/agent_options.h"
#include "staged_memory.h"

namespace lmtp::agent {

// The shape that a decode step is padded to: sizes are rounded up, so that few shapes occur.
struct DecodeShape {
  int num_rows = 0;
  std::int32_t context_max = 0;
  std::int32_t num_table_blocks = 0;  // of all rows
  bool chooses = false;               // the step's tokens, too: it has no masks

  auto operator<=>(const DecodeShape&) const = default;
};

// The shape for a step: rows (rows_max of them at most), the longest context in splits of
// attention, and blocks are powers of two; blocks fill a split a row or more, at most the longest
// context in all rows. REQUIRES: 1 <= num_rows <= rows_max <= BatchLimits::kSequencesMax.
DecodeShape decode_shape(int num_rows, int rows_max, std::int32_t context_max,
                         std::int32_t num_table_blocks);

// Graphs take memory of the device: beyond so many shapes the least recently used one is dropped.
inline constexpr int kGraphsMax = 32;

// Owner: an agent; one thread.
class DecodeGraphs {
 public:
  // `stream` must outlive this.
  explicit DecodeGraphs(kernels::Stream& stream) : stream_(stream) {}
  ~DecodeGraphs() { clear(); }
  DecodeGraphs(const DecodeGraphs&) = delete;
  DecodeGraphs& operator=(const DecodeGraphs&) = delete;

  // `work` queues a step of that shape and turn (MappedMemory). It is called the first time,
  // captured the next for each turn, and from then on the graph is launched instead; if it cannot
  // be captured, `work` is called each time, and the log says so once. num_moves: how often memory
  // that `work` uses has moved; if it has grown, all graphs are dropped. Throws what `work` does,
  // and DeviceError if the device is lost.
  void run(const DecodeShape& shape, int turn, std::int64_t num_moves,
           const std::function<void()>& work);

 private:
  struct Entry {
    void* graphs[MappedMemory::kTurns] = {};  // null: not captured yet, or is_eager
    bool is_eager = false;                    // a capture failed
    std::int64_t last_used = 0;
  };

  void clear();
  void release(Entry& entry);
  void drop_oldest();
  void* capture(const std::function<void()>& work);
  bool launch(const DecodeShape& shape, int turn, Entry& entry, const std::function<void()>& work);

  kernels::Stream& stream_;
  std::map<DecodeShape, Entry> graphs_;
  std::int64_t num_moves_ = 0;
  std::int64_t num_runs_ = 0;
};

}  // namespace lmtp::agent
