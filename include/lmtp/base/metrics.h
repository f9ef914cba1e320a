// Counters and histograms that one thread writes at the cost of a plain addition, and that any
// thread may read at any time without a lock.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace lmtp {

// Owner: the writer, one thread at a time. value() and copying: any thread. Relaxed atomics: a
// reader that synchronizes with the writer (by a queue, say) sees all earlier additions.
template <typename T>
class Tally {
 public:
  Tally() = default;
  Tally(const Tally& other) : value_(other.value()) {}
  Tally& operator=(const Tally& other) {
    value_.store(other.value(), std::memory_order_relaxed);
    return *this;
  }

  void add(T amount) { value_.store(value() + amount, std::memory_order_relaxed); }
  T value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_{};
};

// A histogram's upper bounds, ascending, each at least twice the one before: so a value's bucket is
// known by its bit width and one comparison.
struct Buckets {
  static constexpr std::size_t kBoundsMax = 31;

  constexpr Buckets(double unit_in, std::initializer_list<std::int64_t> bounds) : unit(unit_in) {
    upper.fill(std::numeric_limits<std::int64_t>::max());
    for (const std::int64_t bound : bounds) upper[num_bounds++] = bound;
    std::uint8_t next = 0;
    for (std::size_t width = 1; width < first.size(); ++width) {
      const std::int64_t least = std::int64_t{1} << (width - 1);
      while (next < num_bounds && upper[next] < least) ++next;
      first[width] = next;
    }
  }

  constexpr bool is_valid() const {
    for (std::size_t i = 1; i < num_bounds; ++i) {
      if (upper[i] / 2 < upper[i - 1]) return false;
    }
    return num_bounds > 0 && upper[0] >= 1;
  }

  // Index of the first bucket whose upper bound is not below `value`; num_bounds if there is none.
  // REQUIRES: value >= 0.
  constexpr std::size_t bucket_of(std::int64_t value) const {
    const std::size_t at = first[std::bit_width(static_cast<std::uint64_t>(value))];
    return at + (value > upper[at] ? 1 : 0);
  }

  double unit;  // of the bounds, in the unit of export: 1e-9 for nanoseconds exported as seconds
  std::size_t num_bounds = 0;
  std::array<std::int64_t, kBoundsMax + 1> upper{};  // [num_bounds], then no bound
  // By a value's bit width: the lowest bucket that it may be in.
  std::array<std::uint8_t, 64> first{};
};

// As Tally. Copies are snapshots; buckets and sum may be an addition apart.
class Histogram {
 public:
  explicit Histogram(const Buckets& buckets) : buckets_(&buckets) {}  // which live longer

  // A negative value counts as 0.
  void add(std::int64_t value) {
    const std::int64_t counted = value < 0 ? 0 : value;
    counts_[buckets_->bucket_of(counted)].add(1);
    sum_.add(static_cast<double>(counted));
  }

  const Buckets& buckets() const { return *buckets_; }
  // Values in bucket `at`, not cumulative. REQUIRES: at <= buckets().num_bounds.
  std::uint64_t count(std::size_t at) const { return counts_[at].value(); }
  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const Tally<std::uint64_t>& bucket : counts_) sum += bucket.value();
    return sum;
  }
  double sum() const { return sum_.value() * buckets_->unit; }

 private:
  const Buckets* buckets_;
  std::array<Tally<std::uint64_t>, Buckets::kBoundsMax + 1> counts_;
  Tally<double> sum_;  // in the values' own unit
};

}  // namespace lmtp
