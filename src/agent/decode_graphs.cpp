#include "decode_graphs.h"

#include <bit>

#include "kernels/attention.h"
#include "kernels/device_api.h"
#include "lmtp/base/check.h"

namespace lmtp::agent {

DecodeShape decode_shape(int num_rows, std::int32_t context_max) {
  LMTP_CHECK(num_rows >= 1 && num_rows <= kDecodeRowsMax, num_rows);
  const auto splits = static_cast<std::uint32_t>((context_max + kernels::kAttentionSplit - 1) /
                                                 kernels::kAttentionSplit);
  return {
      .num_rows = static_cast<int>(std::bit_ceil(static_cast<std::uint32_t>(num_rows))),
      .context_max = static_cast<std::int32_t>(std::bit_ceil(splits)) * kernels::kAttentionSplit};
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
