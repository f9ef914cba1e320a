// Checkpoint files that are not as they should be: each has an error that names what is wrong.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/worker_pool.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/weights.h"
#include "temp_folder.h"

namespace lmtp {
namespace {

using model::TensorSpec;

const char* const kTinyConfig =
    R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 8, "n_embd": 4, "n_layer": 1,
        "n_head": 2})";

std::string file_of(std::string_view header, std::string_view data) {
  const std::uint64_t size = header.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file.append(header).append(data);
}

// A whole safetensors file of ones, with `edit` applied to the list of tensors.
template <typename Edit>
std::string tiny_file(const Edit& edit) {
  const testing::TempFolder folder;
  folder.write("config.json", kTinyConfig);
  auto tensors = *model::describe_tensors(*model::read_model_config(folder.path()));
  edit(tensors);
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const TensorSpec& tensor : tensors) {
    header += ",\"" + tensor.name + "\":{\"dtype\":\"F32\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      header += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    const std::size_t begin = data.size();
    const std::vector<float> ones(static_cast<std::size_t>(tensor.num_elements()), 1.0F);
    data.append(reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float));
    header +=
        "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  return file_of(header + "}", data);
}

std::string tiny_file() {
  return tiny_file([](std::vector<TensorSpec>&) {});
}

std::string load_error(const testing::TempFolder& folder) {
  folder.write("config.json", kTinyConfig);
  const auto config = model::read_model_config(folder.path());
  auto source = model::open_checkpoint(folder.path());
  if (!source.ok()) {
    return source.error().message;
  }
  kernels::WorkerPool pool(2);
  int last_percent = -1;
  const auto tensors = model::describe_tensors(*config);
  std::int64_t num_elements = 0;
  for (const TensorSpec& tensor : *tensors) {
    num_elements += tensor.num_elements();
  }
  const auto store = model::make_host_store(pool, kernels::WeightType::kF32);
  model::WeightLoader loader(**source, *store, num_elements,
                             [&](int percent) { return (last_percent = percent) >= 0; });
  const auto loaded = model::make_causal_lm(*config, loader, 4);
  if (!loaded.ok()) {
    return loaded.error().message;
  }
  EXPECT_EQ(last_percent, 100);
  return "";
}

std::string load_error(const std::string& file) {
  const testing::TempFolder folder;
  folder.write("model.safetensors", file);
  return load_error(folder);
}

void expect_error(const std::string& error, const char* part) {
  EXPECT_NE(error.find(part), std::string::npos) << "'" << error << "' lacks '" << part << "'";
}

TEST(CheckpointTest, AWholeFileLoads) { EXPECT_EQ(load_error(tiny_file()), ""); }

TEST(CheckpointTest, NamesWithoutTheirPrefixAndTensorsThatAreNotAskedFor) {
  const std::string file = tiny_file([](std::vector<TensorSpec>& tensors) {
    for (TensorSpec& tensor : tensors) {
      ASSERT_EQ(tensor.name.rfind("transformer.", 0), 0U) << tensor.name;
      tensor.name = tensor.name.substr(12);
    }
    tensors.push_back({"h.0.attn.bias", {1, 1, 8, 8}, {}});
    tensors.push_back({"h.0.attn.masked_bias", {}, {}});
  });
  EXPECT_EQ(load_error(file), "");
}

TEST(CheckpointTest, AMissingTensorIsNamed) {
  const std::string file = tiny_file([](std::vector<TensorSpec>& tensors) {
    std::erase_if(tensors, [](const TensorSpec& tensor) {
      return tensor.name == "transformer.h.0.mlp.c_fc.bias";
    });
  });
  expect_error(load_error(file), "tensor 'transformer.h.0.mlp.c_fc.bias' is missing");
}

TEST(CheckpointTest, AMisshapenTensorIsNamedWithBothShapes) {
  const std::string file = tiny_file([](std::vector<TensorSpec>& tensors) {
    for (TensorSpec& tensor : tensors) {
      if (tensor.name == "transformer.h.0.attn.c_attn.weight") {
        tensor.shape = {12, 4};
      }
    }
  });
  expect_error(load_error(file),
               "tensor 'transformer.h.0.attn.c_attn.weight': its shape is [12, 4], and config.json "
               "asks for [4, 12]");
}

TEST(CheckpointTest, ATruncatedFileIsNamed) {
  const std::string whole = tiny_file();
  const std::string beyond = "beyond the end of the file: the file is truncated";
  expect_error(load_error(whole.substr(0, whole.size() - 1)), beyond.c_str());
  expect_error(load_error(whole.substr(0, whole.size() / 2)), "truncated");
  expect_error(load_error(whole.substr(0, 100)), "or truncated: its header claims");
  expect_error(load_error(whole.substr(0, 5)), "shorter than its header");
  expect_error(load_error(std::string()), "empty");
}

TEST(CheckpointTest, ACorruptHeaderIsNamed) {
  expect_error(load_error(file_of("{\"a\":", "")), "the header is not a JSON object");
  expect_error(load_error(file_of("[1]", "")), "the header is not a JSON object");
  expect_error(load_error(file_of(R"({"a":{"dtype":"F32"}})", "")), "tensor 'a': dtype, shape");
  expect_error(
      load_error(file_of(R"({"a":{"dtype":"F32","shape":["x"],"data_offsets":[0,0]}})", "")),
      "shape is not a list of sizes");
  expect_error(
      load_error(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234")),
      "not two rising numbers");
  std::string claims = tiny_file();
  claims[7] = '\x7f';
  expect_error(load_error(claims), "its header claims");
}

TEST(CheckpointTest, SizesThatDoNotAddUpAreNamed) {
  // A vocabulary of 11 x 4 floats whose bytes are one element short.
  expect_error(
      load_error(file_of(R"({"wte.weight":{"dtype":"F32","shape":[11,4],"data_offsets":[0,172]}})",
                         std::string(172, '\0'))),
      "it has 172 bytes, and its shape needs 176");
  expect_error(
      load_error(file_of(R"({"wte.weight":{"dtype":"I8","shape":[11,4],"data_offsets":[0,44]}})",
                         std::string(44, '\0'))),
      "its type is I8; F32, F16 and BF16 are supported");
}

TEST(CheckpointTest, AFileThatShrinksOrChangesBeforeItIsReadIsAnError) {
  const testing::TempFolder folder;
  const std::string file = tiny_file();
  const std::string path = folder.path() + "/model.safetensors";
  folder.write("model.safetensors", file);
  const TensorSpec spec{"transformer.wte.weight", {11, 4}, {}};
  auto source = model::open_checkpoint(folder.path());
  const auto tensor = (*source)->tensor(spec);
  char data[11 * 4 * sizeof(float)];
  EXPECT_TRUE(tensor->read(0, sizeof(data), data).ok());
  EXPECT_TRUE((*source)->check_unchanged().ok());
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  expect_error((*source)->check_unchanged().error().message, "somebody wrote to it");
  std::filesystem::resize_file(path, 0);
  expect_error(tensor->read(0, sizeof(data), data).error().message,
               "somebody writes to it; try again");
  // Half of the tensor is there.
  folder.write("model.safetensors", file);
  std::filesystem::resize_file(path, file.size() - 4);
  kernels::WorkerPool pool(2);
  const auto store = model::make_host_store(pool, kernels::WeightType::kF32);
  model::WeightLoader loader(**source, *store, 0, nullptr);
  folder.write("config.json", kTinyConfig);
  const auto loaded = model::make_causal_lm(*model::read_model_config(folder.path()), loader, 4);
  ASSERT_FALSE(loaded.ok());
  expect_error(loaded.error().message, "somebody writes to it; try again");
}

TEST(CheckpointTest, AFolderWithoutWeightsIsNamed) {
  const testing::TempFolder folder;
  expect_error(load_error(folder), "no model.safetensors");
}

TEST(CheckpointTest, AShardedCheckpointLoadsAndItsFaultsAreNamed) {
  const testing::TempFolder folder;
  const auto half = [](bool first) {
    return tiny_file([first](std::vector<TensorSpec>& tensors) {
      for (std::size_t i = tensors.size(); i-- > 0;) {
        if ((i % 2 == 0) != first) {
          tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
    });
  };
  folder.write("model-00001-of-00002.safetensors", half(true));
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"a": "model-00001-of-00002.safetensors",
                                  "b": "model-00002-of-00002.safetensors"}})");
  expect_error(load_error(folder), "model-00002-of-00002.safetensors: No such file");
  folder.write("model-00002-of-00002.safetensors", half(false));
  EXPECT_EQ(load_error(folder), "");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "../secret"}})");
  expect_error(load_error(folder), "weight_map names a file that is not beside it");
  folder.write("model.safetensors.index.json", "{}");
  expect_error(load_error(folder), "not a JSON object with a weight_map");
}

}  // namespace
}  // namespace lmtp
