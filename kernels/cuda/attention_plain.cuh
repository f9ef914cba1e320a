// Attention in f32, for checks.
#pragma once

#include "cuda/attention_common.cuh"

namespace lmtp::kernels::cuda {

inline constexpr int kPlainWarps = 4;
inline constexpr int kPlainDims = kDeviceHeadDimMax / kWarpSize;  // of a lane

// The sequence of a row.
__device__ inline int sequence_of(const AttentionParams& p, int row) {
  int low = 0;
  int high = p.num_sequences - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (row < p.cu_seqlens[middle + 1]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// One query and head, by one warp.
struct PlainRow {
  const SequenceRows& rows;
  int pair;
  RowState state;
  float totals[kPlainDims] = {};

  __device__ PlainRow(const SequenceRows& all, int index) : rows(all), pair(index) {}

  __device__ const float* at(const void* layer, int token) const {
    const int dims = rows.p.dim_tiles * kTileSide;
    const std::int64_t block = rows.block_of(token);
    const std::int64_t head = block * rows.p.cache.num_kv_heads + rows.kv_head;
    return static_cast<const float*>(layer) + (head * kBlockSize + token % kBlockSize) * dims;
  }

  __device__ float score(int token) const {
    const AttentionParams& p = rows.p;
    if (token < rows.begin(pair) || token >= rows.end(pair)) return -INFINITY;
    const float* query = rows.query(pair);
    const float* key = at(p.cache.keys, token);
    float sum = 0.0F;
    for (int d = 0; d < p.head_dim(); ++d) sum = fmaf(query[d], key[d], sum);
    sum *= p.scale;
    return (p.soft_cap > 0.0F ? p.soft_cap * tanhf(sum / p.soft_cap) : sum) * kLog2E;
  }

  // A step's tokens by pairs: a lane's are first + lane and first + 32 + lane.
  __device__ void run_step(int first, float (&sums)[kPlainDims], float& max, float& total) const {
    const float scores[2] = {score(first + lane_index()), score(first + kWarpSize + lane_index())};
    float highest = fmaxf(max, fmaxf(scores[0], scores[1]));
    for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
      highest = fmaxf(highest, shuffle_xor(highest, mask));
    }
    const float factor = rescale(max, highest);
    const float weights[2] = {exp2f(scores[0] - finite_shift(highest)),
                              exp2f(scores[1] - finite_shift(highest))};
    float step_total = weights[0] + weights[1];
    for (int mask = kWarpSize / 2; mask > 0; mask /= 2) step_total += shuffle_xor(step_total, mask);
    total = fmaf(total, factor, step_total);
    max = highest;
    for (float& sum : sums) sum *= factor;
    for (int t = 0; t < kStepTokens; ++t) {
      const float weight = shuffle(t < kWarpSize ? weights[0] : weights[1], t % kWarpSize);
      if (first + t >= rows.begin(pair) && first + t < rows.end(pair)) {
        const float* value = at(rows.p.cache.values, first + t);
        for (int i = 0; i < kPlainDims; ++i) {
          const int d = i * kWarpSize + lane_index();
          sums[i] = d < rows.p.head_dim() ? fmaf(weight, value[d], sums[i]) : 0.0F;
        }
      }
    }
  }

  __device__ void run() {
    const int end = rows.end(pair);
    int first = rows.begin(pair) / kStepTokens * kStepTokens;
    while (first < end) {
      const int split_end = (first / kAttentionSplit + 1) * kAttentionSplit;
      float sums[kPlainDims] = {};
      float max = -INFINITY;
      float total = 0.0F;
      for (; first < split_end && first < end; first += kStepTokens) {
        run_step(first, sums, max, total);
      }
      state.merge(max, total);
      for (int i = 0; i < kPlainDims; ++i) totals[i] = state.merged(totals[i], sums[i]);
    }
    const float inverse = rows.inverse_total(pair, state.max, state.total);
    for (int i = 0; i < kPlainDims; ++i) {
      const int d = i * kWarpSize + lane_index();
      if (d < rows.p.head_dim()) rows.output(pair)[d] = normalized(totals[i], inverse);
    }
  }
};

template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarpSize) attention_plain_kernel(AttentionParams p) {
  grid_dependency_wait();
  const int row = block_index().x;
  const int head = block_index().y * kWarps + warp_index();
  if (head >= p.group * p.cache.num_kv_heads) return;
  const SequenceRows rows(p, sequence_of(p, row), head / p.group);
  const int pair = (row - rows.first_row) * p.group + head % p.group;
  if (pair >= rows.num_pairs) return;  // of no sequence
  PlainRow plain(rows, pair);
  plain.run();
}

}  // namespace lmtp::kernels::cuda
