// Reading adapters: peft's own, and what is wrong with others, which are peft's with a change.
#include "lmtp/model/lora_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lmtp/base/json.h"
#include "lora_config.h"
#include "source_dir.h"
#include "temp_folder.h"

namespace lmtp::model {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// peft's adapter of the llama; a test changes what it wants before read().
struct Folder {
  explicit Folder(const std::string& name = "llama") {
    const std::string from = testing::goldens() + "adapters/" + name;
    config = Json::parse(text_of(from + "/adapter_config.json"));
    const std::string file = text_of(from + "/adapter_model.safetensors");
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
    header = Json::parse(file.substr(8, header_bytes));
    data = file.substr(8 + header_bytes);
  }

  // A tensor under another name.
  void rename(const std::string& from, const std::string& to) {
    header[to] = header.at(from);
    header.erase(from);
  }

  // All tensors with that in their names.
  void leave_out(const std::string& part) {
    std::map<std::int64_t, std::string> names;
    for (const auto& [name, entry] : header.items()) {
      if (entry.contains("data_offsets")) names[entry["data_offsets"][0]] = name;
    }
    std::string kept;
    for (const auto& [begin, name] : names) {
      if (name.find(part) != std::string::npos) {
        header.erase(name);
        continue;
      }
      Json& offsets = header[name]["data_offsets"];
      const auto size = offsets[1].get<std::size_t>() - static_cast<std::size_t>(begin);
      offsets = Json::array({kept.size(), kept.size() + size});
      kept += data.substr(static_cast<std::size_t>(begin), size);
    }
    data = kept;
  }

  Result<LoraWeights> read(const std::string& base = "families/llama",
                           const LoraOptions& options = {}) const {
    const testing::TempFolder folder;
    folder.write("adapter_config.json", config_text.empty() ? config.dump() : config_text);
    const std::string text = header.dump();
    const std::uint64_t header_bytes = text.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &header_bytes, sizeof(header_bytes));
    folder.write("adapter_model.safetensors", file + text + data);
    return read_lora(folder.path(), *read_model_config(testing::goldens() + base), options);
  }

  std::string error(const std::string& base = "families/llama",
                    const LoraOptions& options = {}) const {
    const auto weights = read(base, options);
    return weights.ok() ? "" : weights.error().message;
  }

  Json config;
  std::string config_text = {};  // in its place, where it is no JSON
  Json header;
  std::string data;
};

void expect_error(const Folder& folder, const std::string& what) {
  const std::string error = folder.error();
  EXPECT_NE(error.find(what), std::string::npos) << error << "\n  has no: " << what;
}

constexpr const char* kLast = "base_model.model.model.layers.2.self_attn.v_proj.lora_B.weight";

TEST(LoraAdapterTest, PeftsOwnIsRead) {
  const auto weights = Folder().read();
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  // Of three layers: q, k, v in one matrix, then the output, gate and up in one, down.
  EXPECT_EQ(weights->first_delta,
            (std::vector<std::int32_t>{0, 3, 4, 6, 7, 10, 11, 13, 14, 17, 18, 20, 21}));
  EXPECT_EQ(weights->deltas[0].rank, 3);
  EXPECT_EQ(weights->deltas[1].first_output, 36);
  EXPECT_EQ(weights->deltas[13].rank, 6);
  EXPECT_EQ(weights->deltas[19].rank, 1);
  EXPECT_EQ(weights->num_elements() % kernels::kLoraChunk, 0);
}

// As peft names them where the whole model, vision included, was tuned: a tensor of another part is
// there, too.
TEST(LoraAdapterTest, OneOfALargerModelIsRead) {
  const auto alone = Folder().read();
  ASSERT_TRUE(alone.ok());
  for (const std::string inside : {"model.language_model.", "language_model.model."}) {
    Folder folder;
    std::vector<std::string> names;
    for (const auto& [name, entry] : folder.header.items()) {
      if (entry.contains("data_offsets")) names.push_back(name);
    }
    const std::string before = "base_model.model.model.";
    for (const std::string& name : names) {
      folder.rename(name, "base_model.model." + inside + name.substr(before.size()));
    }
    folder.header["base_model.model.model.vision_tower.layers.0.q_proj.lora_A.weight"] = {
        {"dtype", "F32"},
        {"shape", {1, 2}},
        {"data_offsets", {folder.data.size(), folder.data.size() + 8}}};
    folder.data += std::string(8, '\0');
    const auto weights = folder.read();
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->first_delta, alone->first_delta);
    EXPECT_EQ(weights->num_elements(), alone->num_elements());
  }
}

TEST(LoraAdapterTest, AnotherModelsIsRefused) {
  EXPECT_NE(Folder().error("families/qwen3").find("the adapter is of 'families/llama'"),
            std::string::npos);
  EXPECT_NE(Folder("gpt2").error().find("'c_attn', 'c_fc', 'c_proj' is no linear layer of a llama"),
            std::string::npos);
  Folder more_layers;
  more_layers.rename(kLast, "base_model.model.model.layers.9.self_attn.v_proj.lora_B.weight");
  const std::string error = more_layers.error();
  EXPECT_NE(error.find("is missing, and target_modules names its layer"), std::string::npos)
      << error;
}

TEST(LoraAdapterTest, ExpertsHaveNoneAndAttentionHas) {
  // A Mixtral has the llama's attention, and no MLP beside its experts.
  const std::string layer = "base_model.model.model.layers.2.";
  for (const bool has_expert : {false, true}) {
    Folder folder;
    folder.config["base_model_name_or_path"] = nullptr;
    folder.config["target_modules"] = Json::array({"q_proj", "k_proj", "v_proj", "o_proj"});
    for (const char* matrix : {".lora_A.weight", ".lora_B.weight"}) {
      if (!has_expert) break;
      folder.rename(layer + "mlp.down_proj" + matrix,
                    layer + "block_sparse_moe.experts.0.w2" + matrix);
    }
    folder.leave_out(".mlp.");
    const std::string error = folder.error("experts/mixtral");
    EXPECT_EQ(error.find("adapters of experts are not served") != std::string::npos, has_expert)
        << error;
    EXPECT_EQ(error.empty(), !has_expert) << error;
  }
}

TEST(LoraAdapterTest, RanksAreBoundedAndThoseOfTheConfig) {
  EXPECT_NE(Folder().error("families/llama", {.rank_max = 7}).find("(--max-lora-rank)"),
            std::string::npos);
  EXPECT_EQ(Folder().error("families/llama", {.rank_max = 8}), "");
  Folder other;
  other.config["r"] = 4;
  expect_error(other, "by adapter_config.json's rank it is [4, 36]");
}

TEST(LoraAdapterTest, OtherKindsAreRefusedByName) {
  const std::pair<const char*, Json> kinds[] = {
      {"use_dora", true},
      {"bias", "all"},
      {"modules_to_save", Json::array({"lm_head"})},
      {"lora_bias", true},
      {"target_parameters", Json::array({"experts.down"})},
      {"layer_replication", Json::array({Json::array({0, 2})})},
      {"alora_invocation_tokens", Json::array({1, 2})},
      {"use_qalora", true},
      {"trainable_token_indices", Json::array({1})},
      {"init_lora_weights", "pissa"},
      {"use_something_new", true},
      {"peft_type", "LOHA"},
  };
  for (const auto& [key, value] : kinds) {
    Folder folder;
    folder.config[key] = value;
    expect_error(folder, std::string("adapter_config.json: ") + key + ": ");
  }
}

TEST(LoraAdapterTest, OtherTensorsAreRefusedByName) {
  const std::pair<const char*, const char*> tensors[] = {
      {"base_model.model.model.embed_tokens.lora_embedding_A", "embeddings"},
      {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "DoRA"},
      {"base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", "a bias of the adapter"},
      {"base_model.model.lm_head.weight", "replace the model's own"},
      {"base_model.model.lm_head.lora_A.weight", "have no such linear layer"},
      {"base_model.model.model.layers.7.mlp.up_proj.lora_B.weight", "have no such linear layer"},
  };
  for (const auto& [name, what] : tensors) {
    Folder folder;
    folder.header[name] = {
        {"dtype", "F32"},
        {"shape", Json::array({1})},
        {"data_offsets", Json::array({folder.data.size(), folder.data.size() + 4})}};
    folder.data += "1234";
    expect_error(folder, what);
    expect_error(folder, name);
  }
}

TEST(LoraAdapterTest, TargetsAndTensorsHaveToAgree) {
  Folder unknown;
  unknown.config["target_modules"].push_back("w_proj");
  expect_error(unknown, "'w_proj' is no linear layer");
  Folder fewer;
  fewer.config["target_modules"] = Json::array({"q_proj", "k_proj"});
  expect_error(fewer, "target_modules does not name its layer");
  Folder none;
  none.config["target_modules"] = "nothing";
  expect_error(none, "target_modules does not name its layer");
  Folder missing;
  const auto end = missing.header.at(kLast).at("data_offsets").at(1).get<std::size_t>();
  ASSERT_EQ(end, missing.data.size()) << "the test takes the last tensor away";
  missing.data.resize(missing.header.at(kLast).at("data_offsets").at(0).get<std::size_t>());
  missing.header.erase(kLast);
  expect_error(missing, std::string(kLast) + "': is missing");
}

TEST(LoraAdapterTest, ExpressionsAreBounded) {
  Folder broken;
  broken.config["target_modules"] = "(q_proj";
  expect_error(broken, "is no regular expression");
  Folder endless;  // takes 2^n steps where nothing bounds it
  endless.config["target_modules"] = "(([a-z_.0-9])*)*([a-z_.0-9]*)*[!?]";
  expect_error(endless, "target_modules: the expression takes too many steps on 'model.layers.0.");
  Folder many;  // each takes some
  many.config["rank_pattern"] = Json::object();
  for (int i = 0; i < 4000; ++i) {
    many.config["rank_pattern"]["([a-z]*)*([a-z]*)*([a-z_.0-9]*)*!" + std::to_string(i)] = 2;
  }
  expect_error(many, "rank_pattern: an expression takes too many steps");
  many.config["rank_pattern"].update(many.config["rank_pattern"]);
  for (int i = 0; i < 200; ++i) many.config["rank_pattern"]["more" + std::to_string(i)] = 2;
  expect_error(many, "rank_pattern: an object with at most 4096 keys is expected");
  for (const char* foreign : {"(*UTF).*", "(?R)", "\\Qq_proj\\E", "(?<name>q_proj)", "(?C)q",
                              ".*\\Kq_proj", "(?|q_proj)", "(?&a)"}) {
    Folder other;
    other.config["target_modules"] = foreign;
    expect_error(other, "is no regular expression of Python");
  }
}

TEST(LoraAdapterTest, NumbersHaveToBeFinite) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const char* name :
         {kLast, "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"}) {
      Folder folder;
      const auto at = folder.header.at(name).at("data_offsets").at(0).get<std::size_t>();
      std::memcpy(folder.data.data() + at + 8, &value, sizeof(value));
      expect_error(folder, "numbers that are not finite");
    }
  }
  Folder large;  // finite, and not with the numbers of lora_B
  large.config["lora_alpha"] = 1e38;
  large.config["r"] = 8;
  const auto at = large.header.at(kLast).at("data_offsets").at(0).get<std::size_t>();
  const float hundred = 100.0F;
  large.config["alpha_pattern"] = {{"layers.2.self_attn.v_proj", 1e38}};
  std::memcpy(large.data.data() + at, &hundred, sizeof(hundred));
  expect_error(large, "numbers that are not finite");
}

// As Python's json module writes and reads them.
TEST(LoraAdapterTest, ScalesHaveToBeFinite) {
  Folder large;
  large.config["lora_alpha"] = 1e300;
  expect_error(large, "adapter_config.json: lora_alpha: the scale of 'model.layers.0.self_attn.");
  for (const char* number : {"NaN", "Infinity", "-Infinity", "1e999"}) {
    for (const char* key : {"lora_alpha", "r", "alpha_pattern", "rank_pattern"}) {
      Folder folder;
      const bool is_pattern = std::string(key).ends_with("pattern");
      folder.config[key] = is_pattern ? Json{{"q_proj", "NUMBER"}} : Json("NUMBER");
      std::string text = folder.config.dump();
      text.replace(text.find("\"NUMBER\""), 8, number);
      folder.config_text = text;
      expect_error(folder, std::string("adapter_config.json: ") + key + ": ");
    }
  }
}

TEST(LoraAdapterTest, SizesAreCheckedBeforeMemoryIsTaken) {
  Folder folder;
  expect_error(folder, "");
  Json& entry = folder.header[kLast];
  const auto end = entry.at("data_offsets").at(1).get<std::size_t>();
  entry["data_offsets"][1] = end + 4;
  folder.data += "1234";
  expect_error(folder, std::string(kLast) + "': has ");
  expect_error(folder, "bytes, and by its shape [");
  const auto own = Folder().read();
  ASSERT_TRUE(own.ok());
  const auto num_bytes = static_cast<std::int64_t>(own->elements.size());
  EXPECT_EQ(Folder().error("families/llama", {.bytes_max = num_bytes}), "");
  EXPECT_NE(Folder()
                .error("families/llama", {.bytes_max = num_bytes - 1})
                .find("takes " + std::to_string(num_bytes) + " bytes of the KV cache"),
            std::string::npos);
  int num_asked = 0;
  const auto given_up =
      Folder().read("families/llama", {.goes_on = [&] { return ++num_asked < 3; }});
  ASSERT_FALSE(given_up.ok());
  EXPECT_EQ(given_up.error().code, ErrorCode::kStopping);
  EXPECT_EQ(num_asked, 3);
}

// What peft's tuners_utils.check_target_module_exists and get_pattern_key say of these names (a
// table that peft wrote: tests/goldens/make_adapters.py).
TEST(LoraAdapterTest, NamesAreThoseOfPeft) {
  const auto cases = OrderedJson::parse(text_of(testing::goldens() + "adapters/names.json"));
  ASSERT_GT(cases.size(), 30U);
  for (const OrderedJson& one : cases) {
    const testing::TempFolder folder;
    OrderedJson config = one.at("config");
    config["peft_type"] = "LORA";
    folder.write("adapter_config.json", config.dump());
    auto read = LoraConfig::read(folder.path() + "/adapter_config.json");
    ASSERT_EQ(read.ok(), one.contains("layers")) << config;
    if (!read.ok()) continue;
    for (const auto& [name, layer] : one.at("layers").items()) {
      const auto found = read->find(name);
      ASSERT_TRUE(found.ok()) << config << found.error().message;
      ASSERT_EQ(found->has_value(), !layer.is_null()) << config << " " << name;
      if (layer.is_null()) continue;
      EXPECT_EQ((*found)->rank, layer.at(0).get<int>()) << config << " " << name;
      EXPECT_FLOAT_EQ((*found)->scale, layer.at(1).get<float>()) << config << " " << name;
    }
  }
}

TEST(LoraAdapterTest, WhatIsNoAdapterIsRefused) {
  const testing::TempFolder empty;
  const auto config = *read_model_config(testing::goldens() + "families/llama");
  EXPECT_NE(read_lora(empty.path(), config, {}).error().message.find("adapter_config.json"),
            std::string::npos);
  empty.write("adapter_config.json", Folder().config.dump());
  EXPECT_NE(read_lora(empty.path(), config, {}).error().message.find("adapter_model.safetensors"),
            std::string::npos);
  Folder truncated;
  truncated.data.resize(truncated.data.size() / 2);
  expect_error(truncated, "truncated");
  Folder typed;
  typed.header[kLast]["dtype"] = "I32";
  expect_error(typed, "allowed are F32, F16 and BF16");
}

}  // namespace
}  // namespace lmtp::model
