// Searches in one row by all threads of a block: the elements of the greatest values, and the place
// at which a sum over them passes a number. Of an element of the row `elements` says its value(x),
// its weight(x, id), 0 if it is not there, and whether it may_weigh(x) anything, by one comparison
// (NaN may not). Weights are whole numbers, so that no order of adding matters.
//
// Atomic operations on one address come one after another. So digits are chosen that spread what
// they count, a thread adds once for neighbours of one digit, and sums are of 32-bit words, which a
// device adds in shared memory without trying again. The emulation counts (cuda_sample_test).
#pragma once

#include <device_primitives.cuh>

#include <cmath>
#include <cstdint>

#include "cuda/select_row.cuh"
#include "kernels/device_types.h"

namespace lmtp::kernels::cuda {

// Sums of weights by digits, in shared memory. All threads together: clear_digits(), a DigitSums
// each, flush(), find_digit().
__device__ inline void clear_digits(SelectShared& shared) {
  block_barrier();  // the last sums have been read
  for (int digit = thread_index(); digit < kNumDigits; digit += kSelectThreads) {
    shared.low[digit] = 0;
    shared.high[digit] = 0;
  }
  block_barrier();
}

class DigitSums {
 public:
  __device__ explicit DigitSums(SelectShared& shared) : shared_(shared) {}

  __device__ void add(int digit, std::uint64_t weight) {
    if (digit != digit_) {
      flush();
      digit_ = digit;
      weight_ = 0;
    }
    weight_ += weight;
  }
  __device__ void flush() {
    if (weight_ == 0) return;
    const auto low = static_cast<std::uint32_t>(weight_);
    const bool carries = atomic_add(&shared_.low[digit_], low) + low < low;
    const std::uint32_t high = static_cast<std::uint32_t>(weight_ >> 32) + (carries ? 1 : 0);
    if (high != 0) atomic_add(&shared_.high[digit_], high);
  }

 private:
  SelectShared& shared_;
  int digit_ = 0;
  std::uint64_t weight_ = 0;
};

// A digit or a key, the weight of what has a greater one, and the weight of what has this one.
struct Rank {
  std::uint32_t at;
  std::uint64_t above;
  std::uint64_t equal;
};

// The digit at which `above` and the sums, from the greatest digit down, reach `wanted`. REQUIRES:
// they do.
__device__ inline Rank find_digit(SelectShared& shared, std::uint64_t above, std::uint64_t wanted) {
  block_barrier();
  const auto sum = [&](int digit) {
    return std::uint64_t{shared.high[digit]} << 32 | shared.low[digit];
  };
  // This thread's two digits, from the greatest down.
  const int upper = kNumDigits - 1 - 2 * thread_index();
  const std::uint64_t first = sum(upper);
  const std::uint64_t second = sum(upper - 1);
  std::uint64_t total = 0;
  const std::uint64_t before = above + block_prefix(shared, first + second, total);
  if (before < wanted && before + first + second >= wanted) {
    const bool in_first = before + first >= wanted;
    shared.found = in_first ? upper : upper - 1;
    shared.found_above = in_first ? before : before + first;
    shared.found_equal = in_first ? first : second;
  }
  block_barrier();
  return {static_cast<std::uint32_t>(shared.found), shared.found_above, shared.found_equal};
}

// The id at which the sum of weights, from id 0 up, passes target_of(the sum of all), which is less
// than that sum.
template <typename Target, typename Elements>
__device__ std::int32_t find_in_order(SelectShared& shared, const Row& row, const Target& target_of,
                                      const Elements& elements) {
  // A warp sums a stretch of ids, then the block the stretch in which it is.
  const std::int32_t width = shared.width;
  const std::int32_t stretch = ceil_divide(width, kSelectThreads) * kWarpSize;
  std::int32_t begin = thread_index() / kWarpSize * stretch;
  std::int32_t end = begin + stretch < width ? begin + stretch : width;
  std::uint64_t mine = 0;
  for_weighed(row.values, begin, end, kWarpSize, elements,
              [&](float x, std::int32_t id) { mine += elements.weight(x, id); });
  std::uint64_t total = 0;
  std::uint64_t before = block_prefix(shared, mine, total);
  const std::uint64_t target = target_of(total);
  if (before <= target && target - before < mine) shared.found = begin;
  if (lane_index() == 0) shared.candidates[thread_index() / kWarpSize] = before;
  block_barrier();
  begin = shared.found;
  end = begin + stretch < width ? begin + stretch : width;
  before = shared.candidates[begin / stretch];
  const std::int32_t each = ceil_divide(stretch, kSelectThreads);
  begin += thread_index() * each;
  end = begin + each < end ? begin + each : end;
  mine = 0;
  for (std::int32_t id = begin; id < end; ++id) mine += elements.weight(row.values[id], id);
  before += block_prefix(shared, mine, total);
  if (before <= target && target - before < mine) {
    std::int32_t id = begin;
    while ((before += elements.weight(row.values[id], id)) <= target) ++id;
    shared.found = id;
  }
  block_barrier();
  return shared.found;
}

// The elements that are kept: those of greater values, and of those of this one the ids up to
// `last`.
struct Kept {
  float value;
  std::int32_t last;

  __device__ bool holds(float x, std::int32_t id) const {
    return x > value || (x == value && id <= last);
  }
};
__device__ inline Kept kept_from(std::uint64_t last) { return {value_of(last), id_of(last)}; }
__device__ inline Kept keep_all(const Row& row) { return {-INFINITY, row.width - 1}; }

// The stricter of the two.
__device__ inline Kept stricter(const Kept& a, const Kept& b) {
  return a.value > b.value || (a.value == b.value && a.last < b.last) ? a : b;
}

// --- candidates: few elements, put down and sorted in shared memory ------------------

__device__ inline void clear_candidates(SelectShared& shared) {
  block_barrier();  // the last ones have been read
  if (thread_index() == 0) shared.num_candidates = 0;
  block_barrier();
}

// has_room: of this thread, which stops putting down where there are more than kCandidatesMax: it
// is enough to know that.
__device__ inline void put_candidate(SelectShared& shared, std::uint64_t candidate,
                                     bool& has_room) {
  if (!has_room) return;
  const int at = atomic_add(&shared.num_candidates, 1);
  has_room = at < kCandidatesMax;
  if (has_room) shared.candidates[at] = candidate;
}

// A bitonic sort (Batcher 1968), the greatest first; 0 behind them. REQUIRES: count <=
// kCandidatesMax.
__device__ inline void sort_candidates(SelectShared& shared, int count) {
  const int me = thread_index();
  std::uint64_t mine = me < count ? shared.candidates[me] : 0;
  for (int size = 2; size / 2 < count; size *= 2) {
    const int group = size < kWarpSize ? kWarpSize : size;
    const bool takes_part = (me & -group) < count;  // others are 0; the same in a warp
    for (int distance = size / 2; distance > 0; distance /= 2) {
      std::uint64_t other = 0;
      if (distance >= kWarpSize) {
        block_barrier();
        shared.candidates[me] = mine;
        block_barrier();
        other = shared.candidates[me ^ distance];
      } else if (takes_part) {
        other = shuffle_xor(mine, distance);
      }
      const bool greater_first = ((me & size) == 0) == ((me & distance) == 0);
      mine = (mine > other) == greater_first ? mine : other;
    }
  }
  block_barrier();
  shared.candidates[me] = mine;
  block_barrier();
}

// --- the greatest, until their weights reach a sum -----------------------------------

// Of the elements that weigh anything.
struct Weighed {
  std::uint64_t sum;
  float least;  // value
};

template <typename Elements>
__device__ Weighed weigh(SelectShared& shared, const Row& row, const Elements& elements) {
  std::uint64_t mine = 0;
  float least = INFINITY;
  for_weighed(row, elements, [&](float x, std::int32_t id) {
    const std::uint64_t weight = elements.weight(x, id);
    const float value = elements.value(x);
    least = weight != 0 && value < least ? value : least;
    mine += weight;
  });
  std::uint64_t sum = 0;
  (void)block_prefix(shared, mine, sum);
  least = value_of_key(~static_cast<std::uint32_t>(block_max(shared, ~key_of(least))));
  return {sum, least};
}

// Digits for values between two, in steps of equal width: the greater value has no lower digit.
class EvenDigits {
 public:
  __device__ EvenDigits(float greatest, float least) : greatest_(greatest) {
    const float width = greatest - least;
    scale_ = width > 1e-30F && width < 1e30F ? (kNumDigits - 1) / width : 0.0F;
  }
  __device__ int of(float value) const {
    const float steps = (greatest_ - value) * scale_;
    return kNumDigits - 1 - (steps < kNumDigits - 1 ? static_cast<int>(steps) : kNumDigits - 1);
  }

 private:
  float greatest_;
  float scale_;
};

// keep_until() for values of which very many are nearly equal: their keys are searched by digits of
// 11, 11 and 10 bits, the highest first.
template <typename Elements>
__device__ Kept keep_by_key(SelectShared& shared, const Row& row, std::uint64_t wanted,
                            const Elements& elements) {
  Rank rank = {0, 0, 0};
  int bits_left = 32;
#pragma unroll 1
  while (bits_left > 0) {
    const int shift = bits_left > kDigitBits ? bits_left - kDigitBits : 0;
    const std::uint32_t num_digits = 1U << (bits_left - shift);
    clear_digits(shared);
    DigitSums sums(shared);
    for_row<4>(row, [&](float x, std::int32_t id) {
      const std::uint32_t key = key_of(elements.value(x));
      if (bits_left == 32 || key >> (bits_left % 32) == rank.at >> (bits_left % 32)) {
        sums.add(static_cast<int>(key >> shift & (num_digits - 1)), elements.weight(x, id));
      }
    });
    sums.flush();
    const Rank digit = find_digit(shared, rank.above, wanted);
    rank = {rank.at | digit.at << shift, digit.above, digit.equal};
    bits_left = shift;
  }
  const float value = value_of_key(rank.at);
  if (rank.above + rank.equal == wanted) return {value, row.width - 1};
  struct OfValue {
    const Elements& all;
    float wanted;
    __device__ bool may_weigh(float x) const { return all.may_weigh(x); }
    __device__ std::uint64_t weight(float x, std::int32_t id) const {
      return all.value(x) == wanted ? all.weight(x, id) : 0;
    }
  };
  const std::int32_t last = find_in_order(
      shared, row, [&](std::uint64_t) { return wanted - rank.above - 1; },
      OfValue{elements, value});
  return {value, last};
}

// Those of the greatest values, ties by the lowest id, until their weights reach `wanted`. What
// weighs anything lies between `least` and `greatest`. REQUIRES: 1 <= wanted <= the sum of all
// weights.
template <typename Elements>
__device__ Kept keep_until(SelectShared& shared, const Row& row, std::uint64_t wanted,
                           float greatest, float least, const Elements& elements) {
  const EvenDigits digits(greatest, least);
  clear_digits(shared);
  DigitSums sums(shared);
  for_weighed(row, elements, [&](float x, std::int32_t id) {
    const std::uint64_t weight = elements.weight(x, id);
    if (weight != 0) sums.add(digits.of(elements.value(x)), weight);
  });
  sums.flush();
  const Rank rank = find_digit(shared, 0, wanted);
  clear_candidates(shared);
  bool has_room = true;
  for_row<4>(row, [&](float x, std::int32_t id) {
    const float value = elements.value(x);
    if (digits.of(value) == static_cast<int>(rank.at) && elements.weight(x, id) != 0) {
      put_candidate(shared, ranked(value, id), has_room);
    }
  });
  block_barrier();
  const int count = shared.num_candidates;
  if (count > kCandidatesMax) return keep_by_key(shared, row, wanted, elements);
  sort_candidates(shared, count);
  const bool is_one = thread_index() < count;
  const std::uint64_t mine = shared.candidates[thread_index()];
  const std::int32_t id = is_one ? id_of(mine) : 0;
  const std::uint64_t weight = is_one ? elements.weight(row.values[id], id) : 0;
  std::uint64_t total = 0;
  const std::uint64_t before = rank.above + block_prefix(shared, weight, total);
  if (before < wanted && before + weight >= wanted) shared.found_above = mine;
  block_barrier();
  return kept_from(shared.found_above);
}

// --- the best, by what each thread has found to be its best --------------------------

// So many of the best are looked for at once: few enough that what the bound below lets through is
// rarely more than kCandidatesMax.
inline constexpr int kBestAtOnce = 256;

// The n-th greatest of the lanes' values, which are distinct or 0, in all lanes.
__device__ inline std::uint64_t nth_of_warp(std::uint64_t value, int n) {
  int above = 0;
#pragma unroll 8
  for (int lane = 0; lane < kWarpSize; ++lane) above += shuffle(value, lane) > value ? 1 : 0;
  return warp_max(above >= n - 1 ? value : 0);
}

// At least `count` elements are not below it: some warps have so many each. 0 where there are
// fewer. REQUIRES: shared.thread_best; count <= kSelectThreads.
__device__ inline std::uint64_t bound_of_best(SelectShared& shared, int count) {
  const int each = ceil_divide(count, kSelectWarps);
  std::uint64_t nth = shared.thread_best[thread_index()];
  nth = each == 1 ? warp_max(nth) : nth_of_warp(nth, each);
  block_barrier();  // what is there has been read
  if (lane_index() == 0) shared.warp_sums[thread_index() / kWarpSize] = nth;
  block_barrier();
  return nth_of_warp(shared.warp_sums[lane_index()], ceil_divide(count, each));
}

// Puts down the possible elements in [bound, limit); returns how many there are. A warp reads what
// belongs to those of its threads whose best one is not below.
__device__ inline int gather_best(SelectShared& shared, const Row& row, std::uint64_t bound,
                                  std::uint64_t limit) {
  clear_candidates(shared);
  bool has_room = true;
  const std::uint32_t threads = warp_ballot(shared.thread_best[thread_index()] >= bound);
#pragma unroll 1
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if ((threads >> lane & 1) == 0) continue;
    const std::int32_t first = thread_index() - lane_index() + lane + lane_index() * kSelectThreads;
    for_range<4>(row.values, first, row.width, kWarpSize * kSelectThreads,
                 [&](float x, std::int32_t id) {
                   const std::uint64_t one = ranked(x, id);
                   if (one >= bound && one < limit && x != -INFINITY) {
                     put_candidate(shared, one, has_room);
                   }
                 });
  }
  block_barrier();
  return shared.num_candidates;
}

__device__ inline void find_thread_best(SelectShared& shared, const Row& row, std::uint64_t limit) {
  std::uint64_t best = 0;
  for_row(row, [&](float x, std::int32_t id) {
    const std::uint64_t one = ranked(x, id);
    best = one < limit && one > best ? one : best;
  });
  shared.thread_best[thread_index()] = best;
}

// take(place, candidate) for the `count` best possible elements, or all, each by some thread;
// returns how many they are. REQUIRES: shared.thread_best; count >= 1; no NaN in the row.
template <typename Take>
__device__ int take_best(SelectShared& shared, const Row& row, int count, const Take& take) {
  constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
  std::uint64_t limit = kNoLimit;
  int num_taken = 0;
  int at_once = kBestAtOnce;
  for (;;) {
    at_once = at_once < count - num_taken ? at_once : count - num_taken;
    const int found = gather_best(shared, row, bound_of_best(shared, at_once), limit);
    if (found > kCandidatesMax) {  // most of them belong to few threads
      at_once /= 2;
      continue;
    }
    sort_candidates(shared, found);
    const int more = found < count - num_taken ? found : count - num_taken;
    if (thread_index() < more) take(num_taken + thread_index(), shared.candidates[thread_index()]);
    num_taken += more;
    if (num_taken == count || found < at_once) break;
    limit = shared.candidates[more - 1];
    find_thread_best(shared, row, limit);
  }
  if (limit != kNoLimit) find_thread_best(shared, row, kNoLimit);
  return num_taken;
}

}  // namespace lmtp::kernels::cuda
