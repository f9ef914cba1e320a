#include <algorithm>
#include <vector>

#include "lmtp/model/weights.h"

namespace lmtp::model {
namespace {

// Elements that one task makes.
constexpr std::int64_t kElementsPerTask = std::int64_t{1} << 16;

// SplitMix64's output function (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// FNV-1a.
std::uint64_t hash_name(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return hash;
}

// Nearly a standard normal: the sum of four uniform numbers, in whole numbers, so that every
// machine gets the same.
float standard_normal(std::uint64_t bits) {
  const auto sum = static_cast<std::int32_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                             ((bits >> 32) & 0xFFFF) + (bits >> 48));
  // Four uniform numbers over [0, 65536) have the mean 131070 and the deviation 65536 sqrt(4 / 12).
  constexpr float kInverseDeviation = 1.0F / 37837.227F;
  return static_cast<float>(sum - 131070) * kInverseDeviation;
}

class RandomSource : public TensorSource {
 public:
  RandomSource(std::uint64_t seed, kernels::WorkerPool& pool) : seed_(seed), pool_(pool) {}

  bool has(const std::string&) const override { return true; }

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    const std::int64_t count = spec.num_elements();
    data_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(count));
    const auto num_tasks = static_cast<int>((count + kElementsPerTask - 1) / kElementsPerTask);
    pool_.parallel_for(num_tasks, [&](int task, int) {
      const std::int64_t first = task * kElementsPerTask;
      fill_random(seed_, spec, first, std::min(kElementsPerTask, count - first),
                  data_.get() + first);
    });
    return SourceTensor{.data = data_.get(), .type = kernels::ElementType::kF32};
  }

  void release(const TensorSpec&) override { data_.reset(); }

 private:
  std::uint64_t seed_;
  kernels::WorkerPool& pool_;
  std::unique_ptr<float[]> data_;
};

}  // namespace

void fill_random(std::uint64_t seed, const TensorSpec& spec, std::int64_t first, std::int64_t count,
                 float* to) {
  if (spec.init.deviation == 0.0F) {
    std::fill_n(to, count, spec.init.mean);
    return;
  }
  const std::uint64_t key = mix(seed ^ hash_name(spec.name));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mix(key + static_cast<std::uint64_t>(first + i));
    to[i] = spec.init.mean + spec.init.deviation * standard_normal(bits);
  }
}

std::unique_ptr<TensorSource> make_random_source(std::uint64_t seed, kernels::WorkerPool& pool) {
  return std::make_unique<RandomSource>(seed, pool);
}

}  // namespace lmtp::model
