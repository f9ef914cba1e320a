// Quantised matrices that stay as narrow as in their file: the same bits as those that are widened,
// or, where activations are rounded, as a plain twin; and the bytes that they take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "kernels/stream.h"
#include "kernels/worker_pool.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/weights.h"
#include "source_dir.h"
#include "weight_stacks.h"

namespace lmtp {
namespace {

using kernels::WeightType;
using model::WeightPart;
using model::WeightStack;
using testing::stacks_of;

const std::string kFolders = testing::source_dir() + "/tests/goldens/quantized/";

// Packs no codes: what a device's store does.
class WideningStore : public model::WeightStore {
 public:
  explicit WideningStore(kernels::WorkerPool& pool)
      : store_(model::make_host_store(pool, WeightType::kF32)) {}
  const kernels::Backend& backend() const override { return store_->backend(); }
  Result<model::PackedWeight> pack(const model::StoredWeight& source) override {
    return store_->pack(source);
  }
  model::PlainWeight keep(std::span<const float> values) override { return store_->keep(values); }

 private:
  std::unique_ptr<model::WeightStore> store_;
};

// A folder's checkpoint, its matrices narrow and widened.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : config(*model::read_model_config(kFolders + name)),
        source(model::dequantized(*model::open_checkpoint(kFolders + name), config.quantization)),
        narrow_store(model::make_host_store(pool, WeightType::kF32)),
        narrow(*source, *narrow_store, 0, nullptr),
        wide(*source, wide_store, 0, nullptr) {}

  // y of m rows of inputs that are drawn; what it is compared with takes the same.
  std::vector<float> multiply(const model::PackedWeight& weight, const WeightStack& stack) {
    kernels::PackedLinear packed{weight.panels.get(), stack.n(), stack.k, weight.type};
    packed.scales = weight.scales.get();
    packed.sums = weight.sums.get();
    packed.grouping = weight.grouping;
    std::vector<float> x = inputs(stack.k);
    if (weight.inputs != nullptr) {
      const std::vector<float> drawn = x;
      kernels::order_inputs(stream, kernels::make_matrix(drawn.data(), kRows, stack.k),
                            weight.inputs.get(), kernels::make_matrix(x.data(), kRows, stack.k));
    }
    std::vector<float> y(static_cast<std::size_t>(kRows * stack.n()));
    kernels::linear(stream, {.x = kernels::make_matrix<const float>(x.data(), kRows, stack.k),
                             .weight = packed,
                             .y = kernels::make_matrix(y.data(), kRows, stack.n())});
    return y;
  }

  static std::vector<float> inputs(std::int64_t k) {
    std::vector<float> x(static_cast<std::size_t>(kRows * k));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(7 * i * i + i));
    return x;
  }

  static constexpr std::int64_t kRows = 5;
  kernels::WorkerPool pool{2};
  kernels::Stream stream{kernels::cpu_backend(), pool, 0};
  model::ModelConfig config;
  std::unique_ptr<model::TensorSource> source;
  std::unique_ptr<model::WeightStore> narrow_store;
  WideningStore wide_store{pool};
  model::WeightLoader narrow;
  model::WeightLoader wide;
};

TEST(CodedWeightsTest, NarrowMatricesHaveTheBitsOfWidenedOnes) {
  for (const char* name : {"awq-w4-g32", "ct-new-fp8-block", "ct-new-fp8-dynamic", "ct-new-mixed",
                           "ct-new-mxfp4", "ct-new-nvfp4", "ct-new-w4-asym", "modelopt-fp8",
                           "ct-old-fp8-static", "ct-old-w4-group", "ct-old-w8-naive", "fp8-blocks",
                           "fp8-tensors", "gptq-v2-w8", "gptq-w4-g32", "smooth-fp8"}) {
    SCOPED_TRACE(name);
    Folder folder(name);
    for (const WeightStack& stack : stacks_of(folder.config)) {
      const model::PackedWeight narrow = folder.narrow.packed(stack);
      const model::PackedWeight wide = folder.wide.packed(stack);
      ASSERT_FALSE(folder.narrow.error() || folder.wide.error());
      EXPECT_EQ(narrow.type, WeightType::kWidened);
      EXPECT_EQ(wide.type, WeightType::kF32);
      EXPECT_EQ(folder.multiply(narrow, stack), folder.multiply(wide, stack));
    }
    EXPECT_EQ(folder.narrow.num_widened(), 0);
    EXPECT_EQ(folder.wide.num_widened(), 7);
  }
}

// Their products are summed in another order. Parts of a stack that have each its own are widened.
TEST(CodedWeightsTest, GroupsOfInputsInNoOrder) {
  for (const char* name : {"gptq-w4-ordered", "ct-old-w4-ordered"}) {
    SCOPED_TRACE(name);
    Folder folder(name);
    for (const WeightStack& stack : stacks_of(folder.config)) {
      const model::PackedWeight narrow = folder.narrow.packed(stack);
      const bool is_one = stack.parts.size() == 1;
      ASSERT_EQ(narrow.type, is_one ? WeightType::kWidened : WeightType::kF32);
      EXPECT_EQ(narrow.inputs != nullptr, is_one);
      const auto y = folder.multiply(narrow, stack);
      const auto expected = folder.multiply(folder.wide.packed(stack), stack);
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-4F) << i;
    }
    EXPECT_EQ(folder.narrow.num_widened(), folder.config.model_type == "phi3" ? 0 : 5);
  }
}

// Of the file's numbers, without any of the loader.
std::vector<float> twin(Folder& folder, const WeightStack& stack) {
  const std::vector<float> x = Folder::inputs(stack.k);
  std::vector<float> y;
  for (std::int64_t row = 0; row < Folder::kRows; ++row) {
    const float* const inputs = x.data() + row * stack.k;
    float largest = 0.0F;
    for (std::int64_t i = 0; i < stack.k; ++i) largest = std::max(largest, std::fabs(inputs[i]));
    const float row_scale = largest * (1.0F / 127.0F);
    for (const WeightPart& part : stack.parts) {
      const auto codes = folder.source->stored(part.name);
      const auto scales = folder.source->stored(part.name + "_scale");
      std::vector<std::int8_t> weights(static_cast<std::size_t>(part.n() * stack.k));
      std::vector<std::uint16_t> halves(static_cast<std::size_t>(part.n()));  // bfloat16
      EXPECT_EQ(scales->type, "BF16");
      EXPECT_TRUE(codes->read(0, weights.size(), weights.data()).ok());
      EXPECT_TRUE(scales->read(0, halves.size() * 2, halves.data()).ok());
      std::vector<float> scale(halves.size());
      kernels::convert_to_f32(halves.data(), kernels::ElementType::kBF16, part.n(), scale.data());
      for (std::int64_t n = 0; n < part.n(); ++n) {
        std::int32_t sum = 0;
        for (std::int64_t i = 0; i < stack.k; ++i) {
          sum += static_cast<std::int32_t>(std::nearbyint(inputs[i] * (1.0F / row_scale))) *
                 weights[static_cast<std::size_t>(n * stack.k + i)];
        }
        y.push_back(static_cast<float>(sum) * (row_scale * scale[static_cast<std::size_t>(n)]));
      }
    }
  }
  return y;
}

TEST(CodedWeightsTest, IntegerProductsHaveTheBitsOfAPlainTwin) {
  for (const char* name : {"ct-old-w8a8", "ct-new-w8a8"}) {
    SCOPED_TRACE(name);
    Folder folder(name);
    for (const WeightStack& stack : stacks_of(folder.config)) {
      const model::PackedWeight weight = folder.narrow.packed(stack);
      ASSERT_FALSE(folder.narrow.error());
      EXPECT_EQ(weight.type, WeightType::kInt8);
      EXPECT_EQ(folder.multiply(weight, stack), twin(folder, stack));
    }
    EXPECT_EQ(folder.narrow.num_widened(), 0);
  }
}

// Codes and scales have in memory the bytes that they have in the file. Offsets and NVFP4's scales,
// which are products, are f32, MXFP4's bf16.
TEST(CodedWeightsTest, BytesInMemoryAreThoseOfTheFile) {
  const struct {
    const char* folder;
    double bytes_of_weight;
  } kCases[] = {
      {"gptq-w4-g32", 0.5 + 2.0 / 32},
      {"ct-old-w4-group", 0.5 + (2.0 + 4) / 32},
      {"ct-new-fp8-dynamic", 1 + 2.0 / 96},
      {"ct-old-w8a8", 1},
      {"ct-new-fp8-block", 1 + 2 * 2.0 / 192},
      {"ct-new-mxfp4", 0.5 + 2.0 / 32},
      {"ct-new-nvfp4", 0.5 * 96 / 80 + 4.0 / 16},  // filled up
  };
  for (const auto& [name, bytes_of_weight] : kCases) {
    SCOPED_TRACE(name);
    Folder folder(name);
    const WeightStack down = stacks_of(folder.config)[1];
    const model::PackedWeight weight = folder.narrow.packed(down);
    const std::int64_t units = kernels::packed_size(down.n(), down.k, weight.type, weight.grouping);
    EXPECT_EQ(static_cast<double>(4 * units),
              bytes_of_weight * static_cast<double>(down.n() * down.k));
  }
}

// A list of modules that are not quantised may have one of three that are used as one.
TEST(CodedWeightsTest, PartsOfDifferentTypesAreOneMatrix) {
  class Source : public model::TensorSource {
   public:
    Result<model::SourceTensor> tensor(const model::TensorSpec& spec) override {
      const bool is_half = spec.name == "half";
      return model::SourceTensor{
          .type = is_half ? kernels::ElementType::kBF16 : kernels::ElementType::kF32,
          .read = [is_half](std::uint64_t, std::size_t count, void* to) -> Result<void> {
            const float one = 1.0F;
            const std::uint16_t two = 0x4000;
            const std::size_t size = is_half ? sizeof(two) : sizeof(one);
            for (std::size_t i = 0; i < count; i += size) {
              std::memcpy(static_cast<char*>(to) + i,
                          is_half ? static_cast<const void*>(&two) : &one, size);
            }
            return {};
          }};
    }
  };
  kernels::WorkerPool pool(2);
  Source source;
  const auto store = model::make_host_store(pool, WeightType::kF32);
  model::WeightLoader loader(source, *store, 0, nullptr);
  const auto weight = loader.packed({.parts = {{"whole", {3}}, {"half", {2}}}, .k = 7});
  ASSERT_FALSE(loader.error());
  const kernels::PackedLinear packed{weight.panels.get(), 5, 7, weight.type};
  for (int n = 0; n < 5; ++n) EXPECT_EQ(kernels::packed_element(packed, n, 6), n < 3 ? 1.0F : 2.0F);
}

// fp8's NaN is found while it is packed.
TEST(CodedWeightsTest, AnErrorOfTheFileIsTheLoaders) {
  class Broken : public model::CodedMatrix {
   public:
    Result<std::optional<model::CodedWeight>> packing() override {
      return std::optional(model::CodedWeight{
          .grouping = {.codes = kernels::CodeType::kE4M3, .group = 64}, .n = 8, .k = 64});
    }
    Result<void> rows(std::int64_t, std::int64_t, const kernels::CodePiece&) override {
      return Error{ErrorCode::kInvalid, "a weight is not a finite number"};
    }
  };
  class Source : public model::TensorSource {
   public:
    Result<model::SourceTensor> tensor(const model::TensorSpec&) override {
      return model::SourceTensor{};
    }
    Result<std::shared_ptr<model::CodedMatrix>> coded(const model::TensorSpec&) override {
      return std::shared_ptr<model::CodedMatrix>(std::make_shared<Broken>());
    }
  };
  kernels::WorkerPool pool(2);
  Source source;
  const auto store = model::make_host_store(pool, WeightType::kF32);
  model::WeightLoader loader(source, *store, 0, nullptr);
  loader.packed({.parts = {{"m.weight", {8}}}, .k = 64});
  ASSERT_TRUE(loader.error());
  EXPECT_EQ(loader.error()->message, "a weight is not a finite number");
}

}  // namespace
}  // namespace lmtp
