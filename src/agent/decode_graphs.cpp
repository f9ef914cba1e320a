#include "decode_graphs.h"

#include <algorithm>
#include <bit>

#include "kernels/attention.h"
#include "kernels/device_api.h"
#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

std::int32_t power_of_two(std::int32_t value) {
  return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(value)));
}

}  // namespace

DecodeShape decode_shape(int num_rows, int rows_max, std::int32_t context_max,
                         std::int32_t num_table_blocks) {
  LMTP_CHECK(num_rows >= 1 && num_rows <= rows_max && rows_max <= kDecodeRowsMax, num_rows,
             rows_max);
  constexpr int kSplitBlocks = kernels::kAttentionSplit / kBlockSize;
  const std::int32_t rows = std::min(power_of_two(num_rows), rows_max);
  const std::int32_t splits =
      power_of_two((context_max + kernels::kAttentionSplit - 1) / kernels::kAttentionSplit);
  const std::int32_t blocks = num_table_blocks + (rows - num_rows);  // padding has one each
  return {.num_rows = rows,
          .context_max = splits * kernels::kAttentionSplit,
          .num_table_blocks =
              std::clamp(power_of_two(blocks), rows * kSplitBlocks, rows * splits * kSplitBlocks)};
}

void DecodeGraphs::clear() {
  for (const auto& [shape, graph] : graphs_) {
    if (graph != nullptr) {
      stream_.device_api()->release(kernels::DeviceApi::Thing::kGraph, graph);
    }
  }
  graphs_.clear();
}

void* DecodeGraphs::capture(const std::function<void()>& work) {
  const kernels::DeviceApi& device = *stream_.device_api();
  device.begin_capture(stream_.handle());
  try {
    work();
  } catch (...) {
    device.release(kernels::DeviceApi::Thing::kGraph, device.end_capture(stream_.handle()));
    throw;
  }
  return device.end_capture(stream_.handle());
}

void DecodeGraphs::run(const DecodeShape& shape, std::int64_t num_moves,
                       const std::function<void()>& work) {
  if (num_moves != num_moves_) {
    clear();
    num_moves_ = num_moves;
  }
  const auto [entry, is_new] = graphs_.try_emplace(shape, nullptr);
  if (is_new) {
    work();
    return;
  }
  if (entry->second == nullptr) {
    entry->second = capture(work);
  }
  stream_.device_api()->launch_graph(entry->second, stream_.handle());
}

}  // namespace lmtp::agent
