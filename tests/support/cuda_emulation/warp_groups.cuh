// The names of kernels/cuda/device/warp_groups.cuh, which documents them, on the emulator.
#pragma once

#include "device_primitives.cuh"

namespace lmtp::kernels::cuda {

// At once; otherwise as so many products of a warp.
template <typename T, int kRows>
void wgmma(float (&sums)[kRows / 8][4], const Words4& a, const Words4* b) {
  const int g = lane_index() / 4;
  const int t = lane_index() % 4;
  for (int j = 0; j < kRows / 8; ++j) {
    mma_m16n8k16<T>(sums[j], a, load(b + j * 16 + g).words[t], load(b + j * 16 + 8 + g).words[t]);
  }
}
inline void wgmma_begin() {}
inline void wgmma_commit() {}
template <int kPending>
void wgmma_wait() {}

struct alignas(8) CopyBarrier {
  std::uint64_t word;

  void init(int arrivals) { emulation::init_barrier(this, arrivals); }
  void arrive() { emulation::arrive(this, 0); }
  void arrive_expecting(int num_bytes) { emulation::arrive(this, num_bytes); }
  void wait(int parity) { emulation::wait_for_phase(this, parity); }
};
inline void bulk_copy(Words4* to_shared, const Words4* from, int num_bytes, CopyBarrier& landed) {
  emulation::bulk_copy(to_shared, from, num_bytes, &landed);
}

template <int kCount>
void keep_registers() {}
template <int kCount>
void take_registers() {}
inline void cluster_barrier() { emulation::cluster_barrier(); }
inline float load_of_block(const float* at, int block) {
  return *static_cast<const float*>(emulation::address_in_block(at, block));
}

}  // namespace lmtp::kernels::cuda
