// The sums of the op lora (lora.h). One lane is one input, or one output; a rank's sum over inputs
// is one chain for each lane, then a tree over the lanes, and an output's is one chain over ranks.
#pragma once

#include "lora.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline constexpr int kLoraVectors = kLoraLanes / kLanes;

[[gnu::always_inline]] inline F load_element(const float* from) { return load(from); }
[[gnu::always_inline]] inline F load_element(const std::uint16_t* from) { return load_bf16(from); }

// The vector of inputs at `column`, zero behind the k-th.
[[gnu::always_inline]] inline F inputs_at(const float* x, std::int64_t column, std::int64_t k) {
  const std::int64_t left = k - column;
  if (left >= kLanes) return load(x + column);
  return left > 0 ? load_first(x + column, static_cast<int>(left)) : zero();
}

template <typename Element, int kRows>
inline void shrink_rows(LoraChunks& a, const float* const* x, std::int64_t k, float* const* low) {
  F sums[kRows][kLoraRanks];
  for (auto& of_row : sums) {
    for (F& sum : of_row) sum = zero();
  }
  for (std::int64_t first = 0; first < k; first += kLoraLanes) {
    const Element* chunk = a.next<Element>();
#pragma GCC unroll 4
    for (int v = 0; v < kLoraVectors; ++v) {
      F inputs[kRows];
      for (int r = 0; r < kRows; ++r) inputs[r] = inputs_at(x[r], first + v * kLanes, k);
#pragma GCC unroll 4
      for (int rank = 0; rank < kLoraRanks; ++rank) {
        const F weights = load_element(chunk + rank * kLoraLanes + v * kLanes);
        for (int r = 0; r < kRows; ++r) {
          sums[r][rank] = multiply_add(weights, inputs[r], sums[r][rank]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int rank = 0; rank < kLoraRanks; ++rank) low[r][rank] = sum_lanes(sums[r][rank]);
  }
}

template <typename Element, int kRows>
inline void expand_rows(LoraChunks& b, const float* const* low, std::int64_t num_rank_groups,
                        std::int64_t n, float* const* y) {
  for (std::int64_t first = 0; first < n; first += kLoraLanes) {
    F sums[kRows][kLoraVectors];
    for (auto& of_row : sums) {
      for (F& sum : of_row) sum = zero();
    }
    for (std::int64_t group = 0; group < num_rank_groups; ++group) {
      const Element* chunk = b.next<Element>();
#pragma GCC unroll 4
      for (int rank = 0; rank < kLoraRanks; ++rank) {
#pragma GCC unroll 4
        for (int v = 0; v < kLoraVectors; ++v) {
          const F weights = load_element(chunk + rank * kLoraLanes + v * kLanes);
          for (int r = 0; r < kRows; ++r) {
            sums[r][v] =
                multiply_add(broadcast(low[r][group * kLoraRanks + rank]), weights, sums[r][v]);
          }
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kLoraVectors; ++v) {
        const std::int64_t left = n - first - v * kLanes;
        if (left <= 0) break;
        const int count = left < kLanes ? static_cast<int>(left) : kLanes;
        float* to = y[r] + first + v * kLanes;
        store_first(to, add(load_first(to, count), sums[r][v]), count);
      }
    }
  }
}

template <typename Element>
inline void shrink(LoraChunks a, const float* const* x, int num_rows, std::int64_t k,
                   float* const* low) {
  static_assert(kLoraRowsMax == 4);
  switch (num_rows) {
    case 1:
      return shrink_rows<Element, 1>(a, x, k, low);
    case 2:
      return shrink_rows<Element, 2>(a, x, k, low);
    case 3:
      return shrink_rows<Element, 3>(a, x, k, low);
    default:
      return shrink_rows<Element, 4>(a, x, k, low);
  }
}

template <typename Element>
inline void expand(LoraChunks b, const float* const* low, int num_rows,
                   std::int64_t num_rank_groups, std::int64_t n, float* const* y) {
  switch (num_rows) {
    case 1:
      return expand_rows<Element, 1>(b, low, num_rank_groups, n, y);
    case 2:
      return expand_rows<Element, 2>(b, low, num_rank_groups, n, y);
    case 3:
      return expand_rows<Element, 3>(b, low, num_rank_groups, n, y);
    default:
      return expand_rows<Element, 4>(b, low, num_rank_groups, n, y);
  }
}

inline void lora(Stream& stream, const LoraArgs& args) {
  static constexpr LoraOps kOfF32 = {shrink<float>, expand<float>};
  static constexpr LoraOps kOfBF16 = {shrink<std::uint16_t>, expand<std::uint16_t>};
  plain::lora(stream, args, kOfF32, kOfBF16);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
