#include <cstring>
#include <utility>

#include "kernels/memory.h"
#include "lmtp/model/weight_store.h"
#include "weight_arena.h"

namespace lmtp::model {
namespace {

// The elements of a tensor, which they hold alive.
template <typename T>
std::shared_ptr<T> elements_of(at::Tensor tensor) {
  auto* data = static_cast<T*>(tensor.mutable_data_ptr());
  return {data, [tensor = std::move(tensor)](T*) {}};
}

class HostStore : public WeightStore {
 public:
  HostStore(kernels::WorkerPool& pool, kernels::WeightType type) : pool_(pool), type_(type) {}

  const kernels::Backend& backend() const override { return kernels::cpu_backend(); }

  PackedWeight pack(const kernels::SourceWeight& source) override {
    return pack(source.n, source.k, [&](const kernels::PackTarget& target) {
      kernels::pack_linear(pool_, source, target);
    });
  }

  PackedWeight pack(const kernels::SourceRows& source) override {
    return pack(source.n, source.k, [&](const kernels::PackTarget& target) {
      kernels::pack_rows(pool_, source, target);
    });
  }

  PlainWeight keep(std::span<const float> values) override {
    if (values.empty()) {
      return {};
    }
    const auto memory = kernels::Memory::allocate(backend(), values.size_bytes());
    std::memcpy(memory.data(), values.data(), values.size_bytes());
    return {{memory.shared(), memory.floats()}, static_cast<std::int64_t>(values.size())};
  }

 private:
  // write(target) packs into memory for [n, k].
  template <typename Write>
  PackedWeight pack(std::int64_t n, std::int64_t k, const Write& write) {
    const std::int64_t columns = kernels::padded_columns(n);
    const auto panels = elements_of<float>(
        arena_.allocate({columns / kernels::kPanelColumns,
                         kernels::packed_size(n, k, type_) / columns, kernels::kPanelColumns},
                        at::kFloat));
    kernels::PackTarget target{.panels = panels.get(), .type = type_};
    PackedWeight weight{.panels = panels, .scales = {}, .sums = {}, .type = type_};
    if (type_ == kernels::WeightType::kInt8) {
      const auto scales = elements_of<float>(arena_.allocate({columns}, at::kFloat));
      const auto sums = elements_of<std::int32_t>(arena_.allocate({columns}, at::kInt));
      target.scales = scales.get();
      target.sums = sums.get();
      weight.scales = scales;
      weight.sums = sums;
    }
    write(target);
    return weight;
  }

  kernels::WorkerPool& pool_;
  const kernels::WeightType type_;
  WeightArena arena_;
};

}  // namespace

std::unique_ptr<WeightStore> make_host_store(kernels::WorkerPool& pool, kernels::WeightType type) {
  return std::make_unique<HostStore>(pool, type);
}

}  // namespace lmtp::model
