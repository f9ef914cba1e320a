#include "cuda/sample.h"

#include <device_primitives.cuh>

#include <cmath>
#include <limits>

#include "cuda/block_rows.cuh"
#include "cuda/selection.cuh"
#include "kernels/draw_weight.h"
#include "kernels/philox.h"

namespace lmtp::kernels::cuda {
namespace {

struct RowTotal {
  float max;
  float log_sum;  // of e^(logit - max)
  std::int32_t best;

  __device__ float log_probability(float logit) const { return (logit - max) - log_sum; }
};

struct SampleShared {
  SelectShared select;
  int input_occurs;
  // For later, since registers count:
  int at;  // row
  int is_copied;
  RowTotal total;
  float sums[kSelectWarps];
};
static_assert(kSampleTopMax == kCandidatesMax);

struct TokenBias {
  std::int32_t id = 0;
  float value = 0.0F;
};

// logits[edit.id] = edited(logit, edit) for edit = edit_of(i) of i in [0, count), ids distinct: a
// thread reads several before it writes the first.
template <typename EditOf, typename Edited>
__device__ void edit_logits(std::int64_t count, float* logits, const EditOf& edit_of,
                            const Edited& edited) {
  constexpr int kBatch = 4;
  for (std::int64_t begin = thread_index(); begin < count; begin += kBatch * kSelectThreads) {
    decltype(edit_of(0)) edits[kBatch];
    float values[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int64_t i = begin + k * kSelectThreads;
      if (i < count) edits[k] = edit_of(i);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int64_t i = begin + k * kSelectThreads;
      values[k] = i < count ? edited(logits[edits[k].id], edits[k]) : 0.0F;
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (begin + k * kSelectThreads < count) logits[edits[k].id] = values[k];
    }
  }
  block_barrier();
}

// By additions, as a bias, so that what is not a number stays so.
__device__ void apply_mask(const std::uint32_t* words, std::int64_t num_words, float* logits,
                           std::int32_t width) {
  constexpr int kBatch = 8;
  for (std::int32_t begin = thread_index(); begin < width; begin += kBatch * kSelectThreads) {
    std::uint32_t allowed[kBatch];
    float values[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int32_t id = begin + k * kSelectThreads;
      allowed[k] = id < width && id / 32 < num_words ? words[id / 32] : 0;
      values[k] = id < width ? logits[id] : 0.0F;
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int32_t id = begin + k * kSelectThreads;
      if (id < width && (allowed[k] >> (id % 32) & 1) == 0) logits[id] = values[k] + -INFINITY;
    }
  }
  block_barrier();
}

// Penalties over the tokens so far, then the bias and the mask. input: the input token, if it
// counts once more; else negative.
__device__ void edit(const SampleRow& row, const TokenCount* all_counts, std::int32_t input,
                     int* occurs, float* logits, std::int32_t width) {
  const TokenCount* counts = all_counts + row.first_count;
  if (thread_index() == 0) *occurs = input < 0 ? 1 : 0;
  block_barrier();
  edit_logits(
      row.num_counts, logits, [&](std::int64_t i) { return counts[i]; },
      [&](float logit, const TokenCount& counted) {
        const bool is_input = counted.id == input;
        if (is_input) *occurs = 1;  // ids are distinct: one thread at most
        return penalized(logit, row, counted.count + (is_input ? 1 : 0));
      });
  if (*occurs == 0 && thread_index() == 0) logits[input] = penalized(logits[input], row, 1);
  block_barrier();
  edit_logits(
      row.num_biases, logits,
      [&](std::int64_t i) {
        return TokenBias{row.bias_ids[i], row.bias_values[i]};
      },
      [](float logit, const TokenBias& bias) { return logit + bias.value; });
  if (row.mask != nullptr) apply_mask(row.mask, row.num_mask_words, logits, width);
}

// What exponents are relative to where `best` is the greatest: a difference to it is a number where
// all were -inf, too.
__device__ float base_of(float best) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  return best > kLowest ? best : kLowest;
}

// In one pass: a thread sums by its own greatest logit so far, and scales the sum where a batch has
// a greater one. NaN is skipped for the maximum and makes log_sum NaN, as +inf does.
__device__ RowTotal total_of(SampleShared& shared, const Row& row) {
  constexpr int kBatch = 16;
  float best = -INFINITY;
  std::int32_t best_id = thread_index();
  float sum = 0.0F;
  for_batches<kBatch>(row.values, thread_index(), row.width, kSelectThreads,
                      [&](const float(&batch)[kBatch], std::int32_t begin) {
                        const float before = base_of(best);
#pragma unroll
                        for (int k = 0; k < kBatch; ++k) {
                          best_id = batch[k] > best ? begin + k * kSelectThreads : best_id;
                          best = batch[k] > best ? batch[k] : best;
                        }
                        const float base = base_of(best);
                        sum *= expf(before - base);
#pragma unroll
                        for (int k = 0; k < kBatch; ++k) {
                          // A last half that lies beyond the row costs nothing.
                          if (k == kBatch / 2 && begin + k * kSelectThreads >= row.width) return;
                          sum += expf(batch[k] - base);
                        }
                      });
  const std::uint64_t mine = thread_index() < row.width ? ranked(best, best_id) : 0;
  shared.select.thread_best[thread_index()] = mine;
  const std::uint64_t of_all = block_max(shared.select, mine);
  const float max = value_of(of_all);
  sum *= expf(base_of(best) - base_of(max));
  return {max, logf(block_sum(sum, shared.sums)), id_of(of_all)};
}

// The entropy, and the rank of a token of that logit, by a thread's elements in their order and
// then as total_of() adds up.
__device__ TopToken measure(SampleShared& shared, const Row& row, const RowTotal& total,
                            float logit) {
  // e^x of less is no normal float, and -inf times 0 no number.
  constexpr float kNoProbability = -87.0F;
  float sum = 0.0F;
  std::uint64_t not_less = 0;
  for_row<4>(row, [&](float x, std::int32_t) {
    const float logprob = total.log_probability(x);
    sum += logprob < kNoProbability ? 0.0F : expf(logprob) * -logprob;
    not_less += x >= logit ? 1 : 0;
  });
  std::uint64_t rank = 0;
  (void)block_prefix(shared.select, not_less, rank);
  return {static_cast<std::int32_t>(rank), block_sum(sum, shared.sums)};
}

// Writes the row's best tokens and returns how many are possible. REQUIRES: num_top >= 1.
__device__ int list_top(SelectShared& shared, const Row& row, int num_top, const RowTotal& total,
                        TopToken* to) {
  if (num_top == 1) {
    if (thread_index() == 0) *to = {total.best, total.log_probability(total.max)};
    return 1;
  }
  return take_best(shared, row, num_top, [&](int place, std::uint64_t one) {
    to[place] = {id_of(one), total.log_probability(value_of(one))};
  });
}

// The least logit of a token that has min_p of the best one's weight.
__device__ float least_kept(SelectShared& shared, const SampleRow& params, const Row& row,
                            float max) {
  const float wanted = params.min_p * kDrawWeightOfBest;
  float least = max;
  for_row<4>(row, [&](float logit, std::int32_t) {
    const bool is_kept = logit < least && draw_weight(logit, max, params.temperature) >= wanted;
    least = is_kept ? logit : least;
  });
  return value_of_key(~static_cast<std::uint32_t>(block_max(shared, ~key_of(least))));
}

// The least whole number that is this share of a sum, and at least 1.
__device__ std::uint64_t share_of(float share, std::uint64_t sum) {
  const auto least =
      static_cast<std::uint64_t>(ceil(static_cast<double>(share) * static_cast<double>(sum)));
  return least < 1 ? 1 : least < sum ? least : sum;
}

// What a draw does with a row: first of logits, then, for typical_p, of the exponents of weights.
class Drawn {
 public:
  // temperature: 0: each possible one weighs 1. mean: surprisal, to whose nearness exponents are
  // ranked; negative: by themselves.
  __device__ Drawn(float max, float temperature, const Kept& all, std::int32_t mean = -1)
      : max_(max), temperature_(temperature), mean_(mean), kept_(all) {
    // Nothing below weighs anything, whatever is rounded here and in draw_weight().
    static_assert(kDrawExponentMin == -28.0F);
    least_ = temperature > 0.0F ? max - 28.01F * temperature : std::numeric_limits<float>::lowest();
  }

  // Of those of before.
  __device__ void keep(const Kept& kept) {
    kept_ = kept;
    if (mean_ < 0 && kept.value > least_) least_ = kept.value;
  }
  __device__ const Kept& kept() const { return kept_; }

  __device__ float value(float x) const {
    if (mean_ < 0) return x;
    const std::int32_t beyond = surprisal(x) - mean_;
    return -static_cast<float>(beyond < 0 ? -beyond : beyond);
  }
  __device__ bool may_weigh(float x) const { return x >= least_; }
  __device__ std::uint64_t weight(float x, std::int32_t id) const {
    if (!may_weigh(x) || !kept_.holds(value(x), id)) return 0;
    if (!(temperature_ > 0.0F)) return 1;
    return static_cast<std::uint64_t>(draw_weight(x, max_, temperature_));
  }

 private:
  float max_;
  float temperature_;
  float least_;  // that may weigh anything
  std::int32_t mean_;
  Kept kept_;  // by value()
};
static_assert(kSurprisalMax < 1 << 24);  // whole as a float

__device__ std::int32_t mean_surprisal(SelectShared& shared, const Row& exponents) {
  const Drawn drawn(0.0F, 1.0F, keep_all(exponents));
  SurprisalSums mine;
  for_weighed(exponents, drawn,
              [&](float x, std::int32_t id) { mine.add(drawn.weight(x, id), surprisal(x)); });
  SurprisalSums sums;
  (void)block_prefix(shared, mine.weights, sums.weights);
  (void)block_prefix(shared, mine.products, sums.products);
  return sums.mean();
}

__device__ std::int32_t draw(SampleShared& of_row, const SampleArgs& args, const SampleRow& params,
                             Row row, float max) {
  SelectShared& shared = of_row.select;
  Drawn drawn(max, params.temperature, keep_all(row));
  const bool has_top_k = params.top_k > 0 && params.top_k < row.width;
  if (has_top_k && params.top_k <= kCandidatesMax) {
    const int num_taken = take_best(shared, row, params.top_k, [&](int place, std::uint64_t one) {
      if (place == params.top_k - 1) shared.found_above = one;
    });
    block_barrier();
    if (num_taken == params.top_k) drawn.keep(kept_from(shared.found_above));
  }
  enum Stage { kCount, kNucleus, kTypical, kNumStages };
#pragma unroll 1  // one after another, by the same code
  for (int stage = kCount; stage < kNumStages; ++stage) {
    const bool counts = stage == kCount;
    if (stage == kNucleus && params.min_p > 0.0F) {
      const float least = least_kept(shared, params, row, max);
      drawn.keep(stricter(drawn.kept(), {least, row.width - 1}));
    }
    const float share = stage == kNucleus ? params.top_p : params.typical_p;
    if (counts ? !has_top_k || params.top_k <= kCandidatesMax : share >= 1.0F) continue;
    if (stage == kTypical) {
      // A row that may be written: of one that is not reported the logits.
      const std::int64_t at = of_row.at;
      float* spare = of_row.is_copied != 0 ? args.logits.data + at * args.logits.stride
                                           : args.raw.data + at * args.raw.stride;
      for_row(row, [&](float logit, std::int32_t id) {
        const bool is_kept = drawn.kept().holds(logit, id);
        spare[id] = is_kept ? (logit - max) / params.temperature : -INFINITY;
      });
      block_barrier();  // before others read what this thread wrote
      row.values = spare;
      drawn = Drawn(0.0F, 1.0F, keep_all(row), mean_surprisal(shared, row));
    }
    if (counts) drawn = Drawn(max, 0.0F, keep_all(row));
    const Weighed all = weigh(shared, row, drawn);
    const auto top_k = static_cast<std::uint64_t>(params.top_k);
    const std::uint64_t wanted = !counts           ? share_of(share, all.sum)
                                 : top_k < all.sum ? top_k
                                                   : all.sum;
    const float greatest = stage == kTypical ? 0.0F : max;
    const Kept kept = keep_until(shared, row, wanted, greatest, all.least, drawn);
    if (counts) drawn = Drawn(max, params.temperature, keep_all(row));
    drawn.keep(kept);
  }
  // The id at which the sum of weights passes the random number.
  const auto target_of = [&](std::uint64_t sum) {
    const double number =
        uniform(params.seed, static_cast<std::uint64_t>(args.positions[of_row.at]) + 1);
    const auto target = static_cast<std::uint64_t>(number * static_cast<double>(sum));
    return target < sum ? target : sum - 1;
  };
  return find_in_order(shared, row, target_of, drawn);
}

__device__ bool is_finite(float value) { return value - value == 0.0F; }

// total: of the logits that were drawn from.
__device__ void report(SampleShared& shared, const SampleArgs& args, std::int32_t token,
                       RowTotal total) {
  const std::int64_t at = shared.at;
  const auto width = static_cast<std::int32_t>(args.logits.columns);
  Row row = {args.logits.data + at * args.logits.stride, width};
  if (shared.is_copied != 0 && is_finite(total.log_sum)) {
    block_barrier();
    row.values = args.raw.data + at * args.raw.stride;
    total = total_of(shared, row);
  }
  SampleRecord record;
  if (is_finite(total.log_sum)) {
    // As in the list, where -0 is 0.
    const float logit = token == total.best ? total.max : row.values[token] + 0.0F;
    record = {.is_valid = 1, .token = token, .logprob = total.log_probability(logit)};
    const SampleRow& params = args.rows[at];
    TopToken* const top = args.top + at * args.top_stride;
    if (params.num_top > 0) {
      record.num_top = list_top(shared.select, row, params.num_top, total, top);
    }
    for (std::int64_t i = thread_index(); i < params.num_listed; i += kSelectThreads) {
      const std::int32_t id = params.listed_ids[i];
      top[params.num_top + i] = {id, total.log_probability(row.values[id] + 0.0F)};
    }
    if (params.is_measured != 0) {
      const TopToken measured = measure(shared, row, total, logit);
      if (thread_index() == 0) top[params.num_top + params.num_listed] = measured;
    }
  }
  if (thread_index() != 0) return;
  args.records[at] = record;
  if (args.sent != nullptr) args.sent[at] = record;
}

// A block a row.
__global__ void __launch_bounds__(kSelectThreads) sample_kernel(SampleArgs args) {
  grid_dependency_wait();
  auto& shared = *shared_memory<SampleShared>();
  const std::int64_t at = block_index().x;
  const SampleRow& params = args.rows[at];
  if (params.scored == kSampleNothing) return;
  float* logits = args.logits.data + at * args.logits.stride;
  const Row row = {logits, static_cast<std::int32_t>(args.logits.columns)};
  const std::int32_t mask = args.mask_of == nullptr || params.scored >= 0 ? -1 : args.mask_of[at];
  const bool is_copied = params.is_raw != 0 || mask >= 0;
  float* raw = args.raw.data + at * args.raw.stride;
  const auto copy_raw = [&] {
    for_row(row, [&](float logit, std::int32_t id) { raw[id] = logit; });
    block_barrier();  // before others edit what this thread copies
  };
  if (params.is_raw != 0) copy_raw();
  edit(params, args.counts, params.counts_input != 0 ? args.ids[at] : -1, &shared.input_occurs,
       logits, row.width);
  if (mask >= 0) {
    if (params.is_raw == 0) copy_raw();
    apply_mask(args.masks + mask * args.mask_words, args.mask_words, logits, row.width);
  }
  if (thread_index() == 0) {
    shared.at = static_cast<int>(at);
    shared.is_copied = is_copied ? 1 : 0;
    shared.select.width = row.width;
  }
  const RowTotal found = total_of(shared, row);
  if (thread_index() == 0) shared.total = found;
  block_barrier();
  std::int32_t token = params.scored >= 0 ? params.scored : shared.total.best;
  if (params.scored < 0 && params.temperature > 0.0F && is_finite(shared.total.log_sum)) {
    token = draw(shared, args, params, row, shared.total.max);
  }
  // What is reported comes last: of two sets of logits one is needed at a time, in registers too.
  report(shared, args, token, shared.total);
}

}  // namespace

void sample(Stream& stream, const SampleArgs& args) {
  launch<sample_kernel>({.grid = {.x = static_cast<int>(args.logits.rows)},
                         .num_threads = kSelectThreads,
                         .shared_bytes = sizeof(SampleShared)},
                        stream.handle(), args);
}

}  // namespace lmtp::kernels::cuda
