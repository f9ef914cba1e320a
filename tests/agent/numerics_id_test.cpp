#include "numerics_id.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "temp_folder.h"

namespace lmtp::agent {
namespace {

std::string id_of(const AgentOptions& options) {
  return numerics_id(options, kernels::cpu_backend());
}

TEST(NumericsIdTest, IsSixteenHexadecimalDigits) {
  const std::string id = id_of({});
  EXPECT_EQ(id.size(), 16U);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(NumericsIdTest, WhatBitsDependOnIsInIt) {
  std::set<std::string> ids;
  std::size_t num_kinds = 0;
  for (const kernels::Backend* backend : kernels::cpu_backends()) {
    for (const auto type :
         {kernels::WeightType::kF32, kernels::WeightType::kBF16, kernels::WeightType::kF16,
          kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
      AgentOptions options;
      options.weight_type = type;
      ids.insert(numerics_id(options, *backend));
      ++num_kinds;
    }
  }
  for (const auto kv :
       {kernels::ElementType::kBF16, kernels::ElementType::kF16, kernels::ElementType::kE4M3}) {
    AgentOptions options;  // of float32
    options.kv_cache_type = kv;
    ids.insert(id_of(options));
    ++num_kinds;
  }
  AgentOptions device;
  device.cuda_device = 0;
  ids.insert(id_of(device));
  EXPECT_EQ(ids.size(), num_kinds + 1);
}

TEST(NumericsIdTest, WhatChangesNothingIsNot) {
  AgentOptions options;
  options.num_threads = 7;
  options.kv_cache_bytes = std::int64_t{1} << 30;
  options.context_length = 300;
  options.batch.max_tokens = 64;
  options.source.name = "else";
  options.kv_cache_type = kernels::ElementType::kF32;  // as it is
  EXPECT_EQ(id_of(options), id_of({}));
}

TEST(NumericsIdTest, AModelIsItsFilesWhereverTheyLie) {
  std::string weights(500'000, 'w');
  const auto id_with = [&](const std::string& config) {
    const testing::TempFolder folder;
    folder.write("config.json", config);
    folder.write("model.safetensors", weights);
    folder.write("training_args.bin", "another each time" + folder.path());
    AgentOptions options;
    options.source.folder = folder.path();
    return id_of(options);
  };
  const std::string id = id_with("{}");
  EXPECT_EQ(id_with("{}"), id);
  EXPECT_NE(id_with("{ }"), id);
  for (char& c : weights) c = 'v';  // another training
  EXPECT_NE(id_with("{}"), id);
  AgentOptions random;
  random.source.kind = SourceKind::kRandom;
  random.source.shape = "gpt2";
  const std::string first = id_of(random);
  random.source.seed = 1;
  EXPECT_NE(id_of(random), first);
}

}  // namespace
}  // namespace lmtp::agent
