// Runs CUDA kernels as plain C++, to test their logic where there is no device. Clusters run one
// after another, mostly of one block; their threads are fibers that switch at barriers and warp
// operations.
// device_primitives.cuh beside this defines the device functions that kernels use.
//
// Aborts with one line on stderr where a kernel breaks a rule of kernels/cuda/device/
// device_primitives.cuh: a barrier that not all threads reach, lanes of a warp that meet in
// different operations, memory beyond the shared memory of the launch, addresses that are not
// aligned, a thread that never called grid_dependency_wait().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/device_types.h"

namespace lmtp::cuda_emulation {

using kernels::cuda::Grid;
using kernels::cuda::LaunchShape;

// One until it is set, so that a small grid fills the device and launches choose the kernels of a
// whole model's sizes. Blocks run one after another with any number.
void set_num_multiprocessors(int count);
int num_multiprocessors();

// `seed` decides the order of blocks, of the threads of a block, and whether an asynchronous copy
// happens at once or when it is waited for. 0, the default: everything in the order of its index,
// copies when they are waited for. A kernel's results may not depend on it.
void set_order(unsigned seed);

// Shared memory that a block may have; 99 KiB, the least of all supported devices, until it is set.
inline constexpr std::size_t kLeastSharedBytes = std::size_t{99} << 10;
void set_shared_bytes_max(std::size_t num_bytes);
std::size_t shared_bytes_max();

// Until it is called with false, products of matrices add their inputs from the last to the first:
// a kernel with another order of sums, which tests have to detect.
void set_backward_sums(bool backward);
bool has_backward_sums();

// Whether the device has products of warp groups, and clusters; false until it is set.
void set_wgmma(bool there);
bool has_wgmma();
// How many blocks of a cluster fit; kClusterMax until it is set.
void set_cluster_max(int num_blocks);
int cluster_max();

struct Launch {
  LaunchShape shape;
  std::function<void()> thread;
};

// Between the two, submitted launches are recorded, not run, and nothing else may be put.
void begin_recording();
bool is_recording();
std::vector<Launch> end_recording();

// Runs, records or defers a launch.
void submit(const LaunchShape& shape, std::function<void()> thread);

// Lazy mode: a device's work is deferred until it is waited for. false, the default: it is done
// when the call that enqueues it returns.
void set_lazy(bool lazy);
// Enqueues other work, in order with launches.
void put(std::function<void()> work);
// Operations enqueued so far, and those of them that are done.
std::int64_t num_put();
std::int64_t num_done();
// Does the first `count` of all enqueued operations, where they were deferred.
void catch_up(std::int64_t count);

// Launches since the last call.
int take_num_launches();

// The most atomic operations of one block on one address since the last call. A device does them
// one after another, which no result shows.
int take_atomics_max();

// Bytes that kernels have read by load(): what the sampler reads of a row, but for single ids.
inline thread_local std::int64_t bytes_loaded = 0;

// Runs `thread` once for each thread of the grid. Not from within a kernel. One thread at a time.
void run(const LaunchShape& shape, const std::function<void()>& thread);

// --- for device_primitives.cuh: called by the threads of a kernel --------------------

int thread_index();
int num_threads();
Grid block_index();
Grid grid_size();

void block_barrier();
void group_barrier(int num_threads);
void cluster_barrier();
// What is in another block of the cluster where `at` is in this one's shared memory.
const void* address_in_block(const void* at, int block);

// The operation; all lanes of a warp must call the same one.
enum class Meeting : int { kBarrier, kShuffle, kShuffleXor, kBallot, kMma };

inline constexpr std::size_t kExchangeBytesMax = 48;
inline constexpr std::size_t kExchangeStride = 48;

// Waits for all lanes of the warp; returns what they handed in, lane l's kExchangeStride * l bytes
// from the start. Valid until this thread's next meeting. REQUIRES: num_bytes <= kExchangeBytesMax.
const std::byte* exchange(Meeting meeting, const void* mine, std::size_t num_bytes);

void* shared_memory();
void copy_async(void* to_shared, const void* from, bool wanted);
void commit_copies();
void wait_for_copies(int num_pending);
void grid_dependency_wait();

// Products of warp groups: carried out when they are waited for.
void put_product(std::function<void()> product);
void commit_products();
void wait_for_products(int num_pending);
// Aborts where a product's operand is not what it was.
void check_unchanged(const void* now, const void* before, std::size_t num_bytes);

// Barriers in shared memory, and copies that they count.
void init_barrier(const void* barrier, int arrivals);
void arrive(const void* barrier, int num_bytes);
void wait_for_phase(const void* barrier, int parity);
void bulk_copy(void* to_shared, const void* from, int num_bytes, const void* barrier);

// Aborts unless it is in the block's shared memory.
void check_shared(const void* at);
// Before each atomic operation.
void count_atomic(const void* at);

// Aborts unless `at` is a multiple of `alignment`.
void check_aligned(const void* at, std::size_t alignment);
// Aborts where a sum of fma_pairs() is not exact.
void check_exact(bool exact);

}  // namespace lmtp::cuda_emulation
