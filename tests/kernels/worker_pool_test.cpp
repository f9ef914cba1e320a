#include "kernels/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/device.h"

namespace lmtp {
namespace {

using kernels::WorkerPool;

TEST(WorkerPoolTest, EveryTaskRunsOnceOnAWorkerThatExists) {
  for (const int num_threads : {1, 2, 4}) {
    WorkerPool pool(num_threads);
    for (int round = 0; round < 3000; ++round) {
      const int num_tasks = round % 17;
      std::vector<std::atomic<int>> counts(17);
      pool.parallel_for(num_tasks, [&](int task, int worker) {
        ASSERT_TRUE(worker >= 0 && worker < num_threads);
        counts[static_cast<std::size_t>(task)].fetch_add(1);
      });
      for (int task = 0; task < 17; ++task) {
        ASSERT_EQ(counts[static_cast<std::size_t>(task)].load(), task < num_tasks ? 1 : 0);
      }
    }
  }
}

TEST(WorkerPoolTest, TwoTasksAtATimeNeverShareAWorker) {
  WorkerPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(64, [&](int, int worker) {
      auto& mine = inside[static_cast<std::size_t>(worker)];
      ASSERT_EQ(mine.fetch_add(1), 0);
      mine.fetch_sub(1);
    });
  }
}

TEST(WorkerPoolTest, WorkersThatSleepAreWoken) {
  WorkerPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::microseconds(4 * WorkerPool::kSpinMicroseconds));
    std::atomic<int> count{0};
    pool.parallel_for(100, [&](int, int) { count.fetch_add(1); });
    EXPECT_EQ(count.load(), 100);
  }
}

double processor_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

TEST(WorkerPoolTest, AnIdlePoolUsesNoProcessorTime) {
  WorkerPool pool(4);
  pool.parallel_for(8, [](int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  double least = 1.0;
  for (int i = 0; i < 5 && least >= 0.005; ++i) {  // something else may happen in the process
    const double before = processor_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    least = std::min(least, processor_seconds() - before);
  }
  EXPECT_LT(least, 0.005) << "1 % of the time that has passed";
}

TEST(CudaProbeTest, AMissingDeviceHasAReasonOfOneLine) {
  const kernels::cuda::Probe probe = kernels::cuda::probe();
  EXPECT_NE(probe.available, !probe.reason.empty());
  EXPECT_EQ(probe.reason.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace lmtp
