#include "lmtp/model/weights.h"

namespace lmtp::model {
namespace {

// FNV-1a.
std::uint64_t hash_name(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

class RandomSource : public TensorSource {
 public:
  RandomSource(std::uint64_t seed, kernels::ElementType type) : seed_(seed), type_(type) {}

  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    const auto size = static_cast<std::uint64_t>(kernels::element_size(type_));
    return SourceTensor{.type = type_,
                        .read = [made = random_tensor(seed_, spec, type_), size](
                                    std::uint64_t first, std::size_t count, void* to) {
                          kernels::fill_random({.tensor = made,
                                                .first = static_cast<std::int64_t>(first / size),
                                                .count = static_cast<std::int64_t>(count / size),
                                                .to = to});
                          return Result<void>();
                        }};
  }

  std::optional<kernels::RandomTensor> random(const TensorSpec& spec) const override {
    return random_tensor(seed_, spec, type_);
  }

 private:
  std::uint64_t seed_;
  kernels::ElementType type_;
};

}  // namespace

kernels::RandomTensor random_tensor(std::uint64_t seed, const TensorSpec& spec,
                                    kernels::ElementType type) {
  return {.key = kernels::mix_bits(seed ^ hash_name(spec.name)),
          .mean = spec.init.mean,
          .deviation = spec.init.deviation,
          .type = type};
}

std::unique_ptr<TensorSource> make_random_source(std::uint64_t seed, kernels::ElementType type) {
  return std::make_unique<RandomSource>(seed, type);
}

}  // namespace lmtp::model
