// Quantised checkpoints: which are read, which are refused by name, and files that are not as they
// should be. That the numbers are right is agent_golden_test's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/linear.h"
#include "kernels/worker_pool.h"
#include "lmtp/model/weights.h"
#include "read_config.h"
#include "temp_folder.h"

namespace lmtp {
namespace {

std::string llama_with(const std::string& settings) {
  return R"({"model_type": "llama", "quantization_config": )" + settings + "}";
}

void expect_error(const std::string& error, const std::string& part) {
  EXPECT_NE(error.find(part), std::string::npos) << "'" << error << "' lacks '" << part << "'";
}

const char* const kInt8 = R"({"quant_method": "compressed-tensors", "format": "int-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"},
      "input_activations": {"num_bits": 8, "type": "int", "dynamic": true, "strategy": "token"}}},
    "ignore": ["lm_head", "re:.*layers[.]1[.].*"]})";
const char* const kPacked = R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"],
      "weights": {"num_bits": 4, "group_size": 16, "symmetric": false}}}})";
const char* const kBlocks = R"({"quant_method": "fp8", "weight_block_size": [4, 16]})";
const char* const kGptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 16})";
const char* const kAwq =
    R"({"quant_method": "awq", "bits": 4, "group_size": 16, "version": "GEMM"})";

model::Quantization quantization_of(const std::string& settings) {
  const auto config = read(llama_with(settings));
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? config->quantization : model::Quantization();
}

TEST(QuantizationConfigTest, WhatIsServed) {
  const std::pair<std::string, std::string> kCases[] = {
      {kInt8, "int8"},
      {kPacked, "int4 in groups of 16"},
      {kBlocks, "fp8 in blocks of 4x16"},
      {kGptq, "int4 in groups of 16"},
      {kAwq, "int4 in groups of 16"},
      {R"({"quant_method": "gptq", "bits": 8, "group_size": -1})", "int8"},
      {R"({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": null})",
       "fp8"},
      {R"({"quant_method": "smooth_quant"})", "int8"},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})", "fp4 in groups of 16"},
      {R"({"quant_algo": "FP8"})", "fp8"},
      {R"({"quant_method": "smooth_quant", "quant_dtype": "float8_e4m3fn"})", "fp8"},
      // As old releases of compressed-tensors write it.
      {R"({"quantization_config": {"format": "float-quantized", "config_groups": {"a": {"weights":
           {"type": "FLOAT", "strategy": "block", "block_structure": "4x16"}}}},
           "sparsity_config": {}})",
       "fp8 in blocks of 4x16"},
  };
  for (const auto& [settings, text] : kCases) {
    const model::Quantization quantization = quantization_of(settings);
    ASSERT_EQ(quantization.schemes.size(), 1U) << settings;
    EXPECT_EQ(quantization.schemes[0].text(), text) << settings;
  }
  EXPECT_TRUE(quantization_of(kInt8).schemes[0].rounds_activations);
  EXPECT_TRUE(quantization_of(R"({"quant_method": "smooth_quant"})").schemes[0].rounds_activations);
  EXPECT_FALSE(quantization_of(kPacked).schemes[0].rounds_activations);
  const auto in_groups = [](const char* weights, const char* inputs) {
    return R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
        {"a": {"targets": ["Linear"],
               "weights": {"num_bits": 4, "strategy": "group", "group_size": )" +
           std::string(weights) + R"(}, "input_activations": {"num_bits": 8, "strategy": "group",
        "group_size": )" +
           inputs + "}}}}";
  };
  for (const auto& [weights, inputs, rounds] :
       {std::tuple("32", "32", true), std::tuple("128", "128", true), std::tuple("32", "64", false),
        std::tuple("16", "16", false)}) {
    EXPECT_EQ(quantization_of(in_groups(weights, inputs)).schemes[0].rounds_activations, rounds);
  }
  const auto optimized = quantization_of(
      R"({"quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.0.self_attn*"]})");
  EXPECT_EQ(find_scheme(optimized, "model.layers.0.self_attn.q_proj"), nullptr);
  EXPECT_NE(find_scheme(optimized, "model.layers.1.self_attn.q_proj"), nullptr);
  EXPECT_TRUE(quantization_of(kGptq).zeros_minus_one);
  EXPECT_FALSE(quantization_of(R"({"quant_method": "gptq", "checkpoint_format": "gptq_v2"})")
                   .zeros_minus_one);
}

TEST(QuantizationConfigTest, AModuleHasTheSchemeThatNamesIt) {
  const auto of_int8 = quantization_of(kInt8);
  EXPECT_NE(find_scheme(of_int8, "model.layers.0.mlp.up_proj"), nullptr);
  EXPECT_EQ(find_scheme(of_int8, "model.layers.1.mlp.up_proj"), nullptr);
  EXPECT_EQ(find_scheme(of_int8, "lm_head"), nullptr);
  const auto mixed = quantization_of(
      R"({"format": "int-quantized", "quant_method": "compressed-tensors", "config_groups": {
          "a": {"targets": ["Linear"], "weights": {"num_bits": 8, "strategy": "channel"}},
          "b": {"targets": ["re:.*down"], "format": "pack-quantized",
                "weights": {"num_bits": 4, "group_size": 32}},
          "c": {"targets": ["re:(a*)*b"], "weights": {"num_bits": 4, "group_size": 64}}}})");
  const auto text = [&](const char* module) { return find_scheme(mixed, module)->text(); };
  EXPECT_EQ(text("model.layers.0.mlp.down_proj"), "int4 in groups of 32");
  EXPECT_EQ(text("model.layers.0.mlp.up_proj"), "int8");
  EXPECT_EQ(text(std::string(200, 'a').c_str()), "int8");  // not for ever
}

// Refused with the name of what is not served and a remedy; noted under force.
TEST(QuantizationConfigTest, EverythingElseIsRefusedByName) {
  const auto compressed = [](const std::string& format, const std::string& weights,
                             const std::string& more = "") {
    return R"({"quant_method": "compressed-tensors", "format": ")" + format +
           R"(", "config_groups": {"a": {"targets": ["Linear"], "weights": )" + weights + "}}" +
           more + "}";
  };
  const std::string plain = R"({"num_bits": 8, "strategy": "channel"})";
  const std::pair<std::string, const char*> kCases[] = {
      {R"({"load_in_4bit": true})", "(bitsandbytes)"},
      {R"({"quant_method": "hqq"})", "(hqq)"},
      {R"({"quant_method": "mxfp4"})", "read of gpt_oss alone"},
      {R"({"quant_method": "exl2"})", "(exl2)"},
      {R"({"quant_method": "exl3"})", "(exl3)"},
      {R"({"quant_method": "quanto"})", "(quanto)"},
      {R"({"quant_method": "torchao"})", "(torchao)"},
      {R"({"quant_algo": "W4A8_AWQ"})", "'W4A8_AWQ'"},
      {R"({"quant_method": "gptq", "bits": 3})", "3 bits"},
      {R"({"quant_method": "gptq", "bits": 2})", "2 bits"},
      {R"({"quant_method": "gptq", "is_marlin_format": true})", "'marlin'"},
      {R"({"quant_method": "gptq", "checkpoint_format": "gptq_p"})", "'gptq_p'"},
      {R"({"quant_method": "gptq", "dynamic": {"+:.*down": {"bits": 8}}})", "dynamic"},
      {R"({"quant_method": "awq", "bits": 8})", "8 bits"},
      {R"({"quant_method": "awq", "version": "gemv"})", "'gemv'"},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})", "'e5m2'"},
      {R"({"quant_method": "fp8", "weight_block_size": [128]})", "weight_block_size"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 0]})", "weight_block_size"},
      {R"({"quant_method": "smooth_quant", "quant_dtype": "int4"})", "'int4'"},
      {compressed("marlin-24", plain), "'marlin-24'"},
      {compressed("nvfp4-pack-quantized", plain), "8 bits of type 'int'"},
      {compressed("pack-quantized", R"({"num_bits": 3, "strategy": "channel"})"), "3 bits"},
      {compressed("float-quantized", R"({"num_bits": 4, "type": "float"})"), "'float'"},
      {compressed("int-quantized", R"({"num_bits": 8, "strategy": "tensor_group"})"),
       "'tensor_group'"},
      {compressed("int-quantized", plain, R"(, "sparsity_config": {"format": "sparse-bitmask"})"),
       "'sparse-bitmask'"},
      {compressed("int-quantized", plain, R"(, "transform_config": {"config_groups": {"u": {}}})"),
       "transform_config"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {}})", "config_groups"},
  };
  for (const auto& [settings, name] : kCases) {
    const std::string error = error_of(llama_with(settings));
    expect_error(error, name);
    expect_error(error, "model.dequantize()");
    const auto forced = read(llama_with(settings), {.force = true});
    ASSERT_TRUE(forced.ok()) << forced.error().message;
    ASSERT_EQ(forced->notes.size(), 1U) << settings;
    EXPECT_EQ(forced->quantization.method, model::QuantMethod::kNone);
  }
  expect_error(
      error_of(std::string(R"({"model_type": "gpt2", "quantization_config": )") + kGptq + "}"),
      "inputs by outputs");
  expect_error(error_of(llama_with(R"({"quant_method": "gptq", "bits": "4"})")), "bits: a whole");
}

struct Tensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::string data;
};

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string file_of(const std::vector<Tensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const Tensor& tensor : tensors) {
    header += (header.size() == 1 ? "\"" : ",\"") + tensor.name + R"(":{"dtype":")" + tensor.type +
              R"(","shape":[)";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      header += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    header += "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
    data += tensor.data;
    header += std::to_string(data.size()) + "]}";
  }
  const std::uint64_t size = header.size() + 1;
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header + "}" + data;
}

// The matrix "m.weight" [8, 32] of such a file: every number, or the error.
Result<std::vector<float>> numbers(const std::string& settings,
                                   const std::vector<Tensor>& tensors) {
  const testing::TempFolder folder;
  folder.write("model.safetensors", file_of(tensors));
  auto file = model::open_checkpoint(folder.path());
  if (!file.ok()) return file.error();
  const auto source = model::dequantized(std::move(*file), quantization_of(settings));
  const auto tensor = source->tensor({"m.weight", {8, 32}, {}});
  if (!tensor.ok()) return tensor.error();
  if (const auto checked = source->check_values(); !checked.ok()) return checked.error();
  std::vector<float> values(8 * 32);
  const auto read = tensor->read(0, values.size() * sizeof(float), values.data());
  if (!read.ok()) return read.error();
  return values;
}

std::string error_in(const std::string& settings, const std::vector<Tensor>& tensors) {
  const auto values = numbers(settings, tensors);
  return values.ok() ? "" : values.error().message;
}

const std::string kOnes = bytes_of(std::vector<float>(64, 1.0F));

// Of scales: ones but for the one at `index`.
std::string scales(std::size_t count, std::size_t index, float value) {
  std::vector<float> values(count, 1.0F);
  values[index] = value;
  return bytes_of(values);
}

struct Format {
  const char* settings;
  std::vector<Tensor> tensors;  // the scales second
  std::string scales;           // the name of these
};

std::vector<Format> formats() {
  const std::string codes(8 * 32, '\1');
  const std::string nibbles(8 * 16, '\x99');  // of 4 bits, 9 each: 1 above the middle
  const std::string middle(2 * 4, '\x88');
  const std::string below(2 * 4, '\x77');
  return {
      {kInt8,
       {{"m.weight", "I8", {8, 32}, codes}, {"m.weight_scale", "F32", {8, 1}, kOnes.substr(0, 32)}},
       "m.weight_scale"},
      {kPacked,
       {{"m.weight_packed", "I32", {8, 4}, nibbles},
        {"m.weight_scale", "F32", {8, 2}, kOnes.substr(0, 64)},
        {"m.weight_shape", "I64", {2}, bytes_of(std::vector<std::int64_t>{8, 32})},
        {"m.weight_zero_point", "I32", {1, 2}, middle}},
       "m.weight_scale"},
      {kBlocks,
       {{"m.weight", "F8_E4M3", {8, 32}, std::string(8 * 32, '\x38')},
        {"m.weight_scale_inv", "F32", {2, 2}, kOnes.substr(0, 16)}},
       "m.weight_scale_inv"},
      {kGptq,
       {{"m.qweight", "I32", {4, 8}, nibbles},
        {"m.scales", "F32", {2, 8}, kOnes.substr(0, 64)},
        {"m.qzeros", "I32", {2, 1}, below},
        {"m.g_idx", "I32", {32}, bytes_of(std::vector<std::int32_t>(32, 1))}},
       "m.scales"},
      {kAwq,
       {{"m.qweight", "I32", {32, 1}, nibbles},
        {"m.scales", "F32", {2, 8}, kOnes.substr(0, 64)},
        {"m.qzeros", "I32", {2, 1}, middle}},
       "m.scales"},
  };
}

TEST(QuantizedTest, EveryFormatOfOnesIsOnes) {
  for (const Format& format : formats()) {
    const auto values = numbers(format.settings, format.tensors);
    ASSERT_TRUE(values.ok()) << values.error().message;
    EXPECT_EQ(*values, std::vector<float>(8 * 32, 1.0F)) << format.settings;
  }
}

TEST(QuantizedTest, ATensorThatIsMissingOrOfAnotherShapeOrTypeIsNamed) {
  for (const Format& format : formats()) {
    for (std::size_t i = 0; i < format.tensors.size(); ++i) {
      const std::string name = "'" + format.tensors[i].name + "'";
      auto tensors = format.tensors;
      tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
      if (name != "'m.g_idx'") expect_error(error_in(format.settings, tensors), name);
      tensors = format.tensors;
      tensors[i].shape.push_back(1);
      tensors[i].shape[0] += 1;
      expect_error(error_in(format.settings, tensors), name + ": its shape is [");
      tensors = format.tensors;
      tensors[i].type = "U8";
      expect_error(error_in(format.settings, tensors), name + ": its type is U8");
      tensors = format.tensors;
      tensors[i].data.pop_back();
      expect_error(error_in(format.settings, tensors), "fewer bytes than its shape needs");
    }
  }
}

TEST(QuantizedTest, ScalesThatAreNoNumbersOrZeroAreNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Format& format : formats()) {
    const std::size_t count = format.tensors[1].data.size() / sizeof(float);
    for (const float bad : {nan, INFINITY, -INFINITY, 0.0F}) {
      auto tensors = format.tensors;
      tensors[1].data = scales(count, count - 1, bad);
      expect_error(error_in(format.settings, tensors),
                   "'" + format.scales + "': a scale of output " + (count == 4 ? "4" : "7"));
    }
  }
  // Where there is nothing but zeros, a scale may be one.
  std::vector<Tensor> tensors = formats()[0].tensors;
  std::memset(tensors[0].data.data() + 7 * 32, 0, 32);
  tensors[1].data = scales(8, 7, 0.0F);
  EXPECT_EQ(error_in(kInt8, tensors), "");
}

TEST(QuantizedTest, OtherNumbersThatNoQuantiserWrites) {
  auto packed = formats()[1].tensors;
  packed[2].data = bytes_of(std::vector<std::int64_t>{8, 31});
  expect_error(error_in(kPacked, packed), "'m.weight_shape': it says [8, 31]");
  auto blocks = formats()[2].tensors;
  blocks[0].data[100] = '\x7F';
  expect_error(error_in(kBlocks, blocks), "'m.weight': a weight is not a finite number");
  for (const std::int32_t group : {-1, 2}) {
    auto gptq = formats()[3].tensors;
    gptq[3].data = bytes_of(std::vector<std::int32_t>(32, group));
    expect_error(error_in(kGptq, gptq), "'m.g_idx': input 0 is in group");
  }
}

// NVFP4 and MXFP4 of 8 outputs and 32 inputs, all of them -1: code 10, times a scale.
struct Fp4 {
  std::string settings;
  std::vector<Tensor> tensors;  // the scales second, what they are divided by or multiplied third
};

std::vector<Fp4> fp4_formats() {
  const auto compressed = [](const std::string& format, const char* group_size) {
    return R"({"quant_method": "compressed-tensors", "format": ")" + format +
           R"(", "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 4,
              "type": "float", "group_size": )" +
           group_size + "}}}}";
  };
  const std::string codes(8 * 16, '\xAA');
  const Tensor scales{"m.weight_scale", "F8_E4M3", {8, 2}, std::string(16, '\x40')};  // 2
  return {
      {compressed("nvfp4-pack-quantized", "16"),
       {{"m.weight_packed", "U8", {8, 16}, codes},
        scales,
        {"m.weight_global_scale", "F32", {1}, bytes_of(std::vector{2.0F})}}},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})",
       {{"m.weight", "U8", {8, 16}, codes},
        scales,
        {"m.weight_scale_2", "F32", {}, bytes_of(std::vector{0.5F})}}},
      {compressed("mxfp4-pack-quantized", "32"),
       {{"m.weight_packed", "U8", {8, 16}, codes},
        {"m.weight_scale", "U8", {8, 1}, std::string(8, '\x7F')}}},
  };
}

TEST(QuantizedTest, Fp4InGroups) {
  for (const auto& [settings, tensors] : fp4_formats()) {
    const auto values = numbers(settings, tensors);
    ASSERT_TRUE(values.ok()) << values.error().message;
    EXPECT_EQ(*values, std::vector<float>(8 * 32, -1.0F)) << settings;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string name = "'" + tensors[i].name + "'";
      auto others = tensors;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      expect_error(error_in(settings, others), name);
      others = tensors;
      others[i].type = "I8";
      expect_error(error_in(settings, others), i == 2 ? name : name + ": its type is I8");
    }
    auto scales = tensors;
    scales[1].data[3] = static_cast<char>(tensors.size() == 3 ? 0x7F : 0xFD);
    expect_error(error_in(settings, scales), "'m.weight_scale': a scale ");
    if (tensors.size() < 3) continue;
    scales[1] = {"m.weight_scale", "U8", {8, 2}, std::string(16, '\x40')};
    expect_error(error_in(settings, scales), "'m.weight_scale': its type is U8");
    scales = tensors;
    scales[1].data[3] = 0;  // too small for its type
    EXPECT_EQ(error_in(settings, scales), "");
    for (const float bad : {0.0F, -1.0F, INFINITY, std::nanf("")}) {
      auto globals = tensors;
      globals[2].data = bytes_of(std::vector{bad});
      expect_error(error_in(settings, globals), "it is no finite number above 0");
    }
  }
}

// Two experts of three outputs and 32 inputs, whose codes are all codes, and scales powers of two.
const std::vector<Tensor> kFp4 = [] {
  std::string blocks;
  for (int i = 0; i < 2 * 3 * 16; ++i) {
    blocks += static_cast<char>((2 * i) % 16 | ((2 * i + 1) % 16) << 4);
  }
  return std::vector<Tensor>{
      {"m_blocks", "U8", {2, 3, 1, 16}, blocks},
      {"m_scales", "U8", {2, 3, 1}, std::string("\x7f\x80\x7e\x00\x81\xfc", 6)}};
}();

// The matrix of the second expert as it is packed; null after an error.
std::string packed_fp4(const std::vector<Tensor>& tensors, std::vector<float>* elements) {
  const testing::TempFolder folder;
  folder.write("model.safetensors", file_of(tensors));
  auto file = model::open_checkpoint(folder.path());
  if (!file.ok()) return file.error().message;
  model::Quantization quantization;
  quantization.method = model::QuantMethod::kMxFp4;
  const auto source = model::dequantized(std::move(*file), quantization);
  kernels::WorkerPool pool(2);
  const auto store = model::make_host_store(pool, kernels::WeightType::kF32);
  model::WeightLoader loader(*source, *store, 0, nullptr);
  const auto weight =
      loader.packed({.parts = {{.name = "m", .sections = {3}, .num_slices = 2, .slice = 1}},
                     .k = 32,
                     .order = kernels::WeightOrder::kInputsByOutputs});
  if (loader.error()) return loader.error()->message;
  EXPECT_EQ(weight.grouping.codes, kernels::CodeType::kE2M1);
  EXPECT_EQ(loader.num_widened(), 0);
  kernels::PackedLinear packed{weight.panels.get(), 3, 32, weight.type};
  packed.grouping = weight.grouping;
  std::vector<float> numbers(2 * 3 * 32);
  const auto tensor = source->tensor({"m", {2, 32, 3}, {}});
  if (!tensor.ok()) return tensor.error().message;
  EXPECT_TRUE(tensor->outputs_first);
  const auto read = tensor->read(0, numbers.size() * sizeof(float), numbers.data());
  if (!read.ok()) return read.error().message;
  for (int n = 0; n < 3; ++n) {
    for (int k = 0; k < 32; ++k) {
      elements->push_back(kernels::packed_element(packed, n, k));
      EXPECT_EQ(elements->back(), numbers[static_cast<std::size_t>((3 + n) * 32 + k)]);
    }
  }
  return "";
}

TEST(QuantizedTest, Fp4OfExpertsIsKeptAsItIs) {
  std::vector<float> elements;
  ASSERT_EQ(packed_fp4(kFp4, &elements), "");
  constexpr float kSizes[] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                              -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  const float scales[] = {0x1p-127F, 4.0F, 0x1p125F};
  for (std::size_t i = 0; i < elements.size(); ++i) {
    EXPECT_EQ(elements[i], kSizes[i % 16] * scales[i / 32]) << i;
  }
}

TEST(QuantizedTest, Fp4ThatIsWrongIsNamed) {
  std::vector<float> none;
  auto tensors = kFp4;
  tensors.pop_back();
  expect_error(packed_fp4(tensors, &none), "tensor 'm_scales' is missing");
  tensors = kFp4;
  for (const char exponent : {'\xfd', '\xff'}) {
    tensors[1].data[5] = exponent;
    expect_error(packed_fp4(tensors, &none), "'m_scales': a scale is no finite number");
  }
  for (const std::size_t i : {0U, 1U}) {
    tensors = kFp4;
    tensors[i].type = "I8";
    expect_error(packed_fp4(tensors, &none), "expected is [2, 3, 1");
    tensors = kFp4;
    std::swap(tensors[i].shape[0], tensors[i].shape[1]);
    expect_error(packed_fp4(tensors, &none), "'" + tensors[i].name + "': it is [3, 2, 1");
  }
}

// Some programs save one with every matrix.
TEST(QuantizedTest, ABiasThatNoModelAsksForMayBeZeros) {
  auto tensors = formats()[3].tensors;
  tensors.push_back({"m.bias", "F32", {8}, std::string(32, '\0')});
  EXPECT_EQ(error_in(kGptq, tensors), "");
  tensors.back().data = kOnes.substr(0, 32);
  expect_error(error_in(kGptq, tensors), "'m.bias' is not 0");
}

TEST(QuantizedTest, NamesAreThoseOfMatrices) {
  const testing::TempFolder folder;
  auto tensors = formats()[3].tensors;
  tensors.push_back({"m.bias", "F32", {8}, kOnes.substr(0, 32)});
  tensors.push_back({"n.input_scale", "F32", {1}, kOnes.substr(0, 4)});
  tensors.push_back({"norm.weight", "F32", {8}, kOnes.substr(0, 32)});
  folder.write("model.safetensors", file_of(tensors));
  const auto source =
      model::dequantized(*model::open_checkpoint(folder.path()), quantization_of(kGptq));
  EXPECT_EQ(source->names(), (std::vector<std::string>{"m.weight", "norm.weight"}));
}

}  // namespace
}  // namespace lmtp
