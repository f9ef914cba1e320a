// Weights on a device: random ones that it makes itself, against those that the host sends there;
// codes of a checkpoint, against what they stand for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device_under_test.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"
#include "source_dir.h"
#include "weight_stacks.h"

namespace lmtp {
namespace {

using kernels::ElementType;
using kernels::WeightType;
using model::PackedWeight;
using model::PlainWeight;

// Random tensors that do not say how they are generated, so that a store must read them.
class HostSource : public model::TensorSource {
 public:
  explicit HostSource(std::unique_ptr<model::TensorSource> source) : source_(std::move(source)) {}

  Result<model::SourceTensor> tensor(const model::TensorSpec& spec) override {
    return source_->tensor(spec);
  }

 private:
  std::unique_ptr<model::TensorSource> source_;
};

// A device's store that notes what each weight became.
class NotingStore : public model::WeightStore {
 public:
  NotingStore(kernels::Stream& stream, WeightType type)
      : stream_(stream), store_(model::make_device_store(stream, type)) {}

  const kernels::Backend& backend() const override { return store_->backend(); }
  Result<PackedWeight> pack(const model::StoredWeight& source) override {
    return noted(*store_->pack(source), source.n, source.k);
  }
  std::optional<PackedWeight> pack_random(const model::RandomWeight& source) override {
    ++num_random;
    auto weight = store_->pack_random(source);
    return noted(std::move(weight.value()), source.n, source.k);
  }
  PlainWeight keep(std::span<const float> values) override {
    PlainWeight weight = store_->keep(values);
    note(weight.data.get(), static_cast<std::size_t>(weight.count) * sizeof(float));
    return weight;
  }

  std::vector<std::vector<std::byte>> weights;
  int num_packed = 0;
  int num_random = 0;

 private:
  PackedWeight noted(PackedWeight weight, std::int64_t n, std::int64_t k) {
    ++num_packed;
    note(weight.panels.get(), kernels::packed_bytes(backend(), weight.type, n, k));
    return weight;
  }
  void note(const void* data, std::size_t num_bytes) {
    stream_.synchronize();
    std::vector<std::byte>& bytes = weights.emplace_back(num_bytes);
    testing::copy_to_host(bytes.data(), data, num_bytes);
  }

  kernels::Stream& stream_;
  std::unique_ptr<model::WeightStore> store_;
};

class DeviceStoreTest : public ::testing::TestWithParam<const char*> {};

// Matrices [n, k] and [k, n], stacks of several, and rows in an order of their own.
INSTANTIATE_TEST_SUITE_P(Shapes, DeviceStoreTest,
                         ::testing::Values("checkpoints/untied-f32", "families/llama3-tied",
                                           "families/gpt-neox"));

TEST_P(DeviceStoreTest, RandomWeightsAreTheSameMadeThereOrSentThere) {
  ModelSource shape;
  shape.folder = testing::source_dir() + "/tests/goldens/" + GetParam();
  const auto config = model::load_model_config(shape);
  ASSERT_TRUE(config.ok()) << config.error().message;
  kernels::WorkerPool pool(2);
  kernels::Stream stream(testing::device_under_test(), pool);
  const auto load = [&](model::TensorSource& source, WeightType type) {
    NotingStore store(stream, type);
    model::WeightLoader loader(source, store, 0, nullptr);
    model::SingleRank single;
    EXPECT_TRUE(
        model::make_causal_lm(*config, loader, {.max_tokens = 1, .communicator = single}).ok());
    return store;
  };
  for (const ElementType from : {ElementType::kF32, ElementType::kBF16}) {
    for (const WeightType to : {WeightType::kF32, WeightType::kBF16, WeightType::kF16,
                                WeightType::kInt8, WeightType::kInt4}) {
      const bool is_narrow = to == WeightType::kInt8 || to == WeightType::kInt4;
      if (is_narrow && from == ElementType::kF32) continue;  // one is enough
      const auto source = model::make_random_source(3, from);
      const NotingStore made = load(*source, to);
      HostSource host_source(model::make_random_source(3, from));
      const NotingStore sent = load(host_source, to);
      EXPECT_GT(made.num_random, made.num_packed / 2);
      EXPECT_EQ(sent.num_random, 0);
      ASSERT_GT(made.num_packed, 5);
      ASSERT_EQ(made.weights, sent.weights);
    }
  }
}

// A device's store that packs no codes: matrices are widened when they are read.
class WideningStore : public model::WeightStore {
 public:
  WideningStore(kernels::Stream& stream, WeightType type)
      : store_(model::make_device_store(stream, type)) {}
  const kernels::Backend& backend() const override { return store_->backend(); }
  Result<PackedWeight> pack(const model::StoredWeight& source) override {
    return store_->pack(source);
  }
  PlainWeight keep(std::span<const float> values) override { return store_->keep(values); }

 private:
  std::unique_ptr<model::WeightStore> store_;
};

class CodedDeviceStoreTest : public ::testing::Test {
 protected:
  // Reads a checkpoint's matrices, by its own store.
  struct Reader {
    Reader(model::TensorSource& source, std::unique_ptr<model::WeightStore> from)
        : store(std::move(from)), loader(source, *store, 0, nullptr) {}
    std::unique_ptr<model::WeightStore> store;
    model::WeightLoader loader;
  };

  std::unique_ptr<model::TensorSource> open(const std::string& name) {
    const std::string folder = testing::source_dir() + "/tests/goldens/quantized/" + name;
    config_ = *model::read_model_config(folder);
    return model::dequantized(*model::open_checkpoint(folder), config_.quantization);
  }

  // y of m rows of inputs that are drawn.
  static std::vector<float> multiply(kernels::Stream& stream, const PackedWeight& weight,
                                     const model::WeightStack& stack, std::int64_t rows) {
    kernels::PackedLinear packed{weight.panels.get(), stack.n(), stack.k, weight.type};
    packed.scales = weight.scales.get();
    packed.sums = weight.sums.get();
    packed.grouping = weight.grouping;
    std::vector<float> x(static_cast<std::size_t>(rows * stack.k));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(7 * i * i + i));
    std::vector<float> y(static_cast<std::size_t>(rows * stack.n()));
    kernels::linear(stream, {.x = kernels::make_matrix<const float>(x.data(), rows, stack.k),
                             .weight = packed,
                             .y = kernels::make_matrix(y.data(), rows, stack.n())});
    stream.synchronize();
    return y;
  }

  model::ModelConfig config_;
  kernels::WorkerPool pool_{2};
  kernels::Stream stream_{testing::device_under_test(), pool_};
};

TEST_F(CodedDeviceStoreTest, NarrowMatricesHaveTheBitsOfWidenedOnes) {
  for (const char* name :
       {"awq-w4-g32", "ct-new-fp8-block", "ct-new-fp8-dynamic", "ct-new-w4-asym", "ct-old-w4-group",
        "ct-old-w8-naive", "gptq-v2-w8", "smooth-fp8", "ct-new-nvfp4", "modelopt-fp8"}) {
    for (const WeightType type : {WeightType::kBF16, WeightType::kF16}) {
      SCOPED_TRACE(name);
      const auto source = open(name);
      Reader narrow(*source, model::make_device_store(stream_, type));
      Reader wide(*source, std::make_unique<WideningStore>(stream_, type));
      for (const model::WeightStack& stack : testing::stacks_of(config_)) {
        const PackedWeight codes = narrow.loader.packed(stack);
        const PackedWeight numbers = wide.loader.packed(stack);
        stream_.synchronize();  // as behind the loading of a model
        ASSERT_FALSE(narrow.loader.error() || wide.loader.error());
        EXPECT_EQ(codes.type, WeightType::kWidened);
        EXPECT_EQ(numbers.type, type);
        const std::int64_t rows = type == WeightType::kBF16 ? 5 : 70;
        EXPECT_EQ(multiply(stream_, codes, stack, rows), multiply(stream_, numbers, stack, rows));
      }
      EXPECT_EQ(narrow.loader.num_widened(), 0);
      EXPECT_EQ(wide.loader.num_widened(), 7);
    }
  }
}

TEST_F(CodedDeviceStoreTest, IntegerProductsHaveTheBitsOfTheCpu) {
  for (const char* name : {"ct-old-w8a8", "ct-new-w8a8"}) {
    SCOPED_TRACE(name);
    const auto source = open(name);
    Reader device(*source, model::make_device_store(stream_, WeightType::kF32));
    Reader host(*source, model::make_host_store(pool_, WeightType::kF32));
    kernels::Stream on_host(kernels::cpu_backend(), pool_);
    for (const model::WeightStack& stack : testing::stacks_of(config_)) {
      const PackedWeight codes = device.loader.packed(stack);
      const PackedWeight expected = host.loader.packed(stack);
      ASSERT_FALSE(device.loader.error() || host.loader.error());
      EXPECT_EQ(codes.type, WeightType::kInt8);
      for (const std::int64_t rows : {5, 70}) {
        EXPECT_EQ(multiply(stream_, codes, stack, rows), multiply(on_host, expected, stack, rows));
      }
    }
    EXPECT_EQ(device.loader.num_widened(), 0);
  }
}

// Inputs in an order of their own, and products of float32, which is for checks.
TEST_F(CodedDeviceStoreTest, WhatHasNoKernelIsWidened) {
  for (const auto& [name, type] :
       {std::pair("gptq-w4-ordered", WeightType::kBF16), {"gptq-w4-g32", WeightType::kF32}}) {
    SCOPED_TRACE(name);
    const auto source = open(name);
    Reader reader(*source, model::make_device_store(stream_, type));
    int num_matrices = 0;
    for (const model::WeightStack& stack : testing::stacks_of(config_)) {
      EXPECT_EQ(reader.loader.packed(stack).type, type);
      num_matrices += static_cast<int>(stack.parts.size());
    }
    EXPECT_EQ(reader.loader.num_widened(), num_matrices);
  }
}

}  // namespace
}  // namespace lmtp
