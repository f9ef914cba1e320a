#include "decode_graphs.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "kernels/attention.h"
#include "kernels/device_api.h"
#include "lmtp/base/check.h"
#include "lmtp/base/log.h"

namespace lmtp::agent {
namespace {

using kernels::DeviceError;

std::int32_t power_of_two(std::int32_t value) {
  return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(value)));
}

}  // namespace

DecodeShape decode_shape(int num_rows, int rows_max, std::int32_t context_max,
                         std::int32_t num_table_blocks) {
  LMTP_CHECK(num_rows >= 1 && num_rows <= rows_max && rows_max <= BatchLimits::kSequencesMax,
             num_rows, rows_max);
  constexpr int kSplitBlocks = kernels::kAttentionSplit / kBlockSize;
  const std::int32_t rows = std::min(power_of_two(num_rows), rows_max);
  const std::int32_t splits =
      power_of_two((context_max + kernels::kAttentionSplit - 1) / kernels::kAttentionSplit);
  const std::int32_t blocks = num_table_blocks + (rows - num_rows);  // a padding row has one
  return {.num_rows = rows,
          .context_max = splits * kernels::kAttentionSplit,
          .num_table_blocks =
              std::clamp(power_of_two(blocks), rows * kSplitBlocks, rows * splits * kSplitBlocks)};
}

void DecodeGraphs::release(Entry& entry) {
  for (void*& graph : entry.graphs) {
    if (graph == nullptr) continue;
    stream_.device_api()->release(kernels::DeviceApi::HandleKind::kGraph,
                                  std::exchange(graph, nullptr));
  }
}

// Those that run are freed when they are over (cudaGraphExecDestroy).
void DecodeGraphs::clear() {
  for (auto& [shape, entry] : graphs_) release(entry);
  graphs_.clear();
}

void DecodeGraphs::drop_oldest() {
  const auto oldest = std::min_element(
      graphs_.begin(), graphs_.end(),
      [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; });
  release(oldest->second);
  graphs_.erase(oldest);
}

void* DecodeGraphs::capture(const std::function<void()>& work) {
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
bool DecodeGraphs::launch(const DecodeShape& shape, int turn, Entry& entry,
                          const std::function<void()>& work) {
  try {
    void*& graph = entry.graphs[turn];
    if (graph == nullptr) graph = capture(work);
    stream_.device_api()->launch_graph(graph, stream_.handle());
    return true;
  } catch (const DeviceError& error) {
    if (error.kind() == DeviceError::Kind::kSticky || error.kind() == DeviceError::Kind::kGone) {
      throw;
    }
    release(entry);
    entry.is_eager = true;
    log::warning("steps of " + std::to_string(shape.num_rows) + " rows over " +
                 std::to_string(shape.context_max) +
                 " tokens run kernel by kernel, which is slower: no graph of them can be had (" +
                 error.what() + ")");
    return false;
  }
}

void DecodeGraphs::run(const DecodeShape& shape, int turn, std::int64_t num_moves,
                       const std::function<void()>& work) {
  if (num_moves != num_moves_) {
    clear();
    num_moves_ = num_moves;
  }
  const auto [at, is_new] = graphs_.try_emplace(shape);
  Entry& entry = at->second;
  entry.last_used = ++num_runs_;
  if (graphs_.size() > kGraphsMax) drop_oldest();
  if (is_new || entry.is_eager || !launch(shape, turn, entry, work)) work();
}

}  // namespace lmtp::agent
