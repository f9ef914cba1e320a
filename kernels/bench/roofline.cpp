// roofline THREADS MEGABYTES
//
// What this machine allows, as one JSON object: the bytes a second that THREADS threads read from
// memory together, and their float32 operations a second in multiply-add loops that touch no
// memory. tools/bench cpu compiles it for the processor at hand, without the project's libraries
// (hence printf), and says how wide a vector is.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "multiply_add.h"
#include "read_memory.h"

namespace {

using lmtp::bench::read_vectors;

using Vector = float __attribute__((vector_size(LMTP_VECTOR_BYTES)));

constexpr int kNumPasses = 5;
constexpr std::int64_t kFmaSteps = 20'000'000;
constexpr std::int64_t kFloatsInVector = sizeof(Vector) / sizeof(float);

void pin_to_core(int thread) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && seen++ == thread) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    }
  }
}

// The median time of kNumPasses runs of work(thread) on all threads at once.
double time_of(int num_threads, const std::function<void(int)>& work) {
  using Clock = std::chrono::steady_clock;
  std::barrier<> line(num_threads);
  std::vector<double> seconds;
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      pin_to_core(t);
      work(t);
      for (int pass = 0; pass < kNumPasses; ++pass) {
        line.arrive_and_wait();
        const auto start = Clock::now();
        work(t);
        line.arrive_and_wait();
        if (t == 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::nth_element(seconds.begin(), seconds.begin() + kNumPasses / 2, seconds.end());
  return seconds[kNumPasses / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int num_threads = argc == 3 ? std::atoi(argv[1]) : 0;
  if (num_threads < 1) {
    std::fprintf(stderr, "usage: roofline THREADS MEGABYTES\n");
    return 1;
  }
  const std::int64_t part = (std::atoll(argv[2]) << 20) / num_threads / 4096 * 1024;  // floats
  const lmtp::bench::Floats floats(part * num_threads);
  if (floats.data() == nullptr) {
    std::fprintf(stderr, "roofline: %s MB of memory cannot be had\n", argv[2]);
    return 1;
  }
  double best = 1e9;
  for (auto* read : {read_vectors<Vector, 1>, read_vectors<Vector, 2>, read_vectors<Vector, 4>,
                     read_vectors<Vector, 8>}) {
    best = std::min(best, time_of(num_threads, [&](int t) {
                      read(floats.data() + t * part, part / kFloatsInVector);
                    }));
  }
  const double fma_s =
      time_of(num_threads, [](int) { lmtp::bench::multiply_add<Vector>(kFmaSteps); });
  const double flops =
      2.0 * lmtp::bench::kNumChains * static_cast<double>(kFloatsInVector * kFmaSteps);
  std::printf("{\"read_bytes_per_s\": %.6g, \"f32_flops_per_s\": %.6g}\n",
              static_cast<double>(part * num_threads) * sizeof(float) / best,
              flops * num_threads / fma_s);
  return 0;
}
