// Attention of many queries: a block takes 64 rows, 16 a warp, through all steps that they see,
// keys and values through shared memory, the next step's copied while this one's are used.
#pragma once

#include "cuda/attention_common.cuh"

namespace lmtp::kernels::cuda {

inline constexpr int kPrefillWarps = 4;
inline constexpr int kPrefillThreads = kPrefillWarps * kWarpSize;
inline constexpr int kPrefillRows = kPrefillWarps * kTileRows;

// Each thread's sums of earlier splits. Heads of more than 96 dimensions keep them in the output,
// each element by the thread that owns it: a block would need more than kLeastSharedBytes.
template <int kDimTiles, bool kIsShared>
struct PrefillTotals {
  float totals[kDimTiles][2][4][kPrefillThreads];
};
template <int kDimTiles>
struct PrefillTotals<kDimTiles, false> {};

template <int kDimTiles>
inline constexpr bool kSharesTotals = kDimTiles <= 6;

template <typename T, int kDimTiles>
struct PrefillShared : PrefillTotals<kDimTiles, kSharesTotals<kDimTiles>> {
  static constexpr int kStages = kDimTiles > 8 ? 1 : 2;
  Words4 queries[kPrefillWarps][kDimTiles][kTileVectors];
  LaneOf<T> keys[kStages][kStepBlocks][kDimTiles][kTileVectors];
  LaneOf<T> values[kStages][kStepBlocks][kDimTiles][kTileVectors];
};
static_assert(sizeof(PrefillShared<BF16, 6>) <= kLeastSharedBytes &&
              sizeof(PrefillShared<BF16, 8>) <= kLeastSharedBytes &&
              sizeof(PrefillShared<BF16, 16>) <= kLeastSharedBytes);

// What a block's pairs [first_pair, first_pair + kPrefillRows) see.
struct PrefillPart {
  int first_pair;
  int begin;
  int end;

  __device__ PrefillPart(const SequenceRows& rows, int tile) : first_pair(tile * kPrefillRows) {
    const int last =
        first_pair + kPrefillRows < rows.num_pairs ? first_pair + kPrefillRows : rows.num_pairs;
    begin = rows.begin(first_pair);
    end = rows.end(last - 1);
  }
};

// Starts the copies of a step's keys and values; zeros for blocks that no pair sees and dimensions
// that do not exist.
template <typename T, int kDimTiles>
__device__ inline void copy_step(const SequenceRows& rows, const PrefillPart& part, int step,
                                 int stage, PrefillShared<T, kDimTiles>& shared) {
  constexpr int kVectors = kKeptVectors<T>;
  constexpr int kAtOnce = kWarpSize / kVectors;  // tiles
  static_assert(kDimTiles % kAtOnce == 0);
  const int b = warp_index();
  static_assert(kPrefillWarps == kStepBlocks);
  const int token = step * kStepTokens + b * kBlockSize;
  const bool seen = token + kBlockSize > part.begin && token < part.end;
  const KvLayer& cache = rows.p.cache;
  const auto* keys =
      seen ? rows.tiles<T>(cache.keys, token) : static_cast<const Words4*>(cache.keys);
  const auto* values =
      seen ? rows.tiles<T>(cache.values, token) : static_cast<const Words4*>(cache.values);
#pragma unroll
  for (int d = 0; d < kDimTiles; d += kAtOnce) {
    const int tile = d + lane_index() / kVectors;
    const int vector = lane_index() % kVectors;
    const bool wanted = seen && tile < rows.p.dim_tiles;
    const int at = wanted ? tile * kVectors + vector : 0;
    auto* to_keys = reinterpret_cast<Words4*>(shared.keys[stage][b][tile]);
    auto* to_values = reinterpret_cast<Words4*>(shared.values[stage][b][tile]);
    copy_async(to_keys + vector, keys + at, wanted);
    copy_async(to_values + vector, values + at, wanted);
  }
}

// 16 rows of one warp.
template <typename T, int kDimTiles>
struct PrefillWarp {
  const SequenceRows& rows;
  const PrefillPart& part;
  PrefillShared<T, kDimTiles>& shared;
  LaneRows lane_rows;
  // The current split.
  float sums[kDimTiles][2][4] = {};
  float maxima[2] = {-INFINITY, -INFINITY};
  float totals[2] = {};
  // The splits before it, merged.
  RowState states[2] = {};
  bool has_states = false;

  __device__ PrefillWarp(const SequenceRows& all, const PrefillPart& mine,
                         PrefillShared<T, kDimTiles>& memory)
      : rows(all), part(mine), shared(memory), lane_rows(all, first_pair(mine)) {
    Words4 queries[kDimTiles];
    load_queries<OperandOf<T>>(rows, first_pair(part), queries);
#pragma unroll
    for (int d = 0; d < kDimTiles; ++d) {
      store(&shared.queries[warp_index()][d][lane_index()], queries[d]);
    }
  }

  __device__ static int first_pair(const PrefillPart& mine) {
    return mine.first_pair + warp_index() * kTileRows;
  }

  // Does any row of the warp see a token of the step?
  __device__ bool sees(int first) const {
    const bool seen = (first < lane_rows.end[0] && first + kStepTokens > lane_rows.begin[0]) ||
                      (first < lane_rows.end[1] && first + kStepTokens > lane_rows.begin[1]);
    return warp_ballot(seen) != 0;
  }

  __device__ void run_step(int step, int stage) {
    const int first = step * kStepTokens;
    if (!sees(first)) return;
    Scores scores = {};
#pragma unroll
    for (int d = 0; d < kDimTiles; ++d) {
      const Words4 query = load(&shared.queries[warp_index()][d][lane_index()]);
#pragma unroll
      for (int b = 0; b < kStepBlocks; ++b) {
        const Words4 keys = Kept<T>::widened(load(&shared.keys[stage][b][d][lane_index()]));
        mma_m16n8k16<OperandOf<T>>(scores[b][0], query, keys.words[0], keys.words[2]);
        mma_m16n8k16<OperandOf<T>>(scores[b][1], query, keys.words[1], keys.words[3]);
      }
    }
    scale_scores(rows.p, scores);
    hide_scores(lane_rows, first, scores);
    float highest[2];
    row_maxima(scores, highest);
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = fmaxf(maxima[half], highest[half]);
      factors[half] = rescale(maxima[half], highest[half]);
      maxima[half] = highest[half];
    }
    Words4 weights[kStepBlocks];
    float step_sums[2];
    soften<OperandOf<T>>(scores, maxima, weights, step_sums);
    totals[0] = fmaf(totals[0], factors[0], step_sums[0]);
    totals[1] = fmaf(totals[1], factors[1], step_sums[1]);
#pragma unroll
    for (int d = 0; d < kDimTiles; ++d) scale_rows(sums[d], factors);
    if (part.begin <= first && first + kStepTokens <= part.end) {
      weigh_values(stage, weights, [](const Words4& values, int) { return values; });
    } else {
      weigh_values(stage, weights, [&](const Words4& values, int b) {
        return keep_tokens(values, first + b * kBlockSize, part.begin, part.end);
      });
    }
  }

  // sums += weights seen(values, block), by products without branches.
  template <typename Seen>
  __device__ void weigh_values(int stage, const Words4 (&weights)[kStepBlocks], const Seen& seen) {
#pragma unroll
    for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
      for (int b = 0; b < kStepBlocks; ++b) {
        const Words4 values = Kept<T>::widened(load(&shared.values[stage][b][d][lane_index()]));
        weigh<OperandOf<T>>(sums[d], weights[b], seen(values, b));
      }
    }
  }

  // The address of an element of y; null: there is no such row or dimension.
  __device__ float* output_at(int d, int side, int i) const {
    const int pair = first_pair(part) + lane_index() / kQuadLanes + 8 * (i / 2);
    const int dimension = d * kTileSide + side * 8 + lane_index() % kQuadLanes * 2 + i % 2;
    return pair < rows.num_pairs && dimension < rows.p.head_dim() ? rows.output(pair) + dimension
                                                                  : nullptr;
  }

  __device__ void merge_states() {
    states[0].merge(maxima[0], totals[0]);
    states[1].merge(maxima[1], totals[1]);
  }

  // use(merged, its element of y or null, d, side, i) for each sum of the current split, merged
  // with those before it, after merge_states().
  template <typename Use>
  __device__ void merge_sums(const Use& use) {
#pragma unroll
    for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float* output = output_at(d, side, i);
          float before = 0.0F;
          if constexpr (kSharesTotals<kDimTiles>) {
            before = has_states ? shared.totals[d][side][i][thread_index()] : 0.0F;
          } else {
            before = has_states && output != nullptr ? *output : 0.0F;
          }
          use(states[i / 2].merged(before, sums[d][side][i]), output, d, side, i);
          sums[d][side][i] = 0.0F;
        }
      }
    }
    has_states = true;
    maxima[0] = maxima[1] = -INFINITY;
    totals[0] = totals[1] = 0.0F;
  }

  // Merges the current split with those before it, and begins the next one.
  __device__ void end_split() {
    merge_states();
    merge_sums([&](float total, float* output, int d, int side, int i) {
      if constexpr (kSharesTotals<kDimTiles>) {
        shared.totals[d][side][i][thread_index()] = total;
      } else if (output != nullptr) {
        *output = total;
      }
    });
  }

  __device__ void write() {
    merge_states();
    float inverses[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int pair = first_pair(part) + lane_index() / kQuadLanes + 8 * half;
      inverses[half] = rows.inverse_total(pair, states[half].max, states[half].total);
    }
    merge_sums([&](float total, float* output, int, int, int i) {
      if (output != nullptr) *output = normalized(total, inverses[i / 2]);
    });
  }
};

template <typename T, int kDimTiles>
__global__ void __launch_bounds__(kPrefillThreads) attention_prefill_kernel(AttentionParams p) {
  constexpr int kStages = PrefillShared<T, kDimTiles>::kStages;
  grid_dependency_wait();
  const SequenceRows rows(p, block_index().z, block_index().y);
  const int tile = ceil_divide(rows.num_pairs, kPrefillRows) - 1 - block_index().x;  // long first
  if (rows.num_pairs <= p.decode_pairs_max || tile < 0) return;
  auto& shared = *shared_memory<PrefillShared<T, kDimTiles>>();
  const PrefillPart part(rows, tile);
  const int first_step = part.begin / kStepTokens;
  const int end_step = ceil_divide(part.end, kStepTokens);
  copy_step(rows, part, first_step, 0, shared);
  commit_copies();
  PrefillWarp<T, kDimTiles> warp(rows, part, shared);
  for (int step = first_step; step < end_step; ++step) {
    const int stage = (step - first_step) % kStages;
    if (kStages == 2 && step + 1 < end_step) copy_step(rows, part, step + 1, 1 - stage, shared);
    commit_copies();
    wait_for_copies<kStages - 1>();
    block_barrier();
    warp.run_step(step, stage);
    block_barrier();  // all are done with this stage
    if (kStages == 1 && step + 1 < end_step) {
      copy_step(rows, part, step + 1, 0, shared);
      commit_copies();
    }
    if ((step + 1) % kSplitSteps == 0 && step + 1 < end_step) warp.end_split();
  }
  warp.write();
}

}  // namespace lmtp::kernels::cuda
