// What --device and --dtype mean together.
#include "lmtp/catalog/device_choice.h"

#include <gtest/gtest.h>

#include <string>

#include "lmtp/catalog/dtype_choice.h"

namespace lmtp::catalog {
namespace {

using kernels::WeightType;

TEST(DeviceChoice, NamesADeviceOrNone) {
  EXPECT_EQ(*parse_device("cpu"), std::nullopt);
  EXPECT_EQ(*parse_device("cuda"), 0);
  EXPECT_EQ(*parse_device("cuda:0"), 0);
  EXPECT_EQ(*parse_device("cuda:13"), 13);
  for (const char* name :
       {"", "CUDA", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:9999999999"}) {
    const auto device = parse_device(name);
    ASSERT_FALSE(device.ok()) << name;
    EXPECT_NE(device.error().message.find("cuda:N"), std::string::npos);
  }
}

TEST(DtypeChoice, HalfIsForDevices) {
  EXPECT_EQ(parse_dtype("float16", true)->type, WeightType::kF16);
  EXPECT_EQ(parse_dtype("float16", true)->note, "");
  EXPECT_EQ(parse_dtype("half", false)->type, WeightType::kF32);
  EXPECT_NE(parse_dtype("half", false)->note, "");
  for (const bool on_device : {false, true}) {
    EXPECT_EQ(parse_dtype("auto", on_device)->type, std::nullopt);
    EXPECT_EQ(parse_dtype("8bit", on_device)->type, WeightType::kInt8);
    EXPECT_EQ(parse_dtype("int8", on_device)->type, WeightType::kInt8);
    EXPECT_EQ(parse_dtype("4bit", on_device)->type, WeightType::kInt4);
    EXPECT_EQ(parse_dtype("int4", on_device)->type, WeightType::kInt4);
    EXPECT_EQ(parse_dtype("bf16", on_device)->type, WeightType::kBF16);
    EXPECT_EQ(parse_dtype("fp32", on_device)->type, WeightType::kF32);
    EXPECT_FALSE(parse_dtype("float8", on_device).ok());
    EXPECT_FALSE(parse_dtype("2bit", on_device).ok());
  }
}

TEST(KvCacheDtype, WhatIsUnknownSaysWhatIsAllowed) {
  using kernels::ElementType;
  EXPECT_EQ(*parse_kv_cache_dtype("auto"), std::nullopt);
  EXPECT_EQ(*parse_kv_cache_dtype("float32"), ElementType::kF32);
  EXPECT_EQ(*parse_kv_cache_dtype("bfloat16"), ElementType::kBF16);
  EXPECT_EQ(*parse_kv_cache_dtype("float16"), ElementType::kF16);
  EXPECT_EQ(*parse_kv_cache_dtype("fp8_e4m3"), ElementType::kE4M3);
  EXPECT_EQ(*parse_kv_cache_dtype("fp8"), ElementType::kE4M3);
  for (const char* name : {"", "fp8_e5m2", "int8", "fp8_e4m3fn"}) {
    const auto refused = parse_kv_cache_dtype(name);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_NE(refused.error().message.find("--kv-cache-dtype"), std::string::npos);
    EXPECT_NE(refused.error().message.find("fp8_e4m3"), std::string::npos);
  }
}

}  // namespace
}  // namespace lmtp::catalog
