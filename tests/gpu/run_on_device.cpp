#include "run_on_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "device_under_test.h"
#include "kernels/device.h"
#include "pinned_heap.h"

namespace lmtp::testing {
namespace {

constexpr int kExitSkipped = 77;

int graph_launches = 0;

void count_and_launch(void* graph, void* stream) {
  ++graph_launches;
  kernels::cuda::backend().device->launch_graph(graph, stream);
}

}  // namespace

const kernels::Backend& device_under_test() {
  static const kernels::DeviceApi counting = [] {
    kernels::DeviceApi api = *kernels::cuda::backend().device;
    api.launch_graph = count_and_launch;
    return api;
  }();
  static const kernels::Backend backend = [] {
    kernels::Backend with_counting = kernels::cuda::backend();
    with_counting.device = &counting;
    return with_counting;
  }();
  return backend;
}

int num_multiprocessors() { return kernels::cuda::probe().num_multiprocessors; }

int take_num_graph_launches() { return std::exchange(graph_launches, 0); }

void set_lazy_device(bool) {}

void set_thread_order(unsigned) {}

bool set_shared_bytes_max(std::size_t) { return false; }
bool set_wgmma(bool) { return kernels::cuda::probe().compute_capability == 90; }
bool set_num_multiprocessors(int) { return false; }

bool set_cluster_max(int) { return false; }
int take_atomics_max() { return 0; }
std::int64_t take_bytes_loaded() { return -1; }
int take_num_launches() { return 0; }
int take_num_single_launches() { return -1; }
bool set_backward_sums(bool) { return false; }

int run_on_device(int argc, char** argv, Launches launches) {
  ::testing::InitGoogleMock(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  // Read by the driver when it starts, which probe() makes it do.
  if (launches == Launches::kBlocking) setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  const kernels::cuda::Probe probe = kernels::cuda::probe();
  if (!probe.available) {
    std::printf("NOT RUN, no device: %s\n", probe.reason.c_str());
    return kExitSkipped;
  }
  std::printf("device: %s\n", probe.name.c_str());
  use_pinned_heap();
  const int code = RUN_ALL_TESTS();
  // Without destructors: the driver unpins the heap at exit, and some run behind it.
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace lmtp::testing
