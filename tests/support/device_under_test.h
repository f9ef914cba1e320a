// The device for tests of CUDA code: the emulation (lmtp_cuda_emulated), or a real one (tests/gpu).
// The test's linkage selects it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/device_api.h"

namespace lmtp::testing {

const kernels::Backend& device_under_test();

int num_multiprocessors();

// Graphs launched since the last call.
int take_num_graph_launches();

// On the emulation cuda_emulation::set_lazy, which reveals memory that the host reads, changes or
// frees before it has waited. No effect on a real device, which is asynchronous anyway.
void set_lazy_device(bool lazy);

// On the emulation cuda_emulation::set_order: the order in which a kernel's blocks and threads run.
// No effect on a real device.
void set_thread_order(unsigned seed);

// On the emulation cuda_emulation::set_shared_bytes_max; false: not on the emulation.
bool set_shared_bytes_max(std::size_t num_bytes);

// On the emulation: whether the device has products of warp groups and 227 KiB of shared memory, as
// Hopper's. False: there are none.
bool set_wgmma(bool there);

// On the emulation cuda_emulation::set_num_multiprocessors; false: not on the emulation.
bool set_num_multiprocessors(int count);

// On the emulation cuda_emulation::set_cluster_max; false: not on the emulation.
bool set_cluster_max(int num_blocks);

// On the emulation cuda_emulation::take_atomics_max; 0 on a real device.
int take_atomics_max();

// On the emulation cuda_emulation::bytes_loaded since the last call; negative on a real device.
std::int64_t take_bytes_loaded();

// On the emulation cuda_emulation::take_num_launches; 0 on a real device.
int take_num_launches();

// On the emulation: launches since the last call that were not part of a graph; negative on a real
// device.
int take_num_single_launches();

// On the emulation cuda_emulation::set_backward_sums; false: not on the emulation.
bool set_backward_sums(bool backward);

// Synchronous copies from and to device memory.
inline void copy(void (*by)(void*, void*, const void*, std::size_t), void* to, const void* from,
                 std::size_t num_bytes) {
  const kernels::DeviceApi& device = *device_under_test().device;
  void* stream = device.create_stream();
  by(stream, to, from, num_bytes);
  device.synchronize(stream);
  device.release(kernels::DeviceApi::HandleKind::kStream, stream);
}
inline void copy_to_device(void* to, const void* from, std::size_t num_bytes) {
  copy(device_under_test().device->copy_to_device, to, from, num_bytes);
}
inline void copy_to_host(void* to, const void* from, std::size_t num_bytes) {
  copy(device_under_test().device->copy_to_host, to, from, num_bytes);
}

}  // namespace lmtp::testing
