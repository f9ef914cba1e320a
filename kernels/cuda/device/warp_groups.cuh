// The device functions of warp groups, four warps that multiply together, and of clusters, blocks
// that run together: of 9.0 alone, and of files that are compiled for sm_90a alone. has_wgmma()
// says whether the calling thread's device has them. As device_primitives.cuh, which this belongs
// to, there is one for the emulation.
#pragma once

#include <device_primitives.cuh>

namespace lmtp::kernels::cuda {

// sums[16 outputs of this warp][kRows] += a[16][16] b[16][kRows], as so many mma_m16n8k16 add them,
// bit for bit (gpu-bench probe compares), sums[i] being the rows from 8 i on. b, in shared memory:
// by 8 rows, 16 vectors of 8 inputs each: first those that mma_m16n8k16 counts from 0, of 8 rows,
// then those from 8 (PTX ISA, "Asynchronous warpgroup level matrix instructions": core matrices,
// not swizzled). Begun only: between it and wgmma_wait(), sums and a must not be touched.
template <typename T, int kRows>
__device__ void wgmma(float (&sums)[kRows / 8][4], const Words4& a, const Words4* b);

__device__ inline std::uint64_t wgmma_descriptor(const Words4* b) {
  constexpr std::uint64_t kInputHalf = 128 >> 4;  // bytes from a core matrix to the next
  constexpr std::uint64_t kEightRows = 256 >> 4;
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(b));
  return std::uint64_t{(address & 0x3FFFFU) >> 4} | kInputHalf << 16 | kEightRows << 32;
}

// Keeps the compiler from moving what else is done with these registers past this place.
template <int kEights>
__device__ inline void hold(float (&sums)[kEights][4]) {
#pragma unroll
  for (int i = 0; i < kEights * 4; ++i) asm volatile("" : "+f"(sums[i / 4][i % 4])::"memory");
}
template <int kCount>
__device__ inline void hold(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
template <int kCount>
__device__ inline void hold(Words4 (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount * 4; ++i) asm volatile("" : "+r"(a[i / 4].words[i % 4])::"memory");
}

// Before the products of a group, which will use these registers.
template <int kEights, int kCount>
__device__ inline void wgmma_begin(float (&sums)[kEights][4], Words4 (&a)[kCount]) {
  hold(sums);
  hold(a);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Those since the last call are one group.
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Returns when all but the latest kPending groups are done.
template <int kPending, int kEights>
__device__ inline void wgmma_wait(float (&sums)[kEights][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  hold(sums);
}

// A barrier in shared memory for threads that hand stages of it to one another. It has phases, of
// parity 0, 1, 0...: each ends when so many arrivals have come as init() says, and the bytes that
// they announced have been copied.
struct alignas(8) CopyBarrier {
  std::uint64_t word;

  // By one thread; the others use it behind a block_barrier().
  __device__ void init(int arrivals) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;\n"
        "fence.mbarrier_init.release.cluster;" ::"r"(address()),
        "r"(arrivals)
        : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  // Arrives, and announces so many bytes of bulk_copy().
  __device__ void arrive_expecting(int num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(num_bytes)
                 : "memory");
  }
  // Returns when the phase of that parity has ended.
  __device__ void wait(int parity) {
    asm volatile(
        "{.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @!done bra again;}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
  __device__ std::uint32_t address() const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(&word));
  }
};

// True in one lane of the warp, all of which call it, and stand together where it is used. What
// this lane alone does with values that are the same in all lanes costs ptxas no loop over lanes,
// as bulk_copy() in a branch by lane does.
__device__ inline bool elect_lane() {
  std::uint32_t elected = 0;
  asm volatile(
      "{.reg .pred p; elect.sync _|p, 0xFFFFFFFF;\n"
      " selp.u32 %0, 1, 0, p;}"
      : "=r"(elected));
  return elected != 0;
}

// Copies num_bytes, a multiple of 16, of global memory to shared memory by no thread's registers;
// `landed` counts them. Both sides are 16-byte aligned.
__device__ inline void bulk_copy(Words4* to_shared, const Words4* from, int num_bytes,
                                 CopyBarrier& landed) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(to_shared));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(num_bytes), "r"(landed.address())
      : "memory");
}

// Gives the warp group's threads so many registers each, a multiple of 8: fewer than the launch
// did, or more, once other warp groups have given theirs up. In one branch of the kernel by warp
// group.
template <int kCount>
__device__ inline void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// A barrier of all threads of the cluster; what they wrote to their shared memory is then seen by
// the others.
__device__ inline void cluster_barrier() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
// For before a block ends: of what was written nothing may be seen yet, and what was loaded of
// other blocks has been used, as hold() says of it.
__device__ inline void cluster_barrier_alone() {
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
}
// What the block of that place in the cluster has where this block has `at`, in shared memory.
__device__ inline float load_of_block(const float* at, int block) {
  float v = 0.0F;
  const auto mine = static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
  asm volatile(
      "{.reg .b32 there; mapa.shared::cluster.u32 there, %1, %2;\n"
      " ld.shared::cluster.f32 %0, [there];}"
      : "=f"(v)
      : "r"(mine), "r"(block)
      : "memory");
  return v;
}

// --- wgmma() by the number of rows and the type: only the text differs ----------------

// Eight rows' sums as operands, and so many eights from one on; the operands' names in the text.
#define LMTP_SUMS(i) "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])
#define LMTP_SUMS_2(i) LMTP_SUMS(i), LMTP_SUMS(i + 1)
#define LMTP_SUMS_4(i) LMTP_SUMS_2(i), LMTP_SUMS_2(i + 2)
#define LMTP_SUMS_8(i) LMTP_SUMS_4(i), LMTP_SUMS_4(i + 4)
#define LMTP_SUMS_16(i) LMTP_SUMS_8(i), LMTP_SUMS_8(i + 8)
#define LMTP_NAMES_2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LMTP_NAMES_4 LMTP_NAMES_2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define LMTP_NAMES_8                         \
  LMTP_NAMES_4                               \
  ", %16, %17, %18, %19, %20, %21, %22, %23" \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define LMTP_NAMES_16                        \
  LMTP_NAMES_8                               \
  ", %32, %33, %34, %35, %36, %37, %38, %39" \
  ", %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55" \
  ", %56, %57, %58, %59, %60, %61, %62, %63"

// OPERANDS: the names of a's words and of b's descriptor, which stand behind those of the sums.
#define LMTP_WGMMA(TYPE, NAME, ROWS, EIGHTS, OPERANDS)                                 \
  template <>                                                                          \
  __device__ inline void wgmma<TYPE, ROWS>(float(&sums)[EIGHTS][4], const Words4& a,   \
                                           const Words4* b) {                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #ROWS "k16.f32." NAME "." NAME    \
                 " {" LMTP_NAMES_##EIGHTS "}, " OPERANDS ", 1, 1, 1, 0;"               \
                 : LMTP_SUMS_##EIGHTS(0)                                               \
                 : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), \
                   "l"(wgmma_descriptor(b))                                            \
                 : "memory");                                                          \
  }
#define LMTP_WGMMA_TYPES(ROWS, EIGHTS, OPERANDS)   \
  LMTP_WGMMA(BF16, "bf16", ROWS, EIGHTS, OPERANDS) \
  LMTP_WGMMA(F16, "f16", ROWS, EIGHTS, OPERANDS)
LMTP_WGMMA_TYPES(32, 4, "{%16, %17, %18, %19}, %20")
LMTP_WGMMA_TYPES(64, 8, "{%32, %33, %34, %35}, %36")
LMTP_WGMMA_TYPES(128, 16, "{%64, %65, %66, %67}, %68")
#undef LMTP_WGMMA_TYPES
#undef LMTP_WGMMA
#undef LMTP_SUMS
#undef LMTP_SUMS_2
#undef LMTP_SUMS_4
#undef LMTP_SUMS_8
#undef LMTP_SUMS_16
#undef LMTP_NAMES_2
#undef LMTP_NAMES_4
#undef LMTP_NAMES_8
#undef LMTP_NAMES_16

}  // namespace lmtp::kernels::cuda
