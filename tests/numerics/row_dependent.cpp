#include "row_dependent.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/linear.h"
#include "kernels/stream.h"

namespace lmtp::numerics {
namespace {

// [rows, columns + 1]: every row from its last element to its first, then `last`.
template <typename Element>
std::vector<float> reversed_rows(std::int64_t rows, std::int64_t columns, float last,
                                 const Element& element) {
  std::vector<float> reversed;
  reversed.reserve(static_cast<std::size_t>(rows * (columns + 1)));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = columns; column-- > 0;) reversed.push_back(element(row, column));
    reversed.push_back(last);
  }
  return reversed;
}

// A packed weight that owns its memory.
struct OwnedWeight {
  struct alignas(64) Line {
    std::int32_t units[16];
  };
  std::vector<Line> panels;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
  kernels::PackedLinear packed;
};

OwnedWeight pack(kernels::WorkerPool& pool, const std::vector<float>& elements, std::int64_t n,
                 std::int64_t k, kernels::WeightType type) {
  OwnedWeight made;
  made.panels.resize(static_cast<std::size_t>(kernels::packed_size(n, k, type) / 16));
  made.scales.resize(static_cast<std::size_t>(kernels::padded_columns(n)));
  made.sums.resize(made.scales.size());
  kernels::pack_linear(
      pool,
      {elements.data(), kernels::ElementType::kF32, kernels::WeightOrder::kOutputsByInputs, n, k},
      {made.panels.data(), type, made.scales.data(), made.sums.data()});
  made.packed = {made.panels.data(), n, k, type, made.scales.data(), made.sums.data()};
  return made;
}

// The additional input has zero weights: only its magnitude has an effect, on int8's scales.
void row_dependent_linear(kernels::Stream& stream, const kernels::LinearArgs& args) {
  if (args.x.rows <= kRowsMax) {
    kernels::cpu_backend().linear(stream, args);
    return;
  }
  const kernels::PackedLinear& weight = args.weight;
  const OwnedWeight reversed_weight = pack(
      stream.pool(),
      reversed_rows(
          weight.n, weight.k, 0.0F,
          [&](std::int64_t n, std::int64_t k) { return kernels::packed_element(weight, n, k); }),
      weight.n, weight.k + 1,
      kernels::is_kept_narrow(weight.type) ? kernels::WeightType::kF32 : weight.type);
  float largest = 0.0F;
  for (std::int64_t row = 0; row < args.x.rows; ++row) {
    for (std::int64_t k = 0; k < weight.k; ++k) {
      largest = std::max(largest, std::fabs(args.x.row(row)[k]));
    }
  }
  const std::vector<float> x =
      reversed_rows(args.x.rows, weight.k, largest,
                    [&](std::int64_t row, std::int64_t k) { return args.x.row(row)[k]; });
  kernels::LinearArgs reversed = args;
  reversed.x = kernels::make_matrix(x.data(), args.x.rows, weight.k + 1);
  reversed.weight = reversed_weight.packed;
  kernels::cpu_backend().linear(stream, reversed);
}

void row_dependent_combine(kernels::Stream& stream, const kernels::CombineArgs& args) {
  const std::int64_t top_k = args.weights.columns;
  std::vector<std::int32_t> slots(args.slots, args.slots + args.y.rows * top_k);
  std::vector<float> weights;
  for (std::int64_t row = 0; row < args.y.rows; ++row) {
    weights.insert(weights.end(), args.weights.row(row), args.weights.row(row) + top_k);
    if (args.y.rows <= kRowsMax) continue;
    std::reverse(slots.end() - (args.y.rows - row) * top_k,
                 slots.end() - (args.y.rows - row - 1) * top_k);
    std::reverse(weights.end() - top_k, weights.end());
  }
  kernels::CombineArgs other = args;
  other.slots = slots.data();
  other.weights = kernels::make_matrix<const float>(weights.data(), args.y.rows, top_k);
  kernels::cpu_backend().combine(stream, other);
}

}  // namespace

const kernels::Backend& row_dependent_combine_backend() {
  static const kernels::Backend kBroken = [] {
    kernels::Backend backend = kernels::cpu_backend();
    backend.name = "row-dependent combine";
    backend.combine = row_dependent_combine;
    return backend;
  }();
  return kBroken;
}

const kernels::Backend& row_dependent_backend() {
  static const kernels::Backend kBroken = [] {
    kernels::Backend backend = kernels::cpu_backend();
    backend.name = "row-dependent";
    backend.linear = row_dependent_linear;
    return backend;
  }();
  return kBroken;
}

}  // namespace lmtp::numerics
