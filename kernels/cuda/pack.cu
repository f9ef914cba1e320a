// Weights into the order in which the linear reads them: once, when a model is loaded.
#include <device_primitives.cuh>

#include <cstdint>

#include "cuda/fragment_tile.h"
#include "cuda/linear.h"
#include "cuda/read_source.cuh"

namespace lmtp::kernels::cuda {
namespace {

struct PackParams {
  WeightSource source;
  WeightTarget to;
};

// A thread moves two neighbouring inputs of a row.
__global__ void __launch_bounds__(256) pack_weight_kernel(PackParams p) {
  grid_dependency_wait();
  const std::int64_t pairs = ceil_divide<std::int64_t>(p.source.k, 2);
  const std::int64_t at = std::int64_t{block_index().x} * num_threads() + thread_index();
  const std::int64_t n = at / pairs;
  const std::int64_t k = at % pairs * 2;
  if (n >= p.source.n) return;
  const std::int64_t row = p.to.target_rows != nullptr ? p.to.target_rows[n] : p.to.first_row + n;
  const float low = read_source(p.source, n, k);
  const float high = read_source(p.source, n, k + 1);
  if (p.to.type == ElementType::kF32) {
    float* panel = static_cast<float*>(p.to.weight) +
                   row / kPanelColumns * kPanelColumns * p.source.k + row % kPanelColumns;
    panel[k * kPanelColumns] = low;
    if (k + 1 < p.source.k) panel[(k + 1) * kPanelColumns] = high;
    return;
  }
  auto* words = static_cast<std::uint32_t*>(p.to.weight);
  words[offset_in_matrix(row, k, p.source.k) / 2] =
      p.to.type == ElementType::kBF16 ? round_pair<BF16>(low, high) : round_pair<F16>(low, high);
}

}  // namespace

void pack_weight(const WeightSource& source, const WeightTarget& to, StreamHandle stream) {
  const PackParams params = {source, to};
  constexpr std::int64_t kThreads = 256;
  const std::int64_t blocks =
      ceil_divide(source.n * ceil_divide<std::int64_t>(source.k, 2), kThreads);
  launch<pack_weight_kernel>({.grid = {static_cast<int>(blocks)}, .num_threads = kThreads}, stream,
                             params);
}

}  // namespace lmtp::kernels::cuda
