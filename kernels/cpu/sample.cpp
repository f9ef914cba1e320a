#include "sample.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>

#include "kernels/draw_weight.h"
#include "kernels/philox.h"
#include "lmtp/base/check.h"

namespace lmtp::kernels::plain {
namespace {

// A share of the weights is searched by buckets of (max - logit) / temperature, each 1/64 wide;
// beyond the last one nothing weighs anything.
constexpr double kBucketsPerUnit = 64.0;
constexpr std::size_t kNumBuckets = 28 * 64 + 1;
static_assert(kDrawExponentMin == -28.0F);

// Chunks of the row whose maxima bound the selection, for each selected token.
constexpr std::int64_t kChunksPerSelected = 4;

// A worker's memory, of a vocabulary of that size.
struct Workspace {
  Workspace(void* memory, std::int64_t vocab_size)
      : sums(static_cast<std::uint64_t*>(memory)),
        ranked(sums + kNumBuckets),
        weights(reinterpret_cast<float*>(ranked + vocab_size)),
        values(weights + vocab_size),
        indices(reinterpret_cast<std::int32_t*>(values)) {}

  static std::size_t num_bytes(std::int64_t vocab_size) {
    constexpr std::size_t kLine = 64;
    const std::size_t needed =
        (kNumBuckets + static_cast<std::size_t>(vocab_size) * 2) * sizeof(std::uint64_t);
    return (needed + kLine - 1) / kLine * kLine;
  }

  std::uint64_t* sums;    // [kNumBuckets]
  std::uint64_t* ranked;  // [vocab_size]: of select_best, best first
  float* weights;         // [vocab_size]
  float* values;          // [vocab_size]: while select_best runs
  std::int32_t* indices;  // [vocab_size]: in the same memory, after them
};

// The better of two elements has the greater number: the greater value (-0 and 0 are one), then the
// lower id.
std::uint64_t ranked(float value, std::int32_t id) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0F);
  const std::uint32_t key = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  return std::uint64_t{key} << 32 | (0xFFFFFFFFU - static_cast<std::uint32_t>(id));
}
std::int32_t id_of(std::uint64_t candidate) {
  return static_cast<std::int32_t>(0xFFFFFFFFU - static_cast<std::uint32_t>(candidate));
}

std::uint64_t whole(float weight) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(weight));
}

constexpr std::size_t kByteBits = 8;
using ByteBiases = std::array<float, kByteBits>;

// For each byte of a mask what is added to the logits of its eight tokens. -0 changes no float.
constexpr auto kBiasesOfByte = [] {
  std::array<ByteBiases, 256> all{};
  for (std::size_t byte = 0; byte < all.size(); ++byte) {
    for (std::size_t bit = 0; bit < kByteBits; ++bit) {
      const bool allowed = ((byte >> bit) & 1) != 0;
      all[byte][bit] = allowed ? -0.0F : -std::numeric_limits<float>::infinity();
    }
  }
  return all;
}();

// By additions, as a bias, so that what is not a number stays so; eight at a time, without
// branches.
void apply_mask(std::span<float> logits, std::span<const std::uint32_t> words) {
  constexpr std::size_t kWordBits = 32;
  for (std::size_t first = 0; first < logits.size(); first += kByteBits) {
    const std::size_t at = first / kWordBits;
    const std::uint32_t word = at < words.size() ? words[at] : 0;
    const ByteBiases& biases = kBiasesOfByte[(word >> (first % kWordBits)) & 0xFF];
    const std::size_t count = std::min(kByteBits, logits.size() - first);
    if (count == kByteBits) {
      for (std::size_t i = 0; i < kByteBits; ++i) logits[first + i] += biases[i];
    } else {
      for (std::size_t i = 0; i < count; ++i) logits[first + i] += biases[i];
    }
  }
}

class RowSampler {
 public:
  RowSampler(const RowOps& ops, Workspace work, const SampleRow& row, std::span<float> logits)
      : ops_(ops), work_(work), row_(row), logits_(logits) {}

  // mask: of the draw; empty: none. raw: for a copy of the logits that are reported, where others
  // are drawn from.
  SampleRecord run(const TokenCount* counts, std::int32_t input,
                   std::span<const std::uint32_t> mask, std::int32_t position, float* raw,
                   TopToken* top) {
    if (row_.is_raw != 0) std::ranges::copy(logits_, raw);
    edit(counts, input);
    const bool is_masked = !mask.empty() && row_.scored < 0;
    if (is_masked) {
      if (row_.is_raw == 0) std::ranges::copy(logits_, raw);
      apply_mask(logits_, mask);
    }
    LogSumExp total = ops_.logsumexp(logits_.data(), size());
    if (!std::isfinite(total.log_sum)) return {};
    SampleRecord record{.is_valid = 1, .token = row_.scored};
    if (row_.scored < 0 && row_.temperature > 0.0F) {
      record.token = draw(total.max, static_cast<std::uint64_t>(position) + 1);
    }
    if (row_.is_raw != 0 || is_masked) {
      if (record.token < 0) record.token = best();
      logits_ = {raw, logits_.size()};
      total = ops_.logsumexp(logits_.data(), size());
      if (!std::isfinite(total.log_sum)) return {};
    }
    if (row_.num_top > 0) {
      const std::int64_t count = select_best(row_.num_top);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int32_t id = id_of(work_.ranked[i]);
        top[i] = {id, total.log_probability(at(id))};
      }
      record.num_top = static_cast<std::int32_t>(count);
      if (record.token < 0) record.token = top[0].id;
    } else if (record.token < 0) {
      record.token = best();
    }
    record.logprob = total.log_probability(at(record.token));
    for (std::int64_t i = 0; i < row_.num_listed; ++i) {
      const std::int32_t id = row_.listed_ids[i];
      top[row_.num_top + i] = {id, total.log_probability(at(id))};
    }
    if (row_.is_measured != 0) {
      const float logit = at(record.token);
      const auto rank = std::ranges::count_if(logits_, [&](float other) { return other >= logit; });
      top[row_.num_top + row_.num_listed] = {static_cast<std::int32_t>(rank),
                                             ops_.entropy(logits_.data(), size(), total)};
    }
    return record;
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(logits_.size()); }
  float& at(std::int32_t id) const { return logits_[static_cast<std::size_t>(id)]; }

  // input: the input token, if it counts once more; else negative.
  void edit(const TokenCount* counts, std::int32_t input) {
    bool occurs = input < 0;
    for (std::int64_t i = 0; i < row_.num_counts; ++i) {
      const TokenCount& seen = counts[row_.first_count + i];
      const bool is_input = seen.id == input;
      at(seen.id) = penalized(at(seen.id), row_, seen.count + (is_input ? 1 : 0));
      occurs = occurs || is_input;
    }
    if (!occurs) at(input) = penalized(at(input), row_, 1);
    for (std::int64_t i = 0; i < row_.num_biases; ++i) at(row_.bias_ids[i]) += row_.bias_values[i];
    if (row_.mask != nullptr) {
      apply_mask(logits_, {row_.mask, static_cast<std::size_t>(row_.num_mask_words)});
    }
  }

  // Writes the `count` best of the row that are possible, or as many as are, and returns how many.
  std::int64_t select_best(std::int64_t count) {
    // At least `count` elements are not below the count-th greatest of the chunks' maxima.
    const std::int64_t chunk = std::max<std::int64_t>(1, size() / (kChunksPerSelected * count));
    float* end_of_values = work_.values;
    for (std::int64_t first = 0; first < size(); first += chunk) {
      *end_of_values++ = ops_.max(logits_.data() + first, std::min(chunk, size() - first));
    }
    float* nth = work_.values + (count - 1);
    std::nth_element(work_.values, nth, end_of_values, std::greater<>());
    // Impossible tokens are not: there may be as many as a mask forbids.
    const float least = std::max(*nth, std::numeric_limits<float>::lowest());
    const std::int64_t found = ops_.select_at_least(logits_.data(), size(), least, work_.indices);
    for (std::int64_t i = 0; i < found; ++i) {
      work_.ranked[i] = ranked(at(work_.indices[i]), work_.indices[i]);
    }
    count = std::min(count, found);
    std::partial_sort(work_.ranked, work_.ranked + count, work_.ranked + found, std::greater<>());
    return count;
  }

  std::int32_t best() {
    (void)select_best(1);
    return id_of(work_.ranked[0]);
  }

  std::int32_t draw(float max, std::uint64_t position) {
    ops_.draw_weights(logits_.data(), size(), max, row_.temperature, work_.weights);
    if (row_.min_p > 0.0F) keep_min_p(max);
    if (row_.top_k > 0 && row_.top_k < size()) keep_best(row_.top_k);
    std::uint64_t sum = row_.top_p < 1.0F ? keep_nucleus(max) : sum_of_weights();
    if (row_.typical_p < 1.0F) sum = keep_typical(max);
    // The token at which the sum of the weights, in order of ids, passes the target.
    const auto drawn =
        static_cast<std::uint64_t>(uniform(row_.seed, position) * static_cast<double>(sum));
    const std::uint64_t target = std::min(drawn, sum - 1);
    std::uint64_t passed = 0;
    std::int32_t id = 0;
    while ((passed += whole(work_.weights[id])) <= target) ++id;
    return id;
  }

  std::uint64_t sum_of_weights() const {
    std::uint64_t sum = 0;
    for (std::int64_t id = 0; id < size(); ++id) sum += whole(work_.weights[id]);
    return sum;
  }

  // Sets the weights of what is below the least logit that has min_p of the best one's weight to
  // zero.
  void keep_min_p(float max) {
    const float wanted = row_.min_p * kDrawWeightOfBest;
    float least = max;
    for (std::int64_t id = 0; id < size(); ++id) {
      const float logit = logits_[static_cast<std::size_t>(id)];
      least = work_.weights[id] >= wanted ? std::min(least, logit) : least;
    }
    for (std::int64_t id = 0; id < size(); ++id) {
      if (logits_[static_cast<std::size_t>(id)] < least) work_.weights[id] = 0.0F;
    }
  }

  // Sets the weights of all but the `count` best tokens to zero.
  void keep_best(std::int64_t count) {
    count = select_best(count);
    for (std::int64_t i = 0; i < count; ++i) {
      work_.values[i] = work_.weights[id_of(work_.ranked[i])];
    }
    std::fill_n(work_.weights, size(), 0.0F);
    for (std::int64_t i = 0; i < count; ++i) {
      work_.weights[id_of(work_.ranked[i])] = work_.values[i];
    }
  }

  // Sets the weights outside of the nucleus to zero; returns the sum of those in it.
  std::uint64_t keep_nucleus(float max) {
    const double scale = kBucketsPerUnit / static_cast<double>(row_.temperature);
    const auto bucket_of = [&](std::int64_t id) {
      const float below = max - logits_[static_cast<std::size_t>(id)];
      return std::min(static_cast<std::size_t>(static_cast<double>(below) * scale),
                      kNumBuckets - 1);
    };
    return keep_share(row_.top_p, bucket_of, [&](std::int32_t id) { return ranked(at(id), id); });
  }

  // As keep_nucleus, of the tokens whose surprisals are nearest to their mean.
  std::uint64_t keep_typical(float max) {
    const auto surprisal_of = [&](std::int64_t id) {
      return surprisal((logits_[static_cast<std::size_t>(id)] - max) / row_.temperature);
    };
    SurprisalSums sums;
    for (std::int64_t id = 0; id < size(); ++id) {
      if (work_.weights[id] >= 1.0F) sums.add(whole(work_.weights[id]), surprisal_of(id));
    }
    LMTP_CHECK(sums.weights > 0);  // the best token's
    const auto distance = [&, mean = sums.mean()](std::int64_t id) {
      return static_cast<std::uint32_t>(std::abs(surprisal_of(id) - mean));
    };
    constexpr std::uint32_t kUnitsPerBucket = 1024;
    static_assert(kSurprisalMax / kUnitsPerBucket < kNumBuckets);
    return keep_share(
        row_.typical_p,
        [&](std::int64_t id) { return std::size_t{distance(id) / kUnitsPerBucket}; },
        [&](std::int32_t id) {
          return std::uint64_t{~distance(id)} << 32 | ~static_cast<std::uint32_t>(id);
        });
  }

  // Keeps the weights of the highest rank_of(id), an id in its last bits as in ranked(), as many as
  // it takes to have this share of all, and sets others to zero; returns the sum of those kept.
  // Instead of sorting the row, weights are summed in buckets, the lowest of the highest rank, and
  // only the one in which the list ends is sorted.
  template <typename BucketOf, typename RankOf>
  std::uint64_t keep_share(float share, const BucketOf& bucket_of, const RankOf& rank_of) {
    std::fill_n(work_.sums, kNumBuckets, 0);
    std::uint64_t all = 0;
    for (std::int64_t id = 0; id < size(); ++id) {
      const std::uint64_t weight = whole(work_.weights[id]);
      if (weight == 0) continue;
      work_.sums[bucket_of(id)] += weight;
      all += weight;
    }
    const auto least = static_cast<std::uint64_t>(
        std::ceil(static_cast<double>(share) * static_cast<double>(all)));
    const std::uint64_t wanted = std::clamp<std::uint64_t>(least, 1, all);
    std::uint64_t sum = 0;
    std::size_t last = 0;
    while (sum + work_.sums[last] < wanted) sum += work_.sums[last++];
    std::int64_t num_last = 0;
    for (std::int64_t id = 0; id < size(); ++id) {
      if (whole(work_.weights[id]) == 0) continue;
      const std::size_t bucket = bucket_of(id);
      if (bucket < last) continue;
      if (bucket == last) {
        work_.ranked[num_last++] = rank_of(static_cast<std::int32_t>(id));
      } else {
        work_.weights[id] = 0.0F;
      }
    }
    std::sort(work_.ranked, work_.ranked + num_last, std::greater<>());
    std::int64_t kept = 0;
    while (sum < wanted) sum += whole(work_.weights[id_of(work_.ranked[kept++])]);
    for (; kept < num_last; ++kept) work_.weights[id_of(work_.ranked[kept])] = 0.0F;
    return sum;
  }

  const RowOps& ops_;
  Workspace work_;
  const SampleRow& row_;
  std::span<float> logits_;
};

}  // namespace

void sample(Stream& stream, const SampleArgs& args, const RowOps& ops) {
  const std::int64_t width = args.logits.columns;
  const std::size_t worker_bytes = Workspace::num_bytes(width);
  auto* memory = static_cast<std::byte*>(
      stream.scratch(worker_bytes * static_cast<std::size_t>(stream.pool().num_threads())));
  stream.pool().parallel_for(static_cast<int>(args.logits.rows), [&](int at, int worker) {
    const SampleRow& row = args.rows[at];
    if (row.scored == kSampleNothing) return;
    LMTP_CHECK(row.scored < width && row.num_top >= 0 && row.num_top <= width, row.scored,
               row.num_top, width);
    LMTP_CHECK(row.num_top + row.num_listed + row.is_measured <= args.top_stride, row.num_top,
               row.num_listed, args.top_stride);
    const Workspace work(memory + static_cast<std::size_t>(worker) * worker_bytes, width);
    RowSampler sampler(ops, work, row, {args.logits.row(at), static_cast<std::size_t>(width)});
    std::span<const std::uint32_t> mask;
    if (args.mask_of != nullptr && args.mask_of[at] >= 0) {
      mask = {args.masks + args.mask_of[at] * args.mask_words,
              static_cast<std::size_t>(args.mask_words)};
    }
    const std::int32_t input = row.counts_input != 0 ? args.ids[at] : -1;
    args.records[at] = sampler.run(args.counts, input, mask, args.positions[at], args.raw.row(at),
                                   args.top + at * args.top_stride);
    if (args.sent != nullptr) args.sent[at] = args.records[at];
  });
}

}  // namespace lmtp::kernels::plain
