// Compiled for sm_90a alone, which has wgmma.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/probe_device.h"

namespace lmtp::bench {
namespace {

constexpr int kThreads = 128;  // a warp group: 64 rows of A
constexpr int kChain = 24;     // products of 16 inputs
constexpr int kProblems = 512;
// Words of a problem: A's fragments of each thread, then B's, [chain][n 8][k 16] elements.
constexpr int kWordsA = kChain * kThreads * 4;
constexpr int kWordsB = kChain * 8 * 16 / 2;

template <bool kIsF16>
__device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kIsF16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <bool kIsF16>
__device__ void wgmma(float (&c)[4], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (kIsF16) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
}

// Without swizzling: core matrices of 8 outputs by 16 bytes, 128 bytes apart (PTX ISA, "Matrix
// descriptor format").
__device__ uint64_t descriptor_of(const void* shared) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  return uint64_t{(address & 0x3FFFFU) >> 4} | uint64_t{128 >> 4} << 16 | uint64_t{128 >> 4} << 32;
}

// A block a problem. Counts the sums that differ.
template <bool kIsF16>
__global__ void __launch_bounds__(kThreads) compare_kernel(const uint32_t* words, int* differing) {
  __shared__ alignas(128) uint32_t b_shared[64];  // [k half][n 8][4 words]
  const uint32_t* a_words = words + std::size_t{blockIdx.x} * (kWordsA + kWordsB);
  const uint32_t* b_words = a_words + kWordsA;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float by_mma[4] = {};
  float by_wgmma[4] = {};
  for (int i = 0; i < kChain; ++i) {
    uint32_t a[4];
    for (int k = 0; k < 4; ++k) a[k] = a_words[(i * kThreads + threadIdx.x) * 4 + k];
    const uint32_t* b = b_words + i * 64;  // [n 8][k 16 / 2]
    if (threadIdx.x < 64) {
      const int n = static_cast<int>(threadIdx.x) / 8;
      const int pair = static_cast<int>(threadIdx.x) % 8;
      b_shared[pair / 4 * 32 + n * 4 + pair % 4] = b[threadIdx.x];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    mma<kIsF16>(by_mma, a, b[lane / 4 * 8 + lane % 4], b[lane / 4 * 8 + lane % 4 + 4]);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    wgmma<kIsF16>(by_wgmma, a, descriptor_of(b_shared));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (float& sum : by_wgmma) asm volatile("" : "+f"(sum)::"memory");
    __syncthreads();
  }
  int mine = 0;
  for (int k = 0; k < 4; ++k) {
    mine += __float_as_uint(by_mma[k]) != __float_as_uint(by_wgmma[k]) ? 1 : 0;
  }
  if (mine > 0) atomicAdd(differing, mine);
}

template <bool kIsF16>
std::uint16_t bits_of(float value) {
  if constexpr (kIsF16) return __half_as_ushort(__float2half(value));
  return __bfloat16_as_ushort(__float2bfloat16(value));
}

// A quarter near 1, a quarter over the exponents, a quarter cancelling what came before, a quarter
// zeros of both signs and subnormal numbers.
template <bool kIsF16>
std::vector<std::uint16_t> inputs(std::size_t count) {
  std::mt19937 random(kIsF16 ? 2 : 1);
  std::uniform_real_distribution<float> fraction(1.0F, 2.0F);
  std::uniform_int_distribution<int> exponent(kIsF16 ? -7 : -20, kIsF16 ? 6 : 20);
  std::vector<std::uint16_t> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto kind = random() % 4;
    float value = std::ldexp(fraction(random), kind == 0 ? 0 : exponent(random));
    if (random() % 2 == 0) value = -value;
    all[i] = bits_of<kIsF16>(value);
    constexpr std::uint16_t kFraction = kIsF16 ? 0x3FF : 0x7F;
    if (kind == 3) all[i] = static_cast<std::uint16_t>(random() & (0x8000U | kFraction));
    if (kind == 2 && i >= 2) all[i] = static_cast<std::uint16_t>(all[i - 2] ^ 0x8000U);
  }
  return all;
}

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string("wgmma beside mma.sync: ") + cudaGetErrorString(status));
}

// The sums that differ.
template <bool kIsF16>
int compare(cudaStream_t stream) {
  const std::vector<std::uint16_t> elements =
      inputs<kIsF16>(std::size_t{kProblems} * (kWordsA + kWordsB) * 2);
  void* words = nullptr;
  void* differing = nullptr;
  int count = 0;
  check(cudaMalloc(&words, elements.size() * 2));
  check(cudaMalloc(&differing, sizeof(int)));
  check(
      cudaMemcpyAsync(words, elements.data(), elements.size() * 2, cudaMemcpyHostToDevice, stream));
  check(cudaMemsetAsync(differing, 0, sizeof(int), stream));
  compare_kernel<kIsF16><<<kProblems, kThreads, 0, stream>>>(static_cast<const uint32_t*>(words),
                                                             static_cast<int*>(differing));
  check(cudaGetLastError());
  check(cudaMemcpyAsync(&count, differing, sizeof(int), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  cudaFree(words);
  cudaFree(differing);
  return count;
}

}  // namespace

WgmmaBits compare_wgmma(const kernels::Stream& stream) {
  int device = 0;
  int major = 0;
  int minor = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (major != 9 || minor != 0) return {};
  auto* handle = static_cast<cudaStream_t>(stream.handle());
  return {compare<false>(handle) + compare<true>(handle), 2 * kProblems * kThreads * 4};
}

}  // namespace lmtp::bench
