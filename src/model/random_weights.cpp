#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "lmtp/base/check.h"
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

// The upper half of an f32, rounded to nearest, ties to even. REQUIRES: a number.
std::uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

class RandomSource : public TensorSource {
 public:
  RandomSource(std::uint64_t seed, kernels::ElementType type, kernels::WorkerPool& pool)
      : seed_(seed), type_(type), pool_(pool) {}

  bool has(const std::string&) const override { return true; }

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    const std::int64_t count = spec.num_elements();
    const std::int64_t size = kernels::element_size(type_);
    std::unique_ptr<unsigned char[]>& data = data_[spec.name];
    data = std::make_unique_for_overwrite<unsigned char[]>(static_cast<std::size_t>(count * size));
    const auto num_tasks = static_cast<int>((count + kElementsPerTask - 1) / kElementsPerTask);
    pool_.parallel_for(num_tasks, [&](int task, int) {
      const std::int64_t first = task * kElementsPerTask;
      fill_random(seed_, spec, type_, first, std::min(kElementsPerTask, count - first),
                  data.get() + first * size);
    });
    return SourceTensor{.data = data.get(), .type = type_};
  }

  void release(const TensorSpec& spec) override { data_.erase(spec.name); }

 private:
  std::uint64_t seed_;
  kernels::ElementType type_;
  kernels::WorkerPool& pool_;
  std::unordered_map<std::string, std::unique_ptr<unsigned char[]>> data_;  // not yet released
};

}  // namespace

void fill_random(std::uint64_t seed, const TensorSpec& spec, kernels::ElementType type,
                 std::int64_t first, std::int64_t count, void* to) {
  LMTP_CHECK(type != kernels::ElementType::kF16);
  auto* bytes = static_cast<unsigned char*>(to);
  const std::uint64_t key = mix(seed ^ hash_name(spec.name));
  for (std::int64_t i = 0; i < count; ++i) {
    float value = spec.init.mean;
    if (spec.init.deviation != 0.0F) {
      value +=
          spec.init.deviation * standard_normal(mix(key + static_cast<std::uint64_t>(first + i)));
    }
    if (type == kernels::ElementType::kF32) {
      std::memcpy(bytes + i * 4, &value, 4);
    } else {
      const std::uint16_t rounded = round_to_bf16(value);
      std::memcpy(bytes + i * 2, &rounded, 2);
    }
  }
}

std::unique_ptr<TensorSource> make_random_source(std::uint64_t seed, kernels::ElementType type,
                                                 kernels::WorkerPool& pool) {
  return std::make_unique<RandomSource>(seed, type, pool);
}

}  // namespace lmtp::model
