// Where the workers of a pool may run: apart from the pool's other tests, since a container may
// refuse to pin threads, and ctest then lists this one as skipped.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kernels/worker_pool.h"

namespace lmtp {
namespace {

using kernels::WorkerPool;

// The processors that the calling thread may run on; none where the system does not say.
cpu_set_t processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_ZERO(&set);
  return set;
}

// Why a thread cannot be pinned to the first of `all`; empty: it can.
std::string why_not_pinned(const cpu_set_t& all) {
  int first = 0;
  while (first < CPU_SETSIZE && !CPU_ISSET(first, &all)) ++first;
  if (first == CPU_SETSIZE) return "sched_getaffinity names no processor";
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(first, &only);
  std::string why;
  std::thread([&] {
    const int error = pthread_setaffinity_np(pthread_self(), sizeof(only), &only);
    const cpu_set_t now = processors();
    if (error != 0) why = std::string("pthread_setaffinity_np: ") + std::strerror(error);
    if (error == 0 && !CPU_EQUAL(&now, &only)) why = "pthread_setaffinity_np has no effect";
  }).join();
  return why;
}

TEST(WorkerPinningTest, WorkersKeepToProcessorsOfTheirOwnWhereThePoolHasAll) {
  const cpu_set_t all = processors();
  // tests/kernels/CMakeLists.txt looks for these words.
  if (const std::string why = why_not_pinned(all); !why.empty()) {
    GTEST_SKIP() << "threads cannot be pinned here: " << why;
  }
  const int num_processors = CPU_COUNT(&all);
  if (num_processors >= WorkerPool::kMaxThreads) {
    GTEST_SKIP() << "threads cannot be pinned here: more processors than threads of a pool";
  }
  for (const int num_threads : {num_processors, num_processors + 1}) {
    WorkerPool pool(num_threads);
    std::vector<cpu_set_t> seen(static_cast<std::size_t>(num_threads), all);
    // Until every worker has had a task: each waits in its own for the others.
    std::atomic<int> num_inside = 0;
    pool.parallel_for(num_threads, [&](int, int worker) {
      seen[static_cast<std::size_t>(worker)] = processors();
      num_inside.fetch_add(1);
      while (num_inside.load() < num_threads) std::this_thread::yield();
    });
    const bool pinned = num_threads == num_processors;
    cpu_set_t taken;
    CPU_ZERO(&taken);
    for (int worker = 0; worker < num_threads; ++worker) {
      const cpu_set_t& set = seen[static_cast<std::size_t>(worker)];
      if (worker == 0 || !pinned) {
        EXPECT_TRUE(CPU_EQUAL(&set, &all)) << "worker " << worker;
        continue;
      }
      EXPECT_EQ(CPU_COUNT(&set), 1) << "worker " << worker;
      CPU_OR(&taken, &taken, &set);
    }
    EXPECT_EQ(CPU_COUNT(&taken), pinned ? num_threads - 1 : 0);
  }
}

}  // namespace
}  // namespace lmtp
