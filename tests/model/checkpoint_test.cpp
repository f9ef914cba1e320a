// Checkpoint files that are not as they should be: each has an error that names what is wrong.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/model/causal_lm.h"
#include "lmtp/model/weights.h"
#include "temp_folder.h"
#include "tiny_checkpoints.h"

namespace lmtp {
namespace {

using lmtp::testing::expect_said;
using lmtp::testing::file_of;
using lmtp::testing::file_with;
using lmtp::testing::kTinyConfig;
using lmtp::testing::kTinyLlama;
using lmtp::testing::load_error;
using lmtp::testing::tensors_of;
using lmtp::testing::TensorSpec;

// A whole safetensors file, with `edit` applied to the list of tensors.
template <typename Edit>
std::string tiny_file(const Edit& edit) {
  auto tensors = tensors_of(kTinyConfig);
  edit(tensors);
  return file_with(tensors);
}

std::string tiny_file() {
  return tiny_file([](std::vector<TensorSpec>&) {});
}

// What check_tensors says of the file: its notes, or its error.
std::vector<std::string> check(const std::string& file, const char* json, bool force) {
  const testing::TempFolder folder;
  folder.write("model.safetensors", file);
  folder.write("config.json", json);
  const auto source = model::open_checkpoint(folder.path());
  const auto notes =
      model::check_tensors(*model::read_model_config(folder.path()), **source, force);
  return notes.ok() ? *notes : std::vector{notes.error().message};
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
    tensors.push_back({"h.0.crossattention.bias", {1, 1, 8, 8}, {}});
    tensors.push_back({"h.0.crossattention.masked_bias", {}, {}});
    tensors.push_back({"decoder.version", {1}, {}});
  });
  EXPECT_EQ(load_error(file), "");
}

// What is wrapped around a model that is saved, and what it is a part of.
TEST(CheckpointTest, NamesHaveAnyPrefix) {
  for (const char* config : {kTinyConfig, kTinyLlama}) {
    const auto tensors = tensors_of(config);
    for (const std::string wrapper :
         {"module.", "_orig_mod.", "module._orig_mod.", "language_model.", "model.model."}) {
      auto wrapped = tensors;
      for (TensorSpec& tensor : wrapped) tensor.name = wrapper + tensor.name;
      EXPECT_EQ(load_error(file_with(wrapped), config), "") << wrapper;
    }
    // The model without its head's class around it, and that as a part of another.
    for (const std::string wrapper : {"", "model.language_model."}) {
      auto bare = tensors;
      for (TensorSpec& tensor : bare) {
        if (const auto dot = tensor.name.find('.'); tensor.name != "lm_head.weight") {
          tensor.name = wrapper + tensor.name.substr(dot + 1);
        }
      }
      EXPECT_EQ(load_error(file_with(bare), config), "") << wrapper;
    }
  }
}

TEST(CheckpointTest, TensorsThatNobodyAsksForAreRefused) {
  auto tensors = tensors_of(kTinyLlama);
  tensors.push_back({"model.layers.0.self_attn.inner_attn_ln.weight", {4}, {}});
  tensors.push_back({"score.weight", {2, 4}, {}});
  const std::string file = file_with(tensors);
  const char* const names =
      "(2: 'model.layers.0.self_attn.inner_attn_ln.weight', 'score.weight'); without them";
  expect_said(load_error(file, kTinyLlama), names);
  expect_said(load_error(file, kTinyLlama), "model.safetensors: holds tensors that a llama model");
  expect_said(load_error(file, kTinyLlama), "(--force serves it all the same)");
  const auto notes = check(file, kTinyLlama, true);
  ASSERT_EQ(notes.size(), 1U);
  expect_said(notes[0], "served by --force");
  expect_said(notes[0], names);
}

TEST(CheckpointTest, TablesAndTiedHeadsAreHarmless) {
  auto tensors = tensors_of(kTinyLlama);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {1}, {}});
  EXPECT_EQ(load_error(file_with(tensors), kTinyLlama), "");
  tensors.push_back({"model.embeddings.position_ids", {1, 8}, {}});
  tensors.push_back({"model.layers.0.self_attn.empty", {0}, {}});
  EXPECT_EQ(load_error(file_with(tensors), kTinyLlama), "");
  tensors = tensors_of(kTinyConfig);
  tensors.push_back({"lm_head.weight", {11, 4}, {}});
  EXPECT_EQ(load_error(file_with(tensors)), "");
}

TEST(CheckpointTest, HeadsOfFurtherTokensAreLeftOut) {
  auto tensors = tensors_of(kTinyLlama);
  tensors.push_back({"mtp.fc.weight", {4, 8}, {}});
  tensors.push_back({"model.layers.1.eh_proj.weight", {4, 8}, {}});
  tensors.push_back({"model.layers.1.self_attn.q_proj.weight", {4, 4}, {}});
  const auto notes = check(file_with(tensors), kTinyLlama, false);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0], "the heads that predict further tokens ahead (mtp) are left out");
  // A layer more without their projection is one that config.json has forgotten.
  std::erase_if(tensors,
                [](const TensorSpec& one) { return one.name.ends_with("eh_proj.weight"); });
  expect_said(check(file_with(tensors), kTinyLlama, false)[0], "(1: 'model.layers.1.self_attn");
}

TEST(CheckpointTest, Float64IsRounded) {
  std::string header = R"({"x":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}})";
  const double values[] = {0.5, 0.1, -3.0};
  const std::string file = file_of(header, {reinterpret_cast<const char*>(values), sizeof(values)});
  const testing::TempFolder folder;
  folder.write("model.safetensors", file);
  const auto source = model::open_checkpoint(folder.path());
  ASSERT_TRUE(source.ok());
  const auto tensor = (*source)->tensor({"x", {3}, {}});
  ASSERT_TRUE(tensor.ok()) << tensor.error().message;
  EXPECT_EQ(tensor->type, kernels::ElementType::kF32);
  float read[2] = {};
  ASSERT_TRUE(tensor->read(sizeof(float), sizeof(read), read).ok());
  EXPECT_EQ(read[0], 0.1F);
  EXPECT_EQ(read[1], -3.0F);
}

TEST(CheckpointTest, OtherPartsOfALargerModelAreLeftOut) {
  auto tensors = tensors_of(kTinyLlama);
  for (TensorSpec& tensor : tensors) tensor.name = "language_model." + tensor.name;
  tensors.push_back({"vision_tower.layers.0.weight", {4}, {}});
  tensors.push_back({"model.projector.weight", {4}, {}});
  auto notes = check(file_with(tensors), kTinyLlama, false);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0], "the weights of 'projector', 'vision_tower' are left out");
  EXPECT_EQ(load_error(file_with(tensors), kTinyLlama), "");
  // But not of the language model itself.
  tensors.push_back({"language_model.score.weight", {2, 4}, {}});
  notes = check(file_with(tensors), kTinyLlama, false);
  expect_said(notes[0], "(1: 'language_model.score.weight')");
}

TEST(CheckpointTest, WhatStandsInThePlaceOfATensorIsNamed) {
  const auto replaced = [](const char* leaf, const std::vector<std::int64_t>& shape, bool beside) {
    auto tensors = tensors_of(kTinyLlama);
    const std::string module = "model.layers.0.self_attn.q_proj.";
    if (!beside) {
      std::erase_if(tensors, [&](const TensorSpec& t) { return t.name == module + "weight"; });
    }
    for (TensorSpec& tensor : tensors) {
      if (tensor.name == module + "weight") tensor.shape = shape;
    }
    tensors.push_back({module + leaf, shape, {}});
    return load_error(file_with(tensors), kTinyLlama);
  };
  expect_said(replaced("qweight", {1, 4}, false), "q_proj.weight' is missing; the file has");
  expect_said(replaced("qweight", {1, 4}, false), "q_proj.qweight': a GPTQ or AWQ checkpoint");
  expect_said(replaced("weight_packed", {1, 4}, false), "a compressed-tensors checkpoint");
  expect_said(replaced("weight.absmax", {8, 1}, true), "a bitsandbytes checkpoint");
  expect_said(replaced("w", {1}, false), "of its module there is 'model.layers.0.self_attn.q_pr");
  expect_said(load_error(file_with({{"blk.0.attn_q", {4}, {}}, {"a", {1}, {}}})),
              "'transformer.wte.weight' is missing; the names there are like 'a', 'blk.0.attn_q'");
  expect_said(load_error(file_of(R"({"wte.weight":{"dtype":"F8_E4M3","shape":[11,4],)"
                                 R"("data_offsets":[0,44]}})",
                                 std::string(44, '\0'))),
              "its type is F8_E4M3 (FP8 weights)");
}

TEST(CheckpointTest, AMissingTensorIsNamed) {
  const std::string file = tiny_file([](std::vector<TensorSpec>& tensors) {
    std::erase_if(tensors, [](const TensorSpec& tensor) {
      return tensor.name == "transformer.h.0.mlp.c_fc.bias";
    });
  });
  expect_said(load_error(file), "tensor 'transformer.h.0.mlp.c_fc.bias' is missing");
}

TEST(CheckpointTest, AMisshapenTensorIsNamedWithBothShapes) {
  const std::string file = tiny_file([](std::vector<TensorSpec>& tensors) {
    for (TensorSpec& tensor : tensors) {
      if (tensor.name == "transformer.h.0.attn.c_attn.weight") {
        tensor.shape = {12, 4};
      }
    }
  });
  expect_said(load_error(file),
              "tensor 'transformer.h.0.attn.c_attn.weight': its shape is [12, 4], and config.json "
              "asks for [4, 12]");
}

TEST(CheckpointTest, ATruncatedFileIsNamed) {
  const std::string whole = tiny_file();
  const std::string beyond = "beyond the end of the file: the file is truncated";
  expect_said(load_error(whole.substr(0, whole.size() - 1)), beyond.c_str());
  expect_said(load_error(whole.substr(0, whole.size() / 2)), "truncated");
  expect_said(load_error(whole.substr(0, 100)), "or truncated: its header claims");
  expect_said(load_error(whole.substr(0, 5)), "shorter than its header");
  expect_said(load_error(std::string()), "empty");
}

TEST(CheckpointTest, ACorruptHeaderIsNamed) {
  expect_said(load_error(file_of("{\"a\":", "")), "the header is not a JSON object");
  expect_said(load_error(file_of("[1]", "")), "the header is not a JSON object");
  expect_said(load_error(file_of(R"({"a":{"dtype":"F32"}})", "")), "tensor 'a': dtype, shape");
  expect_said(
      load_error(file_of(R"({"a":{"dtype":"F32","shape":["x"],"data_offsets":[0,0]}})", "")),
      "shape is not a list of sizes");
  expect_said(
      load_error(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234")),
      "not two rising numbers");
  const std::string one = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string other = R"("b":{"dtype":"F32","shape":[1],"data_offsets":[)";
  expect_said(load_error(file_of("{" + one + "," + one + "}", "1234")), "'a' is there twice");
  expect_said(load_error(file_of("{" + one + "," + other + "8,12]}}", "123456789012")),
              "tensor 'b' does not begin where the one before it ends");
  expect_said(load_error(file_of("{" + one + "," + other + "2,6]}}", "123456")),
              "tensor 'b' does not begin where the one before it ends");
  expect_said(load_error(file_of("{" + one + "}", "123456")), "2 bytes lie behind its last tensor");
  std::string claims = tiny_file();
  claims[7] = '\x7f';
  expect_said(load_error(claims), "its header claims");
}

TEST(CheckpointTest, SizesThatDoNotAddUpAreNamed) {
  // A vocabulary of 11 x 4 floats whose bytes are one element short.
  expect_said(
      load_error(file_of(R"({"wte.weight":{"dtype":"F32","shape":[11,4],"data_offsets":[0,172]}})",
                         std::string(172, '\0'))),
      "it has 172 bytes, and its shape needs 176");
  expect_said(
      load_error(file_of(R"({"wte.weight":{"dtype":"I8","shape":[11,4],"data_offsets":[0,44]}})",
                         std::string(44, '\0'))),
      "its type is I8; F64, F32, F16 and BF16 are supported");
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
  expect_said((*source)->check_unchanged().error().message, "somebody wrote to it");
  std::filesystem::resize_file(path, 0);
  expect_said(tensor->read(0, sizeof(data), data).error().message,
              "somebody writes to it; try again");
  // Half of the tensor is there.
  folder.write("model.safetensors", file);
  std::filesystem::resize_file(path, file.size() - 4);
  kernels::WorkerPool pool(2);
  const auto store = model::make_host_store(pool, kernels::WeightType::kF32);
  model::WeightLoader loader(**source, *store, 0, nullptr);
  folder.write("config.json", kTinyConfig);
  model::SingleRank single;
  const auto loaded = model::make_causal_lm(*model::read_model_config(folder.path()), loader,
                                            {.max_tokens = 4, .communicator = single});
  ASSERT_FALSE(loaded.ok());
  expect_said(loaded.error().message, "somebody writes to it; try again");
}

TEST(CheckpointTest, APipeIsNotWaitedFor) {
  const testing::TempFolder folder;
  ASSERT_EQ(mkfifo((folder.path() + "/model.safetensors").c_str(), 0600), 0);
  expect_said(load_error(folder), "model.safetensors: not a file");
}

TEST(CheckpointTest, AFolderWithoutWeightsIsNamed) {
  const testing::TempFolder folder;
  expect_said(load_error(folder), "no model.safetensors");
  EXPECT_EQ(model::open_checkpoint(folder.path()).error().code, ErrorCode::kNotFound);
  folder.write("model.safetensors", "{");
  EXPECT_EQ(model::open_checkpoint(folder.path()).error().code, ErrorCode::kInvalid);
}

TEST(CheckpointTest, AShardedCheckpointLoadsAndItsFaultsAreNamed) {
  const testing::TempFolder folder;
  const auto half = [](bool first) {
    return tiny_file([first](std::vector<TensorSpec>& tensors) {
      for (std::size_t i = tensors.size(); i-- > 0;) {
        if ((i % 2 == 0) != first) tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
      }
    });
  };
  const auto tensors = tensors_of(kTinyConfig);
  const auto index = [&](std::size_t wrong) {
    std::string map;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const bool first = (i % 2 == 0) != (i == wrong);
      map += (i == 0 ? "\"" : ", \"") + tensors[i].name + "\": \"model-0000" + (first ? "1" : "2") +
             "-of-00002.safetensors\"";
    }
    return R"({"weight_map": {)" + map + "}}";
  };
  folder.write("model-00001-of-00002.safetensors", half(true));
  folder.write("model.safetensors.index.json", index(tensors.size()));
  expect_said(load_error(folder), "model-00002-of-00002.safetensors: No such file");
  folder.write("model-00002-of-00002.safetensors", half(false));
  EXPECT_EQ(load_error(folder), "");
  std::string more = index(tensors.size());
  more.insert(more.find("}}"), R"(, "lm_head.weight": "model-00002-of-00002.safetensors")");
  folder.write("model.safetensors.index.json", more);
  EXPECT_EQ(load_error(folder), "")
      << "a tied head was dropped, and the index is still the old one";
  folder.write("model.safetensors.index.json", index(3));
  expect_said(load_error(folder),
              ("tensor '" + tensors[3].name + "' is not in model-00001").c_str());
  folder.write("model-00001-of-00002.safetensors", tiny_file());
  expect_said(load_error(folder), "model-00001-of-00002.safetensors too");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "../secret"}})");
  expect_said(load_error(folder), "weight_map names a file that is not beside it");
  std::filesystem::resize_file(folder.path() + "/model.safetensors.index.json",
                               (std::uintmax_t{64} << 20) + 1);
  expect_said(load_error(folder), "larger than an index");
  folder.write("model.safetensors.index.json", "{}");
  expect_said(load_error(folder), "not a JSON object with a weight_map");
}

}  // namespace
}  // namespace lmtp
