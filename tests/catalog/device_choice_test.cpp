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

TEST(DtypeChoice, HalfIsForDevicesAndIntegersForProcessors) {
  EXPECT_EQ(parse_dtype("float16", true)->type, WeightType::kF16);
  EXPECT_EQ(parse_dtype("float16", true)->note, "");
  EXPECT_EQ(parse_dtype("half", false)->type, WeightType::kF32);
  EXPECT_NE(parse_dtype("half", false)->note, "");
  EXPECT_EQ(parse_dtype("8bit", false)->type, WeightType::kInt8);
  EXPECT_EQ(parse_dtype("4bit", false)->type, WeightType::kInt4);
  EXPECT_EQ(parse_dtype("int4", false)->type, WeightType::kInt4);
  for (const char* name : {"8bit", "int8", "4bit", "int4"}) {
    ASSERT_FALSE(parse_dtype(name, true).ok());
    EXPECT_NE(parse_dtype(name, true).error().message.find("bfloat16"), std::string::npos);
  }
  for (const bool on_device : {false, true}) {
    EXPECT_EQ(parse_dtype("auto", on_device)->type, std::nullopt);
    EXPECT_EQ(parse_dtype("bf16", on_device)->type, WeightType::kBF16);
    EXPECT_EQ(parse_dtype("fp32", on_device)->type, WeightType::kF32);
    EXPECT_FALSE(parse_dtype("float8", on_device).ok());
    EXPECT_FALSE(parse_dtype("2bit", on_device).ok());
  }
}

}  // namespace
}  // namespace lmtp::catalog
