#include "step_graphs.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "kernels/attention.h"
#include "kernels/device_api.h"
#include "lmtp/base/batch_limits.h"
#include "lmtp/base/check.h"
#include "lmtp/base/log.h"

namespace lmtp::agent {
namespace {

using kernels::DeviceError;

std::int32_t power_of_two(std::int32_t value) {
  return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(value)));
}

std::int32_t power_of_four(std::int32_t value) {
  const std::int32_t power = power_of_two(value);
  return std::countr_zero(static_cast<std::uint32_t>(power)) % 2 == 0 ? power : 2 * power;
}

std::int32_t splits_of(std::int32_t context) {
  return (context + kernels::kAttentionSplit - 1) / kernels::kAttentionSplit;
}

// rows and splits are padded already; num_blocks is rounded up here.
StepShape make_shape(int rows, std::int32_t splits, std::int32_t num_blocks) {
  constexpr int kSplitBlocks = kernels::kAttentionSplit / kBlockSize;
  return {.num_rows = rows,
          .context_max = splits * kernels::kAttentionSplit,
          .num_table_blocks = std::clamp(power_of_two(num_blocks), rows * kSplitBlocks,
                                         rows * splits * kSplitBlocks)};
}

std::string describe(const StepShape& shape) {
  const std::string rows = std::to_string(shape.num_rows);
  return shape.num_tokens == 0
             ? "steps of " + rows + " streams over " + std::to_string(shape.context_max) + " tokens"
             : "steps of " + std::to_string(shape.num_tokens) + " tokens with prompts, of up to " +
                   rows + " streams,";
}

}  // namespace

StepShape decode_shape(int num_rows, int rows_max, std::int32_t context_max,
                       std::int32_t num_table_blocks) {
  LMTP_CHECK(num_rows >= 1 && num_rows <= rows_max && rows_max <= BatchLimits::kSequencesMax,
             num_rows, rows_max);
  const std::int32_t rows = std::min(power_of_two(num_rows), rows_max);
  return make_shape(rows, power_of_two(splits_of(context_max)),
                    num_table_blocks + (rows - num_rows));  // a padding row has one
}

int padded_tokens(int num_tokens) {
  constexpr int kStepMin = 16;
  const int step = std::max(kStepMin, power_of_two(num_tokens) / 4);
  return (num_tokens + step - 1) / step * step;
}

StepShape prompt_shape(const StepShape& sizes, const ShapeLimits& limits) {
  LMTP_CHECK(sizes.num_tokens >= 1 && sizes.num_tokens <= limits.tokens_max &&
                 sizes.num_rows <= limits.rows_max && sizes.num_logits <= limits.rows_max,
             sizes.num_tokens, sizes.num_rows, sizes.num_logits, limits.tokens_max,
             limits.rows_max);
  constexpr int kFewRows = 64;
  constexpr int kFewTokens = 16;
  const int rows =
      sizes.num_rows <= kFewRows ? power_of_four(sizes.num_rows) : power_of_two(sizes.num_rows);
  StepShape shape = make_shape(std::min(rows, limits.rows_max),
                               power_of_four(splits_of(sizes.context_max)), sizes.num_table_blocks);
  shape.num_table_blocks = std::min(
      shape.num_table_blocks, std::max(sizes.num_table_blocks, limits.num_blocks + shape.num_rows));
  shape.num_tokens = std::min(padded_tokens(sizes.num_tokens), limits.tokens_max);
  shape.chunk_max = std::min(std::max(kFewTokens, power_of_two(sizes.chunk_max)), shape.num_tokens);
  if (sizes.num_logits > 0) {
    shape.num_logits =
        std::min(std::max(shape.num_rows, power_of_two(sizes.num_logits)), limits.rows_max);
  }
  return shape;
}

static_assert(kShapesMax > kGraphsMax);

int StepGraphs::Entry::num_graphs() const {
  return static_cast<int>(
      std::ranges::count_if(graphs, [](void* graph) { return graph != nullptr; }));
}

int StepGraphs::num_graphs() const {
  int count = 0;
  for (const auto& [shape, entry] : shapes_) count += entry.num_graphs();
  return count;
}

void StepGraphs::release(Entry& entry) {
  for (void*& graph : entry.graphs) {
    if (graph == nullptr) continue;
    stream_.device_api()->release(kernels::DeviceApi::HandleKind::kGraph,
                                  std::exchange(graph, nullptr));
  }
}

// Graphs that run are freed when they are over (cudaGraphExecDestroy).
StepGraphs::~StepGraphs() {
  for (auto& [shape, entry] : shapes_) release(entry);
}

// Of the shapes that have graphs, or of the others. It is then one that has not been seen.
void StepGraphs::drop_oldest(bool has_graphs) {
  const auto oldest = std::ranges::min_element(shapes_, {}, [&](const auto& at) {
    return std::pair((at.second.num_graphs() > 0) != has_graphs, at.second.last_used);
  });
  release(oldest->second);
  shapes_.erase(oldest);
}

void* StepGraphs::capture(const std::function<void()>& work) {
  const kernels::DeviceApi& device = *stream_.device_api();
  device.begin_capture(stream_.handle());
  try {
    work();
  } catch (...) {
    device.release(kernels::DeviceApi::HandleKind::kGraph, device.end_capture(stream_.handle()));
    throw;
  }
  return device.end_capture(stream_.handle());
}

// Launches the graph, captured first if there is none; false if the capture fails.
bool StepGraphs::launch(const StepShape& shape, int turn, Entry& entry,
                        const std::function<void()>& work) {
  try {
    void*& graph = entry.graphs[turn];
    if (graph == nullptr) {
      if (num_graphs() == kGraphsMax) drop_oldest(true);  // not this one, the newest
      graph = capture(work);
    }
    stream_.device_api()->launch_graph(graph, stream_.handle());
    return true;
  } catch (const DeviceError& error) {
    if (error.kind() == DeviceError::Kind::kSticky || error.kind() == DeviceError::Kind::kGone) {
      throw;
    }
    release(entry);
    entry.is_eager = true;
    if (!std::exchange(has_warned_, true)) {
      log::warning(describe(shape) +
                   " run kernel by kernel, which is slower: no graph of them can be had (" +
                   error.what() + "); there will be no line about others");
    }
    return false;
  }
}

void StepGraphs::run(const StepShape& shape, int turn, std::int64_t num_moves,
                     const std::function<void()>& work) {
  LMTP_CHECK(turn >= 0 && turn < MappedMemory::kTurns, turn);
  const auto [at, is_new] = shapes_.try_emplace(shape);
  Entry& entry = at->second;
  entry.last_used = ++num_runs_;
  if (std::exchange(entry.num_moves, num_moves) != num_moves) {
    release(entry);
    entry.is_eager = false;
  }
  if (shapes_.size() > kShapesMax) drop_oldest(false);
  if (is_new || entry.is_eager || !launch(shape, turn, entry, work)) work();
}

}  // namespace lmtp::agent
