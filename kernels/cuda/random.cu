#include "cuda/random.h"

#include <device_primitives.cuh>

namespace lmtp::kernels::cuda {
namespace {

// A thread an element.
__global__ void __launch_bounds__(256) fill_random_kernel(FillRandomArgs args) {
  grid_dependency_wait();
  const std::int64_t at = std::int64_t{block_index().x} * num_threads() + thread_index();
  if (at >= args.count) return;
  const float value = random_element(args.tensor, args.first + at);
  if (args.tensor.type == ElementType::kF32) {
    static_cast<float*>(args.to)[at] = value;
  } else {
    static_cast<std::uint16_t*>(args.to)[at] =
        static_cast<std::uint16_t>(round_pair<BF16>(value, 0.0F));
  }
}

}  // namespace

void fill_random(Stream& stream, const FillRandomArgs& args) {
  constexpr std::int64_t kThreads = 256;
  launch<fill_random_kernel>(
      {.grid = {static_cast<int>(ceil_divide(args.count, kThreads))}, .num_threads = kThreads},
      stream.handle(), args);
}

}  // namespace lmtp::kernels::cuda
