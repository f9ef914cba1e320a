// WeightStore: packs weights where the ops of a model run, on the host or on a device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/linear.h"
#include "kernels/random.h"
#include "kernels/stream.h"

namespace lmtp::model {

// A matrix product's weight as kernels::PackedLinear describes it; holds its memory alive.
struct PackedWeight {
  std::shared_ptr<const void> panels;
  std::shared_ptr<const float> scales;       // int8 alone
  std::shared_ptr<const std::int32_t> sums;  // int8 alone
  kernels::WeightType type = kernels::WeightType::kF32;
};

// Any other tensor, as f32 in its order; holds its memory alive.
struct PlainWeight {
  std::shared_ptr<const float> data;  // null: there is none
  std::int64_t count = 0;
};

// A weight whose elements are those of random tensors, behind one another and of one type.
struct RandomWeight {
  struct Part {
    kernels::RandomTensor tensor;
    std::int64_t num_elements = 0;
  };
  std::vector<Part> parts;  // one at least
  kernels::WeightOrder order = kernels::WeightOrder::kOutputsByInputs;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// Owner: whoever loads; one thread. What it gave may outlive it.
class WeightStore {
 public:
  virtual ~WeightStore() = default;

  virtual const kernels::Backend& backend() const = 0;
  // Throw std::bad_alloc or kernels::DeviceError.
  virtual PackedWeight pack(const kernels::SourceWeight& source) = 0;
  virtual PackedWeight pack(const kernels::SourceRows& source) = 0;
  // Makes the elements where they are packed. Nothing: this store packs only what lies in memory.
  virtual std::optional<PackedWeight> pack_random(const RandomWeight&) { return std::nullopt; }
  virtual PlainWeight keep(std::span<const float> values) = 0;
};

// In the memory of the host, for the CPU backends; `type` is that of packed weights. `pool` must
// outlive the store.
std::unique_ptr<WeightStore> make_host_store(kernels::WorkerPool& pool, kernels::WeightType type);

// In the memory of the stream's device; `stream` must outlive the store.
std::unique_ptr<WeightStore> make_device_store(kernels::Stream& stream, kernels::WeightType type);

}  // namespace lmtp::model
