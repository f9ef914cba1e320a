// WeightStore: packs weights where the ops of a model run, on the host or on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/linear.h"
#include "kernels/random.h"
#include "kernels/stream.h"
#include "lmtp/base/result.h"

namespace lmtp::model {

// The weight of a linear layer, as kernels::PackedLinear describes it; keeps its memory alive.
struct PackedWeight {
  std::shared_ptr<const void> panels;
  std::shared_ptr<const float> scales;       // int8 in host memory alone
  std::shared_ptr<const std::int32_t> sums;  // int8 in host memory alone
  kernels::WeightType type = kernels::WeightType::kF32;
  kernels::Grouping grouping = {};  // kInt4 and kWidened alone
  // Packed input i is input inputs[i] of x; null: i. Host memory, and for CPUs alone.
  std::shared_ptr<const std::int32_t> inputs = {};
};

// Any other tensor, as f32 in its original order; keeps its memory alive.
struct PlainWeight {
  std::shared_ptr<const float> data;  // null: none
  std::int64_t count = 0;
};

// A weight made of the elements of random tensors of one type, concatenated.
struct RandomWeight {
  struct Part {
    kernels::RandomTensor tensor;
    std::int64_t num_elements = 0;
  };
  std::vector<Part> parts;  // one at least
  kernels::WeightOrder order = kernels::WeightOrder::kOutputsByInputs;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool is_table = false;  // an embedding or an output head
};

// Reads bytes [first, first + count) of a tensor, whole elements, to `to`, which may be unaligned.
// The error names the file. Any thread, several at a time.
using TensorReader = std::function<Result<void>(std::uint64_t first, std::size_t count, void* to)>;

// A weight in a file: the bytes of its runs, concatenated.
struct StoredWeight {
  struct Run {
    const TensorReader* read = nullptr;
    std::uint64_t first = 0;
    std::uint64_t num_bytes = 0;
  };
  std::vector<Run> runs;
  kernels::ElementType type = kernels::ElementType::kF32;
  kernels::WeightOrder order = kernels::WeightOrder::kOutputsByInputs;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool is_table = false;   // an embedding or an output head
  bool is_router = false;  // of experts: kept as wide as it is, and multiplied as f32
};

// A weight that a checkpoint holds as codes (kernels::pack_codes): `type` is kInt8, whose inputs
// are rounded by their row, kInt4, by their row and group, or kWidened, whose inputs stay f32 (on a
// device those of kInt4 and kWidened are rounded to bf16 or f16).
struct CodedWeight {
  kernels::WeightType type = kernels::WeightType::kWidened;
  kernels::Grouping grouping = {};
  std::int64_t n = 0;
  std::int64_t k = 0;
  // A permutation, by which the rows are given: PackedWeight::inputs. Empty: inputs are in order.
  std::vector<std::int32_t> inputs = {};
};

// Owner: the caller that loads the model; one thread. The weights it returns may outlive it.
class WeightStore {
 public:
  virtual ~WeightStore() = default;

  virtual const kernels::Backend& backend() const = 0;
  // All of these throw std::bad_alloc or kernels::DeviceError. The error is the reader's.
  virtual Result<PackedWeight> pack(const StoredWeight& source) = 0;
  // Packs codes as they are, n outputs of k inputs. `rows` keeps its own errors: where it has one,
  // the weight is undefined. Empty: not supported; the caller then packs the weights as floats.
  virtual std::optional<PackedWeight> pack_codes(const CodedWeight&, kernels::CodeRows&) {
    return std::nullopt;
  }
  // Generates the elements on the device. Empty: not supported; the caller then reads the source.
  virtual std::optional<PackedWeight> pack_random(const RandomWeight&) { return std::nullopt; }
  virtual PlainWeight keep(std::span<const float> values) = 0;

  // Of all weights that it has returned.
  std::int64_t num_bytes() const { return num_bytes_; }

 protected:
  void add_bytes(std::size_t num_bytes) { num_bytes_ += static_cast<std::int64_t>(num_bytes); }

 private:
  std::int64_t num_bytes_ = 0;
};

// In host memory, for the CPU backends; `type`: of packed weights. `pool` must outlive the store.
std::unique_ptr<WeightStore> make_host_store(kernels::WorkerPool& pool, kernels::WeightType type);

// In device memory; `stream` must outlive the store.
std::unique_ptr<WeightStore> make_device_store(kernels::Stream& stream, kernels::WeightType type);

}  // namespace lmtp::model
