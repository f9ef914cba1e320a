// Work that the block does which is done last of several, since it needs what all have written.
#pragma once

#include <device_primitives.cuh>

#include <cstdint>

namespace lmtp::kernels::cuda {

// Whether the others of num_blocks blocks that count by this counter have been here; what they
// wrote before may be read then, by load_fresh_where(). The counter is zero again behind the last.
// By all threads of the block, one of which asks for counter(): registers count. num_done: in
// shared memory, which no thread uses otherwise.
template <typename CounterOf>
__device__ bool is_last_block(const CounterOf& counter, int num_blocks, std::uint32_t& num_done) {
  block_barrier();  // all threads have written
  const auto last = static_cast<std::uint32_t>(num_blocks - 1);
  if (thread_index() == 0) num_done = atomic_count(counter(), last);
  block_barrier();
  return num_done == last;
}

}  // namespace lmtp::kernels::cuda
