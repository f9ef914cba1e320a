// The only device functions that kernels use. tests/support/cuda_emulation/device_primitives.cuh
// defines the same names in plain C++, so that kernels also run where there is no device. They
// include <device_primitives.cuh>; the include path decides which it is.
//
// Rules that the emulation checks, each with an abort that says what went wrong:
//   - Every thread calls grid_dependency_wait() once, before it reads what an earlier launch wrote
//     or writes what an earlier launch may still read.
//   - Barriers are reached by all threads of the block, warp operations by all 32 lanes of a warp.
//   - Shared memory is as large as the launch says and undefined at first, and 16-byte accesses
//     are aligned. Copies that were not waited for have not happened.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <nv/target>
#include <vector>

#include "kernels/device_types.h"

namespace lmtp::kernels::cuda {

// --- where a thread stands -----------------------------------------------------------

__device__ inline int thread_index() { return static_cast<int>(threadIdx.x); }
__device__ inline int num_threads() { return static_cast<int>(blockDim.x); }
__device__ inline int lane_index() { return thread_index() % kWarpSize; }
// The same in all lanes of a warp, which the shuffle tells the compiler.
__device__ inline int warp_index() {
  return __shfl_sync(0xFFFFFFFFU, thread_index() / kWarpSize, 0);
}
__device__ inline Grid block_index() {
  return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)};
}

__device__ inline Grid grid_size() {
  return {static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z)};
}

// --- threads of a block --------------------------------------------------------------

__device__ inline void block_barrier() { __syncthreads(); }
__device__ inline void warp_barrier() { __syncwarp(); }
// Of the block's first num_threads threads, a multiple of a warp's; one group a kernel.
__device__ inline void group_barrier(int num_threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(num_threads) : "memory");
}

// The value of that lane.
template <typename T>
__device__ inline T shuffle(T value, int lane) {
  return __shfl_sync(0xFFFFFFFFU, value, lane);
}
// The value of lane i of each four lanes in a row.
template <typename T>
__device__ inline T shuffle_of_four(T value, int i) {
  return __shfl_sync(0xFFFFFFFFU, value, i, 4);
}
// The value of the lane whose index differs in the bits of `mask`.
template <typename T>
__device__ inline T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, mask);
}
// Bit i: lane i's condition.
__device__ inline std::uint32_t warp_ballot(bool condition) {
  return __ballot_sync(0xFFFFFFFFU, condition);
}

// --- programmatic dependent launch (sm_90; nothing elsewhere) ------------------------

// Returns when all that earlier launches of the stream wrote is visible. From here on the next
// launch may begin, as soon as all blocks of this one are running, with what it does before its own
// wait. A step of one stream is some two hundred launches of a few microseconds, so kernels load
// what no running launch writes (weights, biases) before the wait, and issue all other loads at
// once behind it: what costs most there is one load that waits for another.
__device__ inline void grid_dependency_wait() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;\n"
                                                "griddepcontrol.wait;" ::
                                                    : "memory");))
}

// --- memory --------------------------------------------------------------------------

// The block's shared memory, 128-byte aligned: LaunchShape::shared_bytes of it.
template <typename T>
__device__ inline T* shared_memory() {
  extern __shared__ __align__(128) uint4 block_shared_memory[];
  return reinterpret_cast<T*>(block_shared_memory);
}

__device__ inline float load(const float* at) { return *at; }
__device__ inline Words4 load(const Words4* at) {
  const uint4 v = *reinterpret_cast<const uint4*>(at);
  return {{v.x, v.y, v.z, v.w}};
}
__device__ inline Floats2 load(const Floats2* at) {
  const float2 v = *reinterpret_cast<const float2*>(at);
  return {{v.x, v.y}};
}
__device__ inline Words2 load(const Words2* at) {
  const uint2 v = *reinterpret_cast<const uint2*>(at);
  return {{v.x, v.y}};
}
__device__ inline Floats4 load(const Floats4* at) {
  const float4 v = *reinterpret_cast<const float4*>(at);
  return {{v.x, v.y, v.z, v.w}};
}
// Zeros where not `wanted` (`at` is not read then), without a branch, so that consecutive loads are
// in flight together. The compiler does not know that memory is read: only for memory that this
// launch does not write, but for elements that the same thread writes from what it has loaded.
__device__ inline Words4 load_where(bool wanted, const Words4* at) {
  Words4 v = {};
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %5, 0;\n"
      " @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "+r"(v.words[0]), "+r"(v.words[1]), "+r"(v.words[2]), "+r"(v.words[3])
      : "l"(at), "r"(static_cast<int>(wanted)));
  return v;
}
__device__ inline Words2 load_where(bool wanted, const Words2* at) {
  Words2 v = {};
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %3, 0;\n"
      " @p ld.global.v2.u32 {%0, %1}, [%2];}"
      : "+r"(v.words[0]), "+r"(v.words[1])
      : "l"(at), "r"(static_cast<int>(wanted)));
  return v;
}
__device__ inline Floats4 load_where(bool wanted, const Floats4* at) {
  Floats4 v = {};
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %5, 0;\n"
      " @p ld.global.v4.f32 {%0, %1, %2, %3}, [%4];}"
      : "+f"(v.values[0]), "+f"(v.values[1]), "+f"(v.values[2]), "+f"(v.values[3])
      : "l"(at), "r"(static_cast<int>(wanted)));
  return v;
}
__device__ inline float load_where(bool wanted, const float* at) {
  float v = 0.0F;
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %2, 0;\n"
      " @p ld.global.f32 %0, [%1];}"
      : "+f"(v)
      : "l"(at), "r"(static_cast<int>(wanted)));
  return v;
}
__device__ inline std::uint32_t load_where(bool wanted, const std::uint32_t* at) {
  std::uint32_t v = 0;
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %2, 0;\n"
      " @p ld.global.u32 %0, [%1];}"
      : "+r"(v)
      : "l"(at), "r"(static_cast<int>(wanted)));
  return v;
}
__device__ inline std::int32_t load_where(bool wanted, const std::int32_t* at) {
  std::int32_t v = 0;
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %2, 0;\n"
      " @p ld.global.s32 %0, [%1];}"
      : "+r"(v)
      : "l"(at), "r"(static_cast<int>(wanted)));
  return v;
}
// load_where() of what is read once: not kept in L1. Without ".nc", since ptxas moves such loads
// behind grid_dependency_wait(), and those before it have to overlap the previous launch.
__device__ inline Words4 load_once_where(bool wanted, const Words4* at) {
  Words4 v = {};
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %5, 0;\n"
      " @p ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "+r"(v.words[0]), "+r"(v.words[1]), "+r"(v.words[2]), "+r"(v.words[3])
      : "l"(at), "r"(static_cast<int>(wanted)));
  return v;
}
__device__ inline void store(Words4* at, const Words4& v) {
  *reinterpret_cast<uint4*>(at) = make_uint4(v.words[0], v.words[1], v.words[2], v.words[3]);
}
__device__ inline void store(Floats4* at, const Floats4& v) {
  *reinterpret_cast<float4*>(at) = make_float4(v.values[0], v.values[1], v.values[2], v.values[3]);
}

// Copies 16 bytes of global memory to shared memory, or zeros where not `wanted` (`from` is not
// read then, but has to be an address); done when this thread has waited for its group.
__device__ inline void copy_async(Words4* to_shared, const Words4* from, bool wanted) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(to_shared));
  const int num_bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(num_bytes)
               : "memory");
}
// What was copied since the last call is one group.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Returns when all but this thread's latest kPending groups are done. Other threads see the copies
// after a barrier.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Counts from 0 to `last`, and then from 0 again; returns the old value. It tells other blocks of
// the launch what this block wrote: barrier, then one thread's count. A thread that counts after it
// sees that, and after another barrier its block does, by load_fresh_where().
__device__ inline std::uint32_t atomic_count(std::uint32_t* at, std::uint32_t last) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(at), "r"(last)
               : "memory");
  return before;
}
// As load_where(), of what other blocks of this launch wrote: not from L1, which may be older.
__device__ inline Floats4 load_fresh_where(bool wanted, const Floats4* at) {
  Floats4 v = {};
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %5, 0;\n"
      " @p ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];}"
      : "+f"(v.values[0]), "+f"(v.values[1]), "+f"(v.values[2]), "+f"(v.values[3])
      : "l"(at), "r"(static_cast<int>(wanted)));
  return v;
}
__device__ inline float load_fresh_where(bool wanted, const float* at) {
  float v = 0.0F;
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %2, 0;\n"
      " @p ld.relaxed.gpu.global.f32 %0, [%1];}"
      : "+f"(v)
      : "l"(at), "r"(static_cast<int>(wanted)));
  return v;
}
// Adds, and returns the old value. Of 32 bits: in shared memory wider ones are a loop that tries
// until no other thread comes between.
__device__ inline int atomic_add(int* at, int value) { return atomicAdd(at, value); }
__device__ inline std::uint32_t atomic_add(std::uint32_t* at, std::uint32_t value) {
  return atomicAdd(at, value);
}

// --- numbers -------------------------------------------------------------------------

// Two elements as a word, `low` in the lower half; to nearest, ties to even.
template <typename T>
__device__ std::uint32_t round_pair(float low, float high);
template <>
__device__ inline std::uint32_t round_pair<BF16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ inline std::uint32_t round_pair<F16>(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// The lower or the upper half of a word, twice.
__device__ inline std::uint32_t lower_twice(std::uint32_t pair) {
  return __byte_perm(pair, 0, 0x1010);
}
__device__ inline std::uint32_t upper_twice(std::uint32_t pair) {
  return __byte_perm(pair, 0, 0x3232);
}

// (bits & mask) | set, as one instruction where both are constants, which the compiler makes two
// of.
__device__ inline std::uint32_t mask_and_set(std::uint32_t bits, std::uint32_t mask,
                                             std::uint32_t set) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(bits), "r"(mask), "r"(set));
  return result;
}

// a * b + c of two pairs, rounded once; subnormal numbers are numbers. On the emulation a sum that
// f32 does not hold is an error.
template <typename T>
__device__ std::uint32_t fma_pairs(std::uint32_t a, std::uint32_t b, std::uint32_t c);
template <>
__device__ inline std::uint32_t fma_pairs<BF16>(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sums;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(b), "r"(c));
  return sums;
}
template <>
__device__ inline std::uint32_t fma_pairs<F16>(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sums;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(b), "r"(c));
  return sums;
}

// One element of type T as f32.
template <typename T>
__device__ float widen(std::uint16_t bits);
template <>
__device__ inline float widen<BF16>(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}
template <>
__device__ inline float widen<F16>(std::uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}

// 2^x, relative error 2^-22; 0 below 2^-126. exp2_fast(0) is 1, of -infinity 0.
__device__ inline float exp2_fast(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// x / y without a branch, 2 units in the last place; 0 where y is greater than 2^126.
__device__ inline float divide_fast(float x, float y) { return __fdividef(x, y); }

// c[16][8] += a[16][16] b[16][8], sums in f32. What a lane holds, with g = lane / 4, t = lane % 4,
// and pairs as round_pair makes them (PTX ISA, "Matrix fragments for mma.m16n8k16"):
//   a[0]  row g, columns 2t, 2t+1      a[1]  row g+8, the same
//   a[2]  row g, columns 2t+8, 2t+9    a[3]  row g+8, the same
//   b[0]  rows 2t, 2t+1 of column g    b[1]  rows 2t+8, 2t+9
//   c[0], c[1]  row g, columns 2t, 2t+1    c[2], c[3]  row g+8
// A column of c depends on that column of b alone, a row of c on that row of a.
template <typename T>
__device__ void mma_m16n8k16(float (&c)[4], const Words4& a, std::uint32_t b0, std::uint32_t b1);
template <>
__device__ inline void mma_m16n8k16<BF16>(float (&c)[4], const Words4& a, std::uint32_t b0,
                                          std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void mma_m16n8k16<F16>(float (&c)[4], const Words4& a, std::uint32_t b0,
                                         std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
}

// c[16][8] += a[16][32] b[32][8] of signed bytes, exactly in 32 bits. Of a lane's words the lowest
// byte is the first (PTX ISA, "Matrix fragments for mma.m16n8k32"):
//   a[0]  row g, columns 4t to 4t+3      a[1]  row g+8, the same
//   a[2]  row g, columns 4t+16 to 4t+19  a[3]  row g+8, the same
//   b0    rows 4t to 4t+3 of column g    b1    rows 4t+16 to 4t+19
//   c     as of mma_m16n8k16
__device__ inline void mma_m16n8k32(std::int32_t (&c)[4], const Words4& a, std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
}

// --- host ----------------------------------------------------------------------------

// Throws DeviceError where a call of the CUDA runtime failed (device_api.cu).
void check_cuda(cudaError_t status, const char* what);

// Multiprocessors of the calling thread's device. Any thread.
inline int num_multiprocessors() {
  thread_local int known_device = -1;
  thread_local int count = 0;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  if (device != known_device) {
    check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
    known_device = device;
  }
  return count;
}

// Whether this thread's device has what <warp_groups.cuh> needs (device_api.cu).
bool has_wgmma();

// Shared memory that a block may have on this thread's device. Throws DeviceError.
std::size_t shared_bytes_max();

// Changes with each reset of a device, which loses the attributes set on it (device_api.cu). Any
// thread.
int device_generation();

// How many clusters of a size run at a time whose blocks take so much shared memory.
struct ClusterCount {
  int blocks = 0;
  std::size_t shared_bytes = 0;
  int count = 0;
};

// What the calling thread's device needs to know of a kernel before its first launch, and allows.
struct KernelAttributes {
  int device = -1;
  int generation = 0;
  bool has_dependent_launch = false;
  std::vector<ClusterCount> clusters = {};  // that were asked about
};

// Sets them where they are not yet. Throws DeviceError.
template <auto kKernel>
KernelAttributes& attributes_of() {
  thread_local KernelAttributes known;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const int generation = device_generation();
  if (known.device == device && known.generation == generation) return known;
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "cudaDeviceGetAttribute");
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kKernel), "cudaFuncGetAttributes");
  check_cuda(
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes_max() - attributes.sharedSizeBytes)),
      "cudaFuncSetAttribute");
  // The same division between shared memory and L1 for all, as far as they fit: a kernel that needs
  // another waits until nothing else runs on a multiprocessor, which launches that overlap put off.
  // Steps of Llama-3-8B's shape take 4 to 8 % less on an H200 (docs/benchmarks/gpu.md).
  constexpr int kSharedPercent = 65;
  check_cuda(
      cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout, kSharedPercent),
      "cudaFuncSetAttribute");
  // Kernels that are compiled for older devices do not wait (grid_dependency_wait()).
  constexpr int kWaits = 90;
  known = {.device = device,
           .generation = generation,
           .has_dependent_launch = major >= 9 && attributes.ptxVersion >= kWaits};
  return known;
}

// A launch's configuration, and the attributes that it points to.
struct LaunchConfig {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};

  LaunchConfig(const LaunchShape& shape, StreamHandle stream, bool has_dependent_launch) {
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = shape.overlaps ? 1 : 0;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {1, 1, static_cast<unsigned>(shape.cluster)};
    config.gridDim = dim3(static_cast<unsigned>(shape.grid.x), static_cast<unsigned>(shape.grid.y),
                          static_cast<unsigned>(shape.grid.z));
    config.blockDim = dim3(static_cast<unsigned>(shape.num_threads));
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = attributes;
    config.numAttrs = !has_dependent_launch ? 0 : shape.cluster > 1 ? 2 : 1;
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;
};

// How many of the kernel's clusters of that shape the device runs at a time; 0: none fits. Its
// multiprocessors work together in parts, whose sizes differ, so that large clusters leave some
// without work. REQUIRES: shape.cluster <= kClusterMax. Throws DeviceError.
template <auto kKernel>
int clusters_at_once(const LaunchShape& shape) {
  constexpr int kPortable = 8;
  KernelAttributes& attributes = attributes_of<kKernel>();
  for (const ClusterCount& known : attributes.clusters) {
    if (known.blocks == shape.cluster && known.shared_bytes == shape.shared_bytes) {
      return known.count;
    }
  }
  if (shape.cluster > kPortable) {
    check_cuda(cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
               "cudaFuncSetAttribute");
  }
  const LaunchConfig config(shape, nullptr, attributes.has_dependent_launch);
  int count = 0;
  const cudaError_t status = cudaOccupancyMaxActiveClusters(&count, kKernel, &config.config);
  if (status == cudaErrorInvalidClusterSize || status == cudaErrorInvalidConfiguration) {
    (void)cudaGetLastError();
    count = 0;
  } else {
    check_cuda(status, "cudaOccupancyMaxActiveClusters");
  }
  attributes.clusters.push_back({shape.cluster, shape.shared_bytes, count});
  return count;
}

// Puts kKernel(args...) into the stream, to begin as LaunchShape::overlaps says: kernels call
// grid_dependency_wait(). REQUIRES: clusters_at_once() > 0. Throws DeviceError.
template <auto kKernel, typename... Args>
void launch(const LaunchShape& shape, StreamHandle stream, const Args&... args) {
  const LaunchConfig config(shape, stream, attributes_of<kKernel>().has_dependent_launch);
  check_cuda(cudaLaunchKernelEx(&config.config, kKernel, args...), "launch");
}

}  // namespace lmtp::kernels::cuda
