#include "cuda/sample.h"

#include <device_primitives.cuh>

#include <cmath>

#include "cuda/block_rows.cuh"
#include "cuda/selection.cuh"
#include "kernels/draw_weight.h"
#include "kernels/philox.h"

namespace lmtp::kernels::cuda {
namespace {

struct SampleShared {
  SelectShared select;
  std::uint64_t candidates[kSampleTopMax];  // key and id, as ranked() makes them
  int num_candidates;
  int input_occurs;
  float sums[kSelectWarps];
};
static_assert(kSampleTopMax == kSelectThreads);

struct RowTotal {
  float max;
  float log_sum;  // of e^(logit - max)
  std::int32_t best;

  __device__ float log_probability(float logit) const { return (logit - max) - log_sum; }
};

// The better of two elements has the greater number: the greater value, then the lower id.
__device__ std::uint64_t ranked(float value, std::int64_t id) {
  return std::uint64_t{key_of(value)} << 32 | (0xFFFFFFFFU - static_cast<std::uint32_t>(id));
}
__device__ std::int32_t id_of(std::uint64_t candidate) {
  return static_cast<std::int32_t>(0xFFFFFFFFU - static_cast<std::uint32_t>(candidate));
}

// logits[id_of(i)] = edited(logit, i) for i in [0, count), ids distinct: a thread reads several
// before it writes the first.
template <typename IdOf, typename Edited>
__device__ void edit_logits(std::int64_t count, float* logits, const IdOf& id_of,
                            const Edited& edited) {
  constexpr int kBatch = 4;
  for (std::int64_t begin = thread_index(); begin < count; begin += kBatch * kSelectThreads) {
    std::int32_t ids[kBatch];
    float values[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int64_t i = begin + k * kSelectThreads;
      ids[k] = i < count ? id_of(i) : 0;
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int64_t i = begin + k * kSelectThreads;
      values[k] = i < count ? edited(logits[ids[k]], i) : 0.0F;
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (begin + k * kSelectThreads < count) logits[ids[k]] = values[k];
    }
  }
  block_barrier();
}

// By additions, as a bias, so that what is not a number stays so.
__device__ void apply_mask(const std::uint32_t* words, std::int64_t num_words, float* logits,
                           std::int64_t width) {
  for_ids(width, [&](std::int64_t id) {
    const std::uint32_t word = id / 32 < num_words ? words[id / 32] : 0;
    if ((word >> (id % 32) & 1) == 0) logits[id] += -INFINITY;
  });
  block_barrier();
}

// Penalties over the tokens so far, then the bias and the mask. input: the input token, if it
// counts once more; else negative.
__device__ void edit(const SampleRow& row, const TokenCount* all_counts, std::int32_t input,
                     int* occurs, float* logits, std::int64_t width) {
  const TokenCount* counts = all_counts + row.first_count;
  if (thread_index() == 0) *occurs = input < 0 ? 1 : 0;
  block_barrier();
  edit_logits(
      row.num_counts, logits, [&](std::int64_t i) { return counts[i].id; },
      [&](float logit, std::int64_t i) {
        const bool is_input = counts[i].id == input;
        if (is_input) *occurs = 1;  // ids are distinct: one thread at most
        return penalized(logit, row, counts[i].count + (is_input ? 1 : 0));
      });
  if (*occurs == 0 && thread_index() == 0) logits[input] = penalized(logits[input], row, 1);
  block_barrier();
  edit_logits(
      row.num_biases, logits, [&](std::int64_t i) { return row.bias_ids[i]; },
      [&](float logit, std::int64_t i) { return logit + row.bias_values[i]; });
  if (row.mask != nullptr) apply_mask(row.mask, row.num_mask_words, logits, width);
}

// NaN is skipped for the maximum and makes log_sum NaN.
__device__ RowTotal total_of(SampleShared& shared, const float* logits, std::int64_t width) {
  std::uint64_t best = 0;
  for_ids(width, [&](std::int64_t id) {
    const float logit = logits[id];
    const std::uint64_t mine = ranked(logit, id);
    best = logit == logit && mine > best ? mine : best;
  });
  best = block_max(shared.select, best);
  if (best == 0) {
    return {0.0F, NAN, 0};
  }
  const std::int32_t id = id_of(best);
  const float max = logits[id];
  float sum = 0.0F;
  for_ids(width, [&](std::int64_t at) { sum += expf(logits[at] - max); });
  return {max, logf(block_sum(sum, shared.sums)), id};
}

// A bitonic sort (Batcher 1968), the greatest first.
__device__ void sort_candidates(std::uint64_t* candidates) {
  const int me = thread_index();
  for (int size = 2; size <= kSampleTopMax; size *= 2) {
    for (int distance = size / 2; distance > 0; distance /= 2) {
      block_barrier();
      const int other = me ^ distance;
      const std::uint64_t mine = candidates[me];
      const std::uint64_t others = candidates[other];
      const bool greater_first = ((me & size) == 0) == (me < other);
      block_barrier();
      candidates[me] = (mine > others) == greater_first ? mine : others;
    }
  }
  block_barrier();
}

// Writes the row's best tokens and returns how many are possible. REQUIRES: num_top >= 1.
__device__ int list_top(SampleShared& shared, const float* logits, std::int64_t width, int num_top,
                        const RowTotal& total, TopToken* to) {
  const auto key_at = [&](std::int64_t id) { return key_of(logits[id]); };
  const Kept kept = keep_until(shared.select, width, static_cast<std::uint64_t>(num_top), key_at,
                               [](std::int64_t) { return std::uint64_t{1}; });
  block_barrier();
  shared.candidates[thread_index()] = 0;
  shared.num_candidates = 0;
  block_barrier();
  for_ids(width, [&](std::int64_t id) {
    if (kept.holds(key_at(id), id)) {
      shared.candidates[atomic_add(&shared.num_candidates, 1)] = ranked(logits[id], id);
    }
  });
  sort_candidates(shared.candidates);
  const int me = thread_index();
  const std::int32_t id = id_of(shared.candidates[me]);
  const bool possible = me < num_top && !(logits[me < num_top ? id : 0] == -INFINITY);
  if (possible) {
    to[me] = {id, total.log_probability(logits[id])};
  }
  // Those of probability above 0 come first.
  std::uint64_t count = 0;
  (void)block_prefix(shared.select, possible ? 1 : 0, count);
  return static_cast<int>(count);
}

// The least key of a token that has min_p of the best one's weight.
__device__ std::uint32_t least_key(SelectShared& shared, const SampleRow& row, const float* logits,
                                   std::int64_t width, float max) {
  const float least = row.min_p * kDrawWeightOfBest;
  std::uint32_t inverted = 0;
  for_ids(width, [&](std::int64_t id) {
    const std::uint32_t mine = ~key_of(logits[id]);
    const bool is_kept = draw_weight(logits[id], max, row.temperature) >= least;
    inverted = is_kept && mine > inverted ? mine : inverted;
  });
  return ~static_cast<std::uint32_t>(block_max(shared, inverted));
}

// The least whole number that is this share of a sum, and at least 1.
__device__ std::uint64_t share_of(float share, std::uint64_t sum) {
  const auto least =
      static_cast<std::uint64_t>(ceil(static_cast<double>(share) * static_cast<double>(sum)));
  return least < 1 ? 1 : least < sum ? least : sum;
}

// The id at which the sum of weights, which is `sum`, passes the random number.
template <typename Weight>
__device__ std::int32_t draw_by(SelectShared& shared, const SampleRow& row,
                                const std::int32_t* position, std::int64_t width, std::uint64_t sum,
                                const Weight& weight) {
  const double number = uniform(row.seed, static_cast<std::uint64_t>(*position) + 1);
  const auto target = static_cast<std::uint64_t>(number * static_cast<double>(sum));
  return static_cast<std::int32_t>(
      find_in_order(shared, width, target < sum ? target : sum - 1, weight));
}

template <typename Weight>
__device__ std::uint64_t sum_of(SelectShared& shared, std::int64_t width, const Weight& weight) {
  std::uint64_t mine = 0;
  for_ids(width, [&](std::int64_t id) { mine += weight(id); });
  std::uint64_t sum = 0;
  (void)block_prefix(shared, mine, sum);
  return sum;
}

// Draws by typical_p among the tokens whose exponents are above -inf, which weigh `sum`.
__device__ std::int32_t draw_typical(SelectShared& shared, const SampleRow& row,
                                     const std::int32_t* position, const float* exponents,
                                     std::int64_t width, std::uint64_t sum) {
  const auto weight = [&](std::int64_t id) {
    return static_cast<std::uint64_t>(draw_weight(exponents[id], 0.0F, 1.0F));
  };
  SurprisalSums mine;
  for_ids(width, [&](std::int64_t id) { mine.add(weight(id), surprisal(exponents[id])); });
  SurprisalSums sums;
  (void)block_prefix(shared, mine.weights, sums.weights);
  (void)block_prefix(shared, mine.products, sums.products);
  // In the upper bits, which are searched first: sums by digits are then spread.
  static_assert(kSurprisalMax < 1 << 21);
  const auto key_at = [&, mean = sums.mean()](std::int64_t id) {
    const std::int32_t beyond = surprisal(exponents[id]) - mean;
    return static_cast<std::uint32_t>(kSurprisalMax - (beyond < 0 ? -beyond : beyond)) << 11;
  };
  const Kept kept = keep_until(shared, width, share_of(row.typical_p, sum), key_at, weight);
  const auto kept_weight = [&](std::int64_t id) {
    return kept.holds(key_at(id), id) ? weight(id) : 0;
  };
  return draw_by(shared, row, position, width, sum_of(shared, width, kept_weight), kept_weight);
}

// *position: of the token before. It is read last: until then each register counts. spare: a row
// that may be written, for typical_p; of a row that is not reported it may be the logits.
__device__ std::int32_t draw(SelectShared& shared, const SampleRow& row,
                             const std::int32_t* position, const float* logits, float* spare,
                             std::int64_t width, const RowTotal& total) {
  const auto weight = [&](std::int64_t id) {
    return static_cast<std::uint64_t>(draw_weight(logits[id], total.max, row.temperature));
  };
  const auto key_at = [&](std::int64_t id) { return key_of(logits[id]); };
  Kept kept = {0, static_cast<std::int32_t>(width - 1)};
  if (row.top_k > 0 && row.top_k < width) {
    kept = keep_until(shared, width, static_cast<std::uint64_t>(row.top_k), key_at,
                      [](std::int64_t) { return std::uint64_t{1}; });
  }
  if (row.min_p > 0.0F) {
    const std::uint32_t least = least_key(shared, row, logits, width, total.max);
    if (least > kept.key) kept = {least, static_cast<std::int32_t>(width - 1)};
  }
  const auto kept_weight = [&](std::int64_t id) {
    return kept.holds(key_at(id), id) ? weight(id) : 0;
  };
  std::uint64_t sum = sum_of(shared, width, kept_weight);
  if (row.top_p < 1.0F) {
    kept = keep_until(shared, width, share_of(row.top_p, sum), key_at, kept_weight);
    sum = sum_of(shared, width, kept_weight);
  }
  if (row.typical_p < 1.0F) {
    for_ids(width, [&](std::int64_t id) {
      const bool is_kept = kept.holds(key_at(id), id);
      spare[id] = is_kept ? (logits[id] - total.max) / row.temperature : -INFINITY;
    });
    block_barrier();  // before others read what this thread wrote
    return draw_typical(shared, row, position, spare, width, sum);
  }
  return draw_by(shared, row, position, width, sum, kept_weight);
}

__device__ bool is_finite(float value) { return value - value == 0.0F; }

// A block a row.
__global__ void __launch_bounds__(kSelectThreads) sample_kernel(SampleArgs args) {
  grid_dependency_wait();
  auto& shared = *shared_memory<SampleShared>();
  const std::int64_t at = block_index().x;
  const std::int64_t width = args.logits.columns;
  const SampleRow& row = args.rows[at];
  float* logits = args.logits.data + at * args.logits.stride;
  const std::int32_t mask = args.mask_of == nullptr || row.scored >= 0 ? -1 : args.mask_of[at];
  float* raw = args.raw.data + at * args.raw.stride;
  const auto copy_raw = [&] {
    for_ids(width, [&](std::int64_t id) { raw[id] = logits[id]; });
    block_barrier();  // before others edit what this thread copies
  };
  if (row.is_raw != 0) copy_raw();
  SampleRecord record;
  edit(row, args.counts, row.counts_input != 0 ? args.ids[at] : -1, &shared.input_occurs, logits,
       width);
  if (mask >= 0) {
    if (row.is_raw == 0) copy_raw();
    apply_mask(args.masks + mask * args.mask_words, args.mask_words, logits, width);
  }
  RowTotal total = total_of(shared, logits, width);
  if (is_finite(total.log_sum)) {
    record.token = row.scored;
    if (row.scored < 0) {
      record.token = total.best;
      if (row.temperature > 0.0F) {
        record.token = draw(shared.select, row, args.positions + at, logits,
                            row.is_raw != 0 || mask >= 0 ? logits : raw, width, total);
      }
    }
    // What is reported comes last: of two sets of logits one is needed at a time, in registers too.
    if (row.is_raw != 0 || mask >= 0) {
      block_barrier();
      logits = raw;
      total = total_of(shared, logits, width);
    }
  }
  if (is_finite(total.log_sum)) {
    record.is_valid = 1;
    if (row.num_top > 0) {
      block_barrier();
      record.num_top =
          list_top(shared, logits, width, row.num_top, total, args.top + at * args.top_stride);
    }
    record.logprob = total.log_probability(logits[record.token]);
  } else {
    record = {};
  }
  if (thread_index() == 0) args.records[at] = record;
}

}  // namespace

void sample(Stream& stream, const SampleArgs& args) {
  launch<sample_kernel>({.grid = {.x = static_cast<int>(args.logits.rows)},
                         .num_threads = kSelectThreads,
                         .shared_bytes = sizeof(SampleShared)},
                        stream.handle(), args);
}

}  // namespace lmtp::kernels::cuda
