#include "kernels/worker_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "eventually.h"
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

using ThreadStates = std::map<std::string, std::string>;

// Of this process's threads, by their ids: "State: S (sleeping)" and the like, and how often each
// has been woken or has lost its processor.
ThreadStates thread_states() {
  ThreadStates states;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "status");
    std::string& state = states[entry.path().filename()];
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("State:") || line.find("ctxt_switches:") != std::string::npos) {
        state += line + "\n";
      }
    }
  }
  return states;
}

// A thread that sleeps and has not been woken meanwhile has used none.
TEST(WorkerPoolTest, AnIdlePoolUsesNoProcessorTime) {
  const ThreadStates others = thread_states();
  WorkerPool pool(4);
  pool.parallel_for(8, [](int, int) {});
  const auto of_workers = [&] {
    ThreadStates states = thread_states();
    std::erase_if(states, [&](const auto& entry) { return others.contains(entry.first); });
    return states;
  };
  EXPECT_TRUE(testing::eventually([&] {
    const ThreadStates before = of_workers();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto sleeps = [](const auto& entry) {
      return entry.second.find("(sleeping)") != std::string::npos;
    };
    return before.size() == 3 && std::ranges::all_of(before, sleeps) && of_workers() == before;
  }));
}

TEST(CudaProbeTest, AMissingDeviceHasAReasonOfOneLine) {
  const kernels::cuda::Probe probe = kernels::cuda::probe();
  EXPECT_NE(probe.available, !probe.reason.empty());
  EXPECT_EQ(probe.reason.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace lmtp
