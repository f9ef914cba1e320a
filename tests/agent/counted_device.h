// The device under test with counts of what an agent asks it for, and with refusals.
#pragma once

#include <algorithm>
#include <ostream>
#include <utility>

#include "device_under_test.h"
#include "kernels/device_api.h"

namespace lmtp::testing {

struct DeviceCalls {
  int graphs = 0;
  int launches = 0;  // of a kernel by itself; 0 on a real device
  int copies = 0;
  int events = 0;

  bool operator==(const DeviceCalls&) const = default;
};

inline std::ostream& operator<<(std::ostream& to, const DeviceCalls& calls) {
  return to << calls.graphs << " graphs, " << calls.launches << " launches, " << calls.copies
            << " copies, " << calls.events << " events";
}

struct DeviceCounts {
  DeviceCalls calls;
  int captures = 0;
  int refused = 0;  // each so many-th capture, and launch of a graph, fails; 0: none
  kernels::DeviceError::Kind refusal = kernels::DeviceError::Kind::kFailed;

  void refuse_if(int count) const {
    if (refused > 0 && count % refused == 0) throw kernels::DeviceError(refusal, "refused");
  }
};
inline DeviceCounts device_counts;

inline const kernels::Backend& counted_device() {
  using kernels::DeviceApi;
  static const DeviceApi& device = *device_under_test().device;
  static DeviceApi api;
  static kernels::Backend backend;
  api = device;
  api.copy_to_device = [](void* stream, void* to, const void* from, std::size_t num_bytes) {
    ++device_counts.calls.copies;
    device.copy_to_device(stream, to, from, num_bytes);
  };
  api.copy_to_host = [](void* stream, void* to, const void* from, std::size_t num_bytes) {
    ++device_counts.calls.copies;
    device.copy_to_host(stream, to, from, num_bytes);
  };
  api.record = [](void* event, void* stream) {
    ++device_counts.calls.events;
    device.record(event, stream);
  };
  api.end_capture = [](void* stream) {
    void* graph = device.end_capture(stream);
    try {
      device_counts.refuse_if(++device_counts.captures);
    } catch (const kernels::DeviceError&) {
      device.release(DeviceApi::HandleKind::kGraph, graph);
      throw;
    }
    return graph;
  };
  api.launch_graph = [](void* graph, void* stream) {
    device_counts.refuse_if(++device_counts.calls.graphs);
    device.launch_graph(graph, stream);
  };
  backend = device_under_test();
  backend.device = &api;
  return backend;
}

// Since the last call.
inline DeviceCalls take_calls() {
  device_counts.calls.launches = std::max(0, take_num_single_launches());
  return std::exchange(device_counts.calls, {});
}
inline int take_captures() { return std::exchange(device_counts.captures, 0); }

}  // namespace lmtp::testing
