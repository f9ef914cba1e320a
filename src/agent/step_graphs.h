// StepGraphs: captures the work of a step as a graph, which later steps of the same shape replay by
// one launch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "kernels/stream.h"
#include "staged_memory.h"

namespace lmtp::agent {

// The shape that a step is padded to: sizes are rounded up, so that few shapes occur.
struct StepShape {
  int num_rows = 0;  // sequences
  std::int32_t context_max = 0;
  std::int32_t num_table_blocks = 0;  // of all rows
  bool chooses = false;               // the step's tokens, too: a decode step without masks
  // 0: a decode step, one token and one row of logits for each sequence.
  int num_tokens = 0;
  int chunk_max = 0;   // tokens of one sequence
  int num_logits = 0;  // rows

  auto operator<=>(const StepShape&) const = default;
};

// The shape for a step: rows (rows_max of them at most), the longest context in splits of
// attention, and blocks are powers of two; blocks fill a split a row or more, at most the longest
// context in all rows. REQUIRES: 1 <= num_rows <= rows_max <= BatchLimits::kSequencesMax.
StepShape decode_shape(int num_rows, int rows_max, std::int32_t context_max,
                       std::int32_t num_table_blocks);

// Steps with prompts of more tokens run kernel by kernel: their kernels take longer than launches.
inline constexpr int kGraphTokensMax = 256;

// A multiple of 16, of a quarter of the next power of two beyond 64: 8 sizes up to 256.
// REQUIRES: num_tokens >= 1.
int padded_tokens(int num_tokens);

// What shapes may have.
struct ShapeLimits {
  int tokens_max = 0;
  int rows_max = 0;    // of sequences, and of logits
  int num_blocks = 0;  // of the KV cache
};

// The shape for a step with prompts of those sizes, coarser than of decodes, since more sizes vary.
// Tokens are padded by some of no sequence. Of one sequence they are 16, or a power of two: with 16
// pairs of query and head there is no launch of prefill. Rows are padded by sequences without
// tokens, to powers of four, beyond 64 of two; splits of attention to powers of four; blocks to
// powers of two, at most those of the cache and one a row, unless streams share more, so that
// attention does with the memory that is reserved for it. Rows of logits are none, or as many as
// sequences, or more of them a power of two.
// REQUIRES: num_tokens >= 1; the sizes are within the limits.
StepShape prompt_shape(const StepShape& sizes, const ShapeLimits& limits);

// Graphs take memory of the device: beyond so many, all turns counted, those of the shape that was
// used least recently go.
inline constexpr int kGraphsMax = 64 * MappedMemory::kTurns;
// Shapes that have come, many of which never come again: beyond so many the oldest without a graph
// is forgotten.
inline constexpr int kShapesMax = 1024;

// Owner: an agent; one thread at a time.
class StepGraphs {
 public:
  // `stream` must outlive this.
  explicit StepGraphs(kernels::Stream& stream) : stream_(stream) {}
  ~StepGraphs();
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // `work` queues a step of that shape and turn: MappedMemory's, or always 0 if it uses none. It is
  // called the first time, captured the next for each turn, and from then on the graph is launched
  // instead; if it cannot be captured, `work` is called each time, and the log says so once for all
  // shapes. num_moves: how often memory that `work` uses has moved; if it has grown since the shape
  // ran last, its graphs are dropped. Throws what `work` does, and DeviceError if the device is
  // lost. REQUIRES: 0 <= turn < MappedMemory::kTurns.
  void run(const StepShape& shape, int turn, std::int64_t num_moves,
           const std::function<void()>& work);

  // Of all shapes and turns.
  int num_graphs() const;

 private:
  struct Entry {
    void* graphs[MappedMemory::kTurns] = {};  // null: not captured yet, or is_eager
    bool is_eager = false;                    // a capture failed
    std::int64_t last_used = 0;
    std::int64_t num_moves = 0;

    int num_graphs() const;
  };

  void release(Entry& entry);
  void drop_oldest(bool has_graphs);
  void* capture(const std::function<void()>& work);
  bool launch(const StepShape& shape, int turn, Entry& entry, const std::function<void()>& work);

  kernels::Stream& stream_;
  std::map<StepShape, Entry> shapes_;
  std::int64_t num_runs_ = 0;
  bool has_warned_ = false;
};

}  // namespace lmtp::agent
