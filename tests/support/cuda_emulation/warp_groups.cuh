// The names of kernels/cuda/device/warp_groups.cuh, which documents them, on the emulator.
#pragma once

#include "device_primitives.cuh"

namespace lmtp::kernels::cuda {

// As so many products of a warp, when they are waited for: until then b must stay as it is, and a.
template <typename T, int kRows>
void wgmma(float (&sums)[kRows / 8][4], const Words4& a, const Words4* b) {
  emulation::put_product([&sums, &a, was = a, b] {
    emulation::check_unchanged(&a, &was, sizeof(a));
    const int g = lane_index() / 4;
    const int t = lane_index() % 4;
    for (int j = 0; j < kRows / 8; ++j) {
      const Words4 lower = load(b + j * 16 + g);
      const Words4 upper = load(b + j * 16 + 8 + g);
      mma_m16n8k16<T>(sums[j], was, lower.words[t], upper.words[t]);
    }
  });
}
template <int kCount>
void hold(float (&)[kCount]) {}
template <int kEights, int kCount>
void wgmma_begin(float (&)[kEights][4], Words4 (&)[kCount]) {}
inline void wgmma_commit() { emulation::commit_products(); }
template <int kPending, int kEights>
void wgmma_wait(float (&)[kEights][4]) {
  emulation::wait_for_products(kPending);
}

struct alignas(8) CopyBarrier {
  std::uint64_t word;

  void init(int arrivals) { emulation::init_barrier(this, arrivals); }
  void arrive() { emulation::arrive(this, 0); }
  void arrive_expecting(int num_bytes) { emulation::arrive(this, num_bytes); }
  void wait(int parity) { emulation::wait_for_phase(this, parity); }
};
inline bool elect_lane() { return lane_index() == 0; }
inline void bulk_copy(Words4* to_shared, const Words4* from, int num_bytes, CopyBarrier& landed) {
  emulation::bulk_copy(to_shared, from, num_bytes, &landed);
}

template <int kCount>
void keep_registers() {}
template <int kCount>
void take_registers() {}
inline void cluster_barrier() { emulation::cluster_barrier(); }
inline void cluster_barrier_alone() { emulation::cluster_barrier(); }
inline float load_of_block(const float* at, int block) {
  return *static_cast<const float*>(emulation::address_in_block(at, block));
}

}  // namespace lmtp::kernels::cuda
