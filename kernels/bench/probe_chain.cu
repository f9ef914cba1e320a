// What a device hides of a chain of launches that each read weights and what the launch before
// wrote, as the linear layers of a decode step.
#include <cuda/device/device_primitives.cuh>

#include <cstddef>
#include <cstdint>

#include "bench/measure.h"
#include "bench/probe_device.h"
#include "kernels/memory.h"

namespace lmtp::bench {
namespace {

using kernels::Memory;
using kernels::Stream;
using kernels::cuda::Words4;

constexpr int kThreads = 256;
constexpr int kLoads = 8;  // of a thread, all before the wait
constexpr int kBlocks = 192;
constexpr int kLinks = 60;
constexpr std::size_t kLinkBytes = std::size_t{kBlocks} * kThreads * kLoads * sizeof(Words4);

// Each of the x of a block is read by one thread, y written by one warp. Four blocks fit a
// multiprocessor, so that those of two launches do.
__global__ void __launch_bounds__(kThreads, 4)
    link_kernel(const Words4* weights, const float* x, float* y) {
  using namespace kernels::cuda;
  const Words4* mine = weights + block_index().x * kThreads * kLoads + thread_index();
  Words4 loaded[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    loaded[i] = load_once_where(weights != nullptr, mine + i * kThreads);
  }
  grid_dependency_wait();
  float sum = x[thread_index()];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) sum += static_cast<float>(loaded[i].words[i % 4] >> 31);
  auto* sums = shared_memory<float>();
  sums[thread_index()] = sum;
  block_barrier();
  if (thread_index() < kWarpSize) {
    for (int i = 1; i < kThreads / kWarpSize; ++i) sum += sums[thread_index() + i * kWarpSize];
    y[(block_index().x * kWarpSize + thread_index()) % kThreads] = sum;
  }
}

// How a kernel reads ahead for the one behind it.
enum class Ahead { kNot, kLoad, kPrefetch, kBulkPrefetch };

__global__ void read_kernel(const Words4* data, std::int64_t count, Ahead how, unsigned* kept) {
  using namespace kernels::cuda;
  grid_dependency_wait();
  const std::int64_t all = std::int64_t{grid_size().x} * kThreads;
  const std::int64_t first = std::int64_t{block_index().x} * kThreads + thread_index();
  constexpr int kLine = 128 / sizeof(Words4);
  constexpr int kBulk = 2048 / sizeof(Words4);
  if (how == Ahead::kPrefetch) {
    for (std::int64_t i = first * kLine; i < count; i += all * kLine) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(data + i));
    }
  } else if (how == Ahead::kBulkPrefetch) {
    for (std::int64_t i = first * kBulk; i + kBulk <= count; i += all * kBulk) {
      NV_IF_TARGET(NV_PROVIDES_SM_90,
                   (asm volatile("cp.async.bulk.prefetch.L2.global [%0], 2048;" ::"l"(data + i)
                                 : "memory");))
    }
  } else {
    std::uint32_t any = 0;
    for (std::int64_t i = first; i < count; i += 4 * all) {
      Words4 loaded[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        loaded[k] = load_once_where(i + k * all < count, data + i + k * all);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) any |= loaded[k].words[0] & loaded[k].words[3];
    }
    if (any == 0xFFFFFFFFU) *kept = any;
  }
}

__global__ void pause_kernel(std::uint64_t ns) {
  using namespace kernels::cuda;
  grid_dependency_wait();
  std::uint64_t begin = 0;
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < ns);
}

// Microseconds of a link whose weights are so many links' in turn; 0: none.
double link_us(Stream& stream, const Memory& weights, int num_weights) {
  const Memory x = Memory::allocate(stream.backend(), 2 * kThreads * sizeof(float));
  stream.set_zero(x.data(), x.num_bytes());
  const auto* first = static_cast<const std::byte*>(weights.data());
  return 1e6 * seconds_of_op(stream, kLinks, [&](int i) {
           const void* mine = num_weights > 0
                                  ? first + kLinkBytes * static_cast<std::size_t>(i % num_weights)
                                  : nullptr;
           kernels::cuda::launch<link_kernel>({.grid = {kBlocks},
                                               .num_threads = kThreads,
                                               .shared_bytes = kThreads * sizeof(float)},
                                              stream.handle(), static_cast<const Words4*>(mine),
                                              x.floats() + i % 2 * kThreads,
                                              x.floats() + (i + 1) % 2 * kThreads);
         });
}

// Microseconds that reading a part of the weights takes, 10 us behind what has read ahead.
double read_us(Stream& stream, const Memory& weights, Ahead how) {
  constexpr std::size_t kPartBytes = std::size_t{24} << 20;
  constexpr int kParts = 8;
  constexpr std::int64_t kCount = kPartBytes / sizeof(Words4);
  const Memory kept = Memory::allocate(stream.backend(), sizeof(unsigned));
  const int blocks = kernels::cuda::num_multiprocessors();
  const auto run = [&](bool reads) {
    return 1e6 * seconds_of_op(stream, kParts, [&](int i) {
             const auto* part =
                 reinterpret_cast<const Words4*>(static_cast<const std::byte*>(weights.data()) +
                                                 kPartBytes * static_cast<std::size_t>(i));
             const auto read = [&](int each, Ahead by) {
               kernels::cuda::launch<read_kernel>(
                   {.grid = {each * blocks}, .num_threads = kThreads}, stream.handle(), part,
                   kCount, by, static_cast<unsigned*>(kept.data()));
             };
             if (how != Ahead::kNot) read(1, how);
             kernels::cuda::launch<pause_kernel>({.grid = {1}}, stream.handle(),
                                                 std::uint64_t{10'000});
             if (reads) read(4, Ahead::kLoad);
           });
  };
  return run(true) - run(false);
}

}  // namespace

void probe_chain(Stream& stream, const ProbeFigure& say) {
  const Memory weights = random_memory(stream, kLinks * kLinkBytes);
  say("a launch of a chain", link_us(stream, weights, 0), "us");
  say("that loads 6.3 MB from L2 before its wait", link_us(stream, weights, 3), "us");
  say("that loads 6.3 MB from memory before its wait", link_us(stream, weights, kLinks), "us");
  say("reading 24 MiB", read_us(stream, weights, Ahead::kNot), "us");
  say("reading 24 MiB that were read before", read_us(stream, weights, Ahead::kLoad), "us");
  say("behind prefetch.global.L2", read_us(stream, weights, Ahead::kPrefetch), "us");
  say("behind cp.async.bulk.prefetch.L2", read_us(stream, weights, Ahead::kBulkPrefetch), "us");
}

}  // namespace lmtp::bench
