#include "nucleus.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace lmtp::sampling {
namespace {

// Sign, exponent and seven bits of the fraction: a bucket is less than one percent wide.
constexpr int kBucketShift = 16;
constexpr std::size_t kNumBuckets = (std::bit_cast<std::uint32_t>(1.0F) >> kBucketShift) + 1;

std::size_t bucket_of(float weight) {
  return std::min<std::size_t>(std::bit_cast<std::uint32_t>(weight) >> kBucketShift,
                               kNumBuckets - 1);
}

}  // namespace

Nucleus::Nucleus() : sums_(kNumBuckets) {}

void Nucleus::keep(std::span<float> weights, float top_p) {
  std::ranges::fill(sums_, 0.0);
  double total = 0.0;
  for (const float weight : weights) {
    sums_[bucket_of(weight)] += static_cast<double>(weight);
    total += static_cast<double>(weight);
  }
  const double wanted = static_cast<double>(top_p) * total;
  double sum = 0.0;
  std::size_t last = kNumBuckets - 1;
  while (last > 0 && sum + sums_[last] < wanted) sum += sums_[last--];
  boundary_.clear();
  for (std::size_t id = 0; id < weights.size(); ++id) {
    const std::size_t bucket = bucket_of(weights[id]);
    if (bucket < last) {
      weights[id] = 0.0F;
    } else if (bucket == last) {
      boundary_.push_back(static_cast<TokenId>(id));
    }
  }
  const auto weight_of = [&](TokenId id) -> float& {
    return weights[static_cast<std::size_t>(id)];
  };
  std::ranges::stable_sort(boundary_, std::ranges::greater(), weight_of);
  std::size_t kept = 0;
  while (kept < boundary_.size() && sum < wanted) {
    sum += static_cast<double>(weight_of(boundary_[kept++]));
  }
  for (; kept < boundary_.size(); ++kept) weight_of(boundary_[kept]) = 0.0F;
}

}  // namespace lmtp::sampling
