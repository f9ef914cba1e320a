// Weights on a device: random ones that it makes itself, against those that the host sends there.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device_under_test.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"
#include "source_dir.h"

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
    for (const WeightType to : {WeightType::kF32, WeightType::kBF16, WeightType::kF16}) {
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

}  // namespace
}  // namespace lmtp
