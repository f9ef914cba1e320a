// Against the `gguf` package, which wrote the file: blocks of each type, and what it makes of them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "lmtp/gguf/codes.h"
#include "source_dir.h"

namespace lmtp::gguf {
namespace {

std::vector<char> bytes_of(const GgufFile& file, const Tensor& tensor) {
  std::vector<char> bytes(tensor.num_bytes);
  std::ifstream stream(file.origin(), std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(tensor.begin));
  stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(stream.good());
  return bytes;
}

std::uint32_t hashed(std::uint32_t number) {
  number = (number ^ number >> 16) * 0x7FEB352DU;
  number = (number ^ number >> 15) * 0x846CA68BU;
  return number ^ number >> 16;
}

class DequantizeTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DequantizeTest, HasTheBitsOfTheGgufPackage) {
  const auto file = GgufFile::open(testing::source_dir() + "/tests/goldens/gguf/blocks.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const Tensor* blocks = file->find_tensor(GetParam());
  const Tensor* values = file->find_tensor(std::string(GetParam()) + ".values");
  ASSERT_NE(blocks, nullptr);
  ASSERT_NE(values, nullptr);
  ASSERT_EQ(blocks->type->name, GetParam());
  const std::int64_t num_blocks = blocks->num_elements() / blocks->type->block_elements;
  ASSERT_GE(num_blocks, 4);
  std::vector<float> result(static_cast<std::size_t>(blocks->num_elements()));
  EXPECT_TRUE(
      dequantize(*blocks->type, bytes_of(*file, *blocks).data(), num_blocks, result.data()));
  const auto expected = bytes_of(*file, *values);
  ASSERT_EQ(expected.size(), result.size() * sizeof(float));
  EXPECT_EQ(std::string(expected.data(), expected.size()),
            std::string(reinterpret_cast<const char*>(result.data()), expected.size()));
}

// They have every entry of a codebook, and scales that are no numbers; make_gguf.py wrote the sum.
TEST_P(DequantizeTest, HasTheBitsOfAThousandBlocks) {
  const auto file = GgufFile::open(testing::source_dir() + "/tests/goldens/gguf/blocks.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const TensorType& type = *file->find_tensor(GetParam())->type;
  std::optional<Error> error;
  const auto expected = file->text(std::string(GetParam()) + ".sum", error);
  ASSERT_EQ(expected.has_value(), type.block_elements > 1);
  if (!expected) return;
  std::vector<std::uint8_t> block(static_cast<std::size_t>(type.block_bytes));
  std::vector<float> values(static_cast<std::size_t>(type.block_elements));
  std::uint32_t number = 0;
  std::uint64_t odd = 1;
  std::uint64_t sum = 0;
  for (int i = 0; i < 1024; ++i) {
    for (std::uint8_t& byte : block) byte = static_cast<std::uint8_t>(hashed(number++));
    if (!dequantize(type, block.data(), 1, values.data())) continue;
    for (const float value : values) {
      sum += odd * std::bit_cast<std::uint32_t>(value);
      odd += 2;
    }
  }
  EXPECT_EQ(sum, std::stoull(std::string(*expected), nullptr, 16));
}

// The same bits as scale * code + offset, rounded once.
TEST_P(DequantizeTest, CodesAreTheSameNumbers) {
  const auto file = GgufFile::open(testing::source_dir() + "/tests/goldens/gguf/blocks.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const Tensor* tensor = file->find_tensor(GetParam());
  const TensorType& type = *tensor->type;
  const auto layout = code_layout(type);
  if (!layout) {
    EXPECT_EQ(type.block_elements, 1);
    return;
  }
  const auto blocks = bytes_of(*file, *tensor);
  const auto count = static_cast<std::size_t>(tensor->num_elements());
  const std::int64_t num_blocks = tensor->num_elements() / type.block_elements;
  std::vector<std::uint8_t> codes(count);
  std::vector<float> scales(count / static_cast<std::size_t>(layout->group));
  std::vector<float> offsets(scales.size());
  std::vector<float> expected(count);
  ASSERT_TRUE(dequantize(type, blocks.data(), num_blocks, expected.data()));
  ASSERT_TRUE(
      unpack_codes(type, blocks.data(), num_blocks, {codes.data(), scales.data(), offsets.data()}));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t group = i / static_cast<std::size_t>(layout->group);
    constexpr float kFloats[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    const int zero = layout->bits == 4 && !layout->has_offsets ? 8 : 0;
    const auto code = layout->is_float
                          ? kFloats[codes[i] % 8] * (codes[i] < 8 ? 1.0F : -1.0F)
                          : static_cast<float>(static_cast<std::int8_t>(codes[i]) - zero);
    EXPECT_EQ(std::fma(scales[group], code, layout->has_offsets ? offsets[group] : 0.0F),
              expected[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DequantizeTest,
                         ::testing::Values("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0",
                                           "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
                                           "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS",
                                           "IQ2_XXS", "MXFP4"));

TEST(DequantizeTypesTest, ThoseOfTheListAreRead) {
  std::set<std::string> listed;
  std::istringstream words(kReadTypes);
  for (std::string word; words >> word;) {
    if (word != "and") listed.insert(word.substr(0, word.find(',')));
  }
  std::set<std::string> read;
  for (std::uint32_t id = 0; id < 64; ++id) {
    const TensorType* type = find_tensor_type(id);
    if (type == nullptr) continue;
    EXPECT_EQ(type->id, id);
    EXPECT_EQ(type->block_elements > 0 && type->block_bytes > 0, can_dequantize(*type)) << id;
    if (can_dequantize(*type)) read.emplace(type->name);
  }
  EXPECT_EQ(read, listed);
  EXPECT_EQ(read.size(), 21U);
}

TEST(DequantizeTypesTest, SaysThatAScaleIsNoNumber) {
  const auto spoilt = [](std::uint32_t id, std::size_t at) {
    const TensorType& type = *find_tensor_type(id);
    std::vector<unsigned char> block(static_cast<std::size_t>(type.block_bytes));
    std::vector<float> values(static_cast<std::size_t>(type.block_elements));
    EXPECT_TRUE(dequantize(type, block.data(), 1, values.data()));
    block[at] = 0x01;
    block[at + 1] = 0x7C;  // a NaN
    return !dequantize(type, block.data(), 1, values.data());
  };
  EXPECT_TRUE(spoilt(8, 0));     // Q8_0
  EXPECT_TRUE(spoilt(2, 0));     // Q4_0
  EXPECT_TRUE(spoilt(3, 0));     // Q4_1
  EXPECT_TRUE(spoilt(3, 2));     // its offset
  EXPECT_TRUE(spoilt(6, 0));     // Q5_0
  EXPECT_TRUE(spoilt(7, 0));     // Q5_1
  EXPECT_TRUE(spoilt(7, 2));     // its offset
  EXPECT_TRUE(spoilt(20, 0));    // IQ4_NL
  EXPECT_TRUE(spoilt(10, 80));   // Q2_K
  EXPECT_TRUE(spoilt(10, 82));   // its minima's
  EXPECT_TRUE(spoilt(11, 108));  // Q3_K
  EXPECT_TRUE(spoilt(12, 0));    // Q4_K
  EXPECT_TRUE(spoilt(12, 2));    // its minima's
  EXPECT_TRUE(spoilt(13, 2));    // Q5_K
  EXPECT_TRUE(spoilt(14, 208));  // Q6_K
  EXPECT_TRUE(spoilt(23, 0));    // IQ4_XS
  EXPECT_TRUE(spoilt(16, 0));    // IQ2_XXS
  EXPECT_TRUE(spoilt(17, 0));    // IQ2_XS
  EXPECT_TRUE(spoilt(22, 0));    // IQ2_S
  EXPECT_TRUE(spoilt(18, 0));    // IQ3_XXS
  EXPECT_TRUE(spoilt(21, 0));    // IQ3_S
  std::vector<unsigned char> mxfp4(17);
  std::vector<float> values(32);
  for (const int exponent : {0, 252, 253, 255}) {
    mxfp4[0] = static_cast<unsigned char>(exponent);
    EXPECT_EQ(dequantize(*find_tensor_type(39), mxfp4.data(), 1, values.data()), exponent < 253);
  }
}

}  // namespace
}  // namespace lmtp::gguf
