#include <algorithm>
#include <unordered_map>

#include "lmtp/model/weights.h"

namespace lmtp::model {
namespace {

// Elements that one task makes.
constexpr std::int64_t kElementsPerTask = std::int64_t{1} << 16;

// FNV-1a.
std::uint64_t hash_name(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return hash;
}

class RandomSource : public TensorSource {
 public:
  RandomSource(std::uint64_t seed, kernels::ElementType type, kernels::WorkerPool& pool)
      : seed_(seed), type_(type), pool_(pool) {}

  bool has(const std::string&) const override { return true; }

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    const kernels::RandomTensor made = random_tensor(seed_, spec, type_);
    const std::int64_t count = spec.num_elements();
    const std::int64_t size = kernels::element_size(type_);
    std::unique_ptr<unsigned char[]>& data = data_[spec.name];
    data = std::make_unique_for_overwrite<unsigned char[]>(static_cast<std::size_t>(count * size));
    const auto num_tasks = static_cast<int>((count + kElementsPerTask - 1) / kElementsPerTask);
    pool_.parallel_for(num_tasks, [&](int task, int) {
      const std::int64_t first = task * kElementsPerTask;
      kernels::fill_random({.tensor = made,
                            .first = first,
                            .count = std::min(kElementsPerTask, count - first),
                            .to = data.get() + first * size});
    });
    return SourceTensor{.data = data.get(), .type = type_};
  }

  std::optional<kernels::RandomTensor> random(const TensorSpec& spec) const override {
    return random_tensor(seed_, spec, type_);
  }

  void release(const TensorSpec& spec) override { data_.erase(spec.name); }

 private:
  std::uint64_t seed_;
  kernels::ElementType type_;
  kernels::WorkerPool& pool_;
  std::unordered_map<std::string, std::unique_ptr<unsigned char[]>> data_;  // not yet released
};

}  // namespace

kernels::RandomTensor random_tensor(std::uint64_t seed, const TensorSpec& spec,
                                    kernels::ElementType type) {
  return {.key = kernels::mix_bits(seed ^ hash_name(spec.name)),
          .mean = spec.init.mean,
          .deviation = spec.init.deviation,
          .type = type};
}

std::unique_ptr<TensorSource> make_random_source(std::uint64_t seed, kernels::ElementType type,
                                                 kernels::WorkerPool& pool) {
  return std::make_unique<RandomSource>(seed, type, pool);
}

}  // namespace lmtp::model
