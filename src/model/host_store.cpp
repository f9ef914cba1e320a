#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/memory.h"
#include "lmtp/model/weight_store.h"
#include "read_weight.h"
#include "weight_arena.h"

namespace lmtp::model {
namespace {

// A worker's piece of a weight.
using Buffers = std::vector<std::vector<std::byte>>;

std::byte* at_least(std::vector<std::byte>& buffer, std::size_t num_bytes) {
  if (buffer.size() < num_bytes) buffer.resize(num_bytes);
  return buffer.data();
}

class RowsOfWeight : public kernels::WeightRows {
 public:
  RowsOfWeight(const StoredWeight& source, std::size_t row_bytes, Buffers& buffers)
      : source_(source), row_bytes_(row_bytes), buffers_(buffers) {}

  const void* rows(std::int64_t first, std::int64_t count, int worker) override {
    const std::size_t num_bytes = static_cast<std::size_t>(count) * row_bytes_;
    std::byte* buffer = at_least(buffers_[static_cast<std::size_t>(worker)], num_bytes);
    const auto read =
        read_weight(source_, static_cast<std::uint64_t>(first) * row_bytes_, num_bytes, buffer);
    error_.note(read);
    return read.ok() ? buffer : nullptr;
  }

  // REQUIRES: all workers have finished.
  Result<void> result() const { return error_.result(); }

 private:
  const StoredWeight& source_;
  std::size_t row_bytes_;
  Buffers& buffers_;
  FirstError error_;
};

class HostStore : public WeightStore {
 public:
  HostStore(kernels::WorkerPool& pool, kernels::WeightType type)
      : pool_(pool), type_(type), buffers_(static_cast<std::size_t>(pool.num_threads())) {}

  const kernels::Backend& backend() const override { return kernels::cpu_backend(); }

  Result<PackedWeight> pack(const StoredWeight& source) override {
    PackedWeight weight;
    // A head in 4 bits would cost more than it saves: each of its errors is one of the logits.
    const bool is_wide = type_ == kernels::WeightType::kInt4 && source.is_table;
    const kernels::WeightType wanted = source.is_router ? kernels::WeightType::kF32
                                       : is_wide        ? kernels::WeightType::kInt8
                                                        : type_;
    const kernels::PackTarget target =
        allocate(source.n, source.k, kernels::kept_type(wanted, source.type, source.k), {}, weight);
    const bool by_outputs = source.order == kernels::WeightOrder::kOutputsByInputs;
    RowsOfWeight rows(source,
                      static_cast<std::size_t>((by_outputs ? source.k : source.n) *
                                               kernels::element_size(source.type)),
                      buffers_);
    kernels::pack_rows(pool_,
                       {.type = source.type, .order = source.order, .n = source.n, .k = source.k},
                       rows, target);
    if (const auto read = rows.result(); !read.ok()) return read.error();
    return weight;
  }

  std::optional<PackedWeight> pack_codes(const CodedWeight& source,
                                         kernels::CodeRows& rows) override {
    PackedWeight weight;
    const kernels::PackTarget target =
        allocate(source.n, source.k, source.type, source.grouping, weight);
    kernels::pack_codes(pool_, source.n, source.k, rows, target);
    if (!source.inputs.empty()) {
      const auto inputs = elements<std::int32_t>(source.k);
      std::ranges::copy(source.inputs, inputs.get());
      weight.inputs = inputs;
    }
    return weight;
  }

  PlainWeight keep(std::span<const float> values) override {
    if (values.empty()) return {};
    const auto memory = kernels::Memory::allocate(backend(), values.size_bytes());
    add_bytes(values.size_bytes());
    std::memcpy(memory.data(), values.data(), values.size_bytes());
    return {{memory.shared(), memory.floats()}, static_cast<std::int64_t>(values.size())};
  }

 private:
  template <typename T>
  std::shared_ptr<T> elements(std::int64_t number) {
    const std::size_t num_bytes = static_cast<std::size_t>(number) * sizeof(T);
    add_bytes(num_bytes);
    const auto bytes = arena_.allocate(num_bytes);
    return {bytes, reinterpret_cast<T*>(bytes.get())};
  }

  // Memory for a weight [n, k], owned by the weight.
  kernels::PackTarget allocate(std::int64_t n, std::int64_t k, kernels::WeightType type,
                               const kernels::Grouping& grouping, PackedWeight& weight) {
    const auto panels = elements<std::uint32_t>(kernels::packed_size(n, k, type, grouping));
    kernels::PackTarget target{.panels = panels.get(), .type = type, .grouping = grouping};
    weight = {.panels = panels, .scales = {}, .sums = {}, .type = type, .grouping = grouping};
    if (type == kernels::WeightType::kInt8) {
      const auto scales = elements<float>(kernels::padded_columns(n));
      const auto sums = elements<std::int32_t>(kernels::padded_columns(n));
      target.scales = scales.get();
      target.sums = sums.get();
      weight.scales = scales;
      weight.sums = sums;
    }
    return target;
  }

  kernels::WorkerPool& pool_;
  const kernels::WeightType type_;
  WeightArena arena_;
  Buffers buffers_;
};

}  // namespace

std::unique_ptr<WeightStore> make_host_store(kernels::WorkerPool& pool, kernels::WeightType type) {
  return std::make_unique<HostStore>(pool, type);
}

}  // namespace lmtp::model
