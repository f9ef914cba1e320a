// Whether a model's output head is its embedding, as its weights decide.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "lmtp/model/causal_lm.h"
#include "lmtp/model/weights.h"
#include "temp_folder.h"
#include "tiny_checkpoints.h"

namespace lmtp {
namespace {

using lmtp::testing::expect_said;
using lmtp::testing::file_with;
using lmtp::testing::kTinyConfig;
using lmtp::testing::kTinyLlama;
using lmtp::testing::load_error;
using lmtp::testing::tensors_of;
using lmtp::testing::TensorSpec;

model::ModelConfig config_with(const std::vector<TensorSpec>& tensors, const char* json,
                               const model::ConfigOptions& options = {}) {
  const lmtp::testing::TempFolder folder;
  folder.write("model.safetensors", file_with(tensors));
  folder.write("config.json", json);
  auto config = model::read_model_config(folder.path(), options);
  const auto weights = model::open_checkpoint(folder.path());
  if (config.ok() && weights.ok() && model::settle_head(**weights, true, *config).ok()) {
    return *config;
  }
  ADD_FAILURE() << json;
  return {};
}

TEST(TiedHeadTest, TheHeadOfATiedModelIsTheFilesWhereItDiffers) {
  auto tensors = tensors_of(kTinyConfig);
  EXPECT_TRUE(config_with(tensors, kTinyConfig).tied_embeddings);
  tensors.push_back({"lm_head.weight", {11, 4}, {}});  // of the same ones
  const auto equal = config_with(tensors, kTinyConfig);
  EXPECT_TRUE(equal.tied_embeddings);
  EXPECT_TRUE(equal.notes.empty());
  tensors.back().init.mean = 2.0F;
  const auto differing = config_with(tensors, kTinyConfig);
  EXPECT_FALSE(differing.tied_embeddings);
  ASSERT_EQ(differing.notes.size(), 1U);
  expect_said(differing.notes[0], "'lm_head.weight' differs from the embedding");
  // An operator decides otherwise, of either.
  const auto tied = config_with(tensors, kTinyConfig, {.tie_embeddings = true});
  EXPECT_TRUE(tied.tied_embeddings && tied.notes.empty());
  EXPECT_FALSE(config_with(tensors, kTinyConfig, {.tie_embeddings = false}).tied_embeddings);
}

// Of a model that is not downloaded yet.
TEST(TiedHeadTest, HeadersAloneTellWhetherThereIsAHead) {
  const lmtp::testing::TempFolder folder;
  folder.write("config.json", kTinyConfig);
  auto tensors = tensors_of(kTinyConfig);
  tensors.push_back({"lm_head.weight", {11, 4}, {}});
  const std::string file = file_with(tensors);
  std::uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof(size));
  const auto weights =
      model::open_headers(folder.path(), {{.file = "model.safetensors",
                                           .bytes = file.substr(0, sizeof(size) + size),
                                           .file_size = static_cast<std::int64_t>(file.size())}});
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  auto config = *model::read_model_config(folder.path());
  EXPECT_TRUE(model::settle_head(**weights, false, config).ok());
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE(model::settle_head(**weights, true, config).ok()) << "nothing can be read";
}

// What is left of two names of one tensor.
TEST(TiedHeadTest, ATiedHeadAloneIsTheEmbedding) {
  for (const char* family : {"gpt2", "llama", "gpt_neox", "opt"}) {
    const std::string config =
        R"({"vocab_size": 11, "hidden_size": 4, "n_embd": 4, "n_head": 2, "n_layer": 1,
            "n_positions": 8, "intermediate_size": 6, "ffn_dim": 6, "num_hidden_layers": 1,
            "num_attention_heads": 2, "max_position_embeddings": 8, "rotary_pct": 1.0,
            "word_embed_proj_dim": 4, "tie_word_embeddings": true, "model_type": ")" +
        std::string(family) + "\"}";
    auto tensors = tensors_of(config.c_str());
    tensors.front().name =
        family == std::string("gpt_neox") ? "embed_out.weight" : "lm_head.weight";
    EXPECT_EQ(load_error(file_with(tensors), config.c_str()), "") << family;
  }
}

// The flag of either; a head in the file is its own.
TEST(TiedHeadTest, AWrapperOrItsTextModelMayTieTheHead) {
  const std::string text = R"("vocab_size": 11, "hidden_size": 4, "intermediate_size": 6,
      "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 8)";
  const auto wrapper = [&](const char* outer, const char* inner) {
    return std::string(R"({"model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"], )") +
           outer + R"("text_config": {"model_type": "llama", "tie_word_embeddings": )" + inner +
           ", " + text + "}}";
  };
  const char* const kOuterFalse = R"("tie_word_embeddings": false, )";
  auto with_head = tensors_of(kTinyLlama);
  with_head.back().init.mean = 2.0F;
  auto without = with_head;
  without.pop_back();
  for (const char* outer : {"", R"("tie_word_embeddings": true, )", kOuterFalse}) {
    for (const char* inner : {"true", "false"}) {
      const std::string json = wrapper(outer, inner);
      const auto own = config_with(with_head, json.c_str());
      EXPECT_FALSE(own.tied_embeddings) << json;
      EXPECT_EQ(own.notes.size(), inner == std::string("true") ? 2U : 1U) << json;
      const bool none_ties = outer == kOuterFalse && inner == std::string("false");
      EXPECT_EQ(config_with(without, json.c_str()).tied_embeddings, !none_ties) << json;
    }
  }
}

}  // namespace
}  // namespace lmtp
