// GGUF files as models: what is made of their metadata, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gguf_assembler.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"
#include "source_dir.h"
#include "temp_folder.h"

namespace lmtp::model {
namespace {

using ::testing::ElementsAre;
using testing::GgufAssembler;
using ::testing::HasSubstr;

constexpr std::uint32_t kGgufF32 = 0;
constexpr std::uint32_t kGgufTq1 = 34;

Result<ModelConfig> gguf_config(const GgufAssembler& assembler, const ConfigOptions& options = {}) {
  const testing::TempFolder folder;
  folder.write("model.gguf", assembler.bytes());
  return read_model_config(folder.path() + "/model.gguf", options);
}

GgufAssembler small_llama() {
  GgufAssembler file;
  file.key("general.architecture", "llama");
  file.key("llama.block_count", 2);
  file.key("llama.context_length", 64);
  file.key("llama.embedding_length", 8);
  file.key("llama.feed_forward_length", 12);
  file.key("llama.attention.head_count", 2);
  file.key("llama.attention.head_count_kv", 1);
  file.key("llama.attention.layer_norm_rms_epsilon", 6, GgufAssembler::number(0.25F));
  file.key("llama.rope.freq_base", 6, GgufAssembler::number(5000.0F));
  file.key("llama.rope.dimension_count", 4);
  file.tensor("token_embd.weight", {8, 10}, kGgufF32, 0);
  file.data_bytes = 320;
  return file;
}

std::string gguf_error(const std::function<void(GgufAssembler&)>& change) {
  GgufAssembler file = small_llama();
  change(file);
  const auto config = gguf_config(file);
  return config.ok() ? "no error" : config.error().message;
}

TEST(GgufConfigTest, IsThatOfTheMetadata) {
  GgufAssembler file = small_llama();
  file.key("tokenizer.ggml.tokens",
           std::vector<std::string>{"a", "<|eot_id|>", "<|im_end|>", "d", "e"});
  file.key("tokenizer.ggml.token_type", 9,
           GgufAssembler::number(std::uint32_t{5}) + GgufAssembler::number(std::uint64_t{5}) +
               GgufAssembler::number(std::int32_t{1}) + GgufAssembler::number(std::int32_t{3}) +
               GgufAssembler::number(std::int32_t{1}) + GgufAssembler::number(std::int32_t{1}) +
               GgufAssembler::number(std::int32_t{1}));
  file.key("tokenizer.ggml.eos_token_id", 4);
  const auto config = gguf_config(file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model_type, "llama");
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->vocab_size, 10);
  EXPECT_EQ(config->context_length, 64);
  EXPECT_EQ(config->hidden_size, 8);
  EXPECT_EQ(config->mlp_size, 12);
  EXPECT_EQ(config->num_heads, 2);
  EXPECT_EQ(config->num_kv_heads, 1);
  EXPECT_EQ(config->head_dim, 4);
  EXPECT_EQ(config->norm_epsilon, 0.25F);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_FALSE(config->layers.front().qkv_bias);
  EXPECT_THAT(config->rotaries.front().inverse_periods,
              ElementsAre(1.0F, ::testing::FloatNear(1 / std::sqrt(5000.0F), 1e-7F)));
  // A control token that ends a turn ends a text too; a token of that text that is none does not.
  EXPECT_THAT(config->eos_ids, ElementsAre(1, 4));
  EXPECT_TRUE(config->notes.empty());
}

TEST(GgufConfigTest, RotaryScalingIsReadAndChecked) {
  GgufAssembler linear = small_llama();
  linear.key("llama.rope.scaling.type", "linear");
  linear.key("llama.rope.scaling.factor", 6, GgufAssembler::number(4.0F));
  EXPECT_EQ(gguf_config(linear)->rotaries.front().inverse_periods[0], 0.25F);

  GgufAssembler old = small_llama();
  old.key("llama.rope.scale_linear", 6, GgufAssembler::number(2.0F));
  EXPECT_EQ(gguf_config(old)->rotaries.front().inverse_periods[0], 0.5F);

  GgufAssembler yarn = small_llama();
  yarn.key("llama.rope.scaling.type", "yarn");
  yarn.key("llama.rope.scaling.factor", 6, GgufAssembler::number(4.0F));
  yarn.key("llama.rope.scaling.original_context_length", 64);
  const auto config = gguf_config(yarn);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->context_length, 256);
  EXPECT_NEAR(config->rotaries.front().factor, 0.1F * std::log(4.0F) + 1.0F, 1e-6F);

  EXPECT_THAT(gguf_error([](GgufAssembler& file) { file.key("llama.rope.scaling.type", "twist"); }),
              HasSubstr("'twist' is not supported"));
  EXPECT_THAT(
      gguf_error([](GgufAssembler& file) { file.key("llama.rope.scaling.type", "longrope"); }),
      HasSubstr("tensors of rotary factors do not fit"));
  EXPECT_THAT(gguf_error([](GgufAssembler& file) {
                file.tensor("rope_freqs.weight", {3}, kGgufF32, 320);
                file.data_bytes = 352;
              }),
              HasSubstr("2 numbers above 0 are expected"));
}

TEST(GgufConfigTest, AKeyOfAnotherTypeIsNotAnAbsentOne) {
  const auto error_of_key = [](std::string_view key, std::uint32_t type, const std::string& value) {
    return gguf_error([&](GgufAssembler& file) { file.key(key, type, value); });
  };
  EXPECT_THAT(error_of_key("llama.rope.scaling.type", 4, GgufAssembler::number(2U)),
              HasSubstr("'llama.rope.scaling.type' has the type u32, and a string is needed"));
  EXPECT_THAT(error_of_key("llama.rope.scaling.factor", 8, GgufAssembler::text("4")),
              HasSubstr("has the type string, and a number is needed"));
  EXPECT_THAT(error_of_key("llama.attention.key_length", 8, GgufAssembler::text("4")),
              HasSubstr("has the type string, and a whole number"));
  EXPECT_THAT(error_of_key("tokenizer.ggml.eos_token_id", 6, GgufAssembler::number(1.5F)),
              HasSubstr("'tokenizer.ggml.eos_token_id' has the type f32"));
  EXPECT_THAT(error_of_key("split.count", 8, GgufAssembler::text("3")),
              HasSubstr("'split.count' has the type string"));
  GgufAssembler whole = small_llama();
  whole.key("tokenizer.ggml.eos_token_id", 6, GgufAssembler::number(3.0F));
  EXPECT_THAT(gguf_config(whole)->eos_ids, ElementsAre(3));
}

TEST(GgufConfigTest, RefusesByName) {
  EXPECT_THAT(gguf_error([](GgufAssembler& file) {
                file = GgufAssembler();
                file.key("general.architecture", "mamba");
              }),
              HasSubstr("'mamba' is not supported; supported are: llama, qwen2"));
  EXPECT_THAT(gguf_error([](GgufAssembler& file) { file = GgufAssembler(); }),
              HasSubstr("general.architecture: is missing"));
  EXPECT_THAT(gguf_error([](GgufAssembler& file) {
                file.tensor("blk.0.ffn_up.weight", {256, 1}, kGgufTq1, 320);
                file.data_bytes = 448;
              }),
              HasSubstr("'blk.0.ffn_up.weight': its type is TQ1_0, which is not read; F32"));
  EXPECT_THAT(gguf_error([](GgufAssembler& file) { file.key("split.count", 3); }),
              HasSubstr("is one of 3 files"));
  EXPECT_THAT(gguf_error([](GgufAssembler& file) { file.key("llama.attention.value_length", 8); }),
              HasSubstr("'llama.attention.value_length'"));
  EXPECT_THAT(gguf_error([](GgufAssembler& file) {
                file = GgufAssembler();
                file.key("general.architecture", "llama");
              }),
              HasSubstr("'llama.context_length' is missing"));
}

TEST(GgufConfigTest, KeysThatMayChangeTheMathsAreRefusedUnlessForced) {
  GgufAssembler file = small_llama();
  file.key("llama.expert_count", 8);
  const auto refused = gguf_config(file);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("'llama.expert_count' is not known here"));
  const auto forced = gguf_config(file, {.force = true});
  ASSERT_TRUE(forced.ok());
  EXPECT_THAT(forced->notes, ElementsAre(HasSubstr("llama.expert_count")));
  EXPECT_EQ(gguf_error([](GgufAssembler& other) { other.key("llama.expert_count", 0); }),
            "no error");
}

// The keys that every architecture needs.
GgufAssembler small(const std::string& architecture) {
  GgufAssembler file;
  file.key("general.architecture", architecture);
  for (const auto& [key, value] : {std::pair{".block_count", 5U},
                                   {".context_length", 64U},
                                   {".embedding_length", 8U},
                                   {".feed_forward_length", 12U},
                                   {".attention.head_count", 2U}}) {
    file.key(architecture + key, value);
  }
  file.tensor("token_embd.weight", {8, 10}, kGgufF32, 0);
  file.data_bytes = 320;
  return file;
}

TEST(GgufConfigTest, LayersThatGuessFurtherTokensAreLeftOut) {
  const auto with_guessing = [](std::uint32_t count, std::uint32_t scores) {
    GgufAssembler file = small("glm4moe");
    for (const auto& [key, value] : {std::pair{".nextn_predict_layers", count},
                                     {".expert_gating_func", scores},
                                     {".expert_count", 4U},
                                     {".expert_used_count", 2U},
                                     {".leading_dense_block_count", 3U}}) {
      file.key("glm4moe" + std::string(key), value);
    }
    return gguf_config(file);
  };
  constexpr std::uint32_t kSigmoid = 2;
  const auto config = with_guessing(1, kSigmoid);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->num_layers, 4) << "of 5";
  EXPECT_FALSE(config->layers[2].sparse);
  EXPECT_TRUE(config->layers[3].sparse);
  EXPECT_THAT(with_guessing(5, kSigmoid).error().message, HasSubstr("num_hidden_layers"));
  EXPECT_THAT(with_guessing(1, 1).error().message, HasSubstr("'glm4moe.expert_gating_func'"));
  GgufAssembler grouped = small("minimax-m2");
  grouped.key("minimax-m2.expert_count", 4);
  grouped.key("minimax-m2.expert_used_count", 2);
  grouped.key("minimax-m2.expert_group_count", 2);
  EXPECT_THAT(gguf_config(grouped).error().message, HasSubstr("expert_group_count"));
}

std::vector<int> gguf_windows(const GgufAssembler& file) {
  const auto config = gguf_config(file);
  EXPECT_TRUE(config.ok()) << config.error().message;
  std::vector<int> windows;
  for (const LayerSpec& layer : config->layers) windows.push_back(layer.window);
  return windows;
}

TEST(GgufConfigTest, WindowsAreReadOfThoseThatHaveThemAlone) {
  EXPECT_THAT(
      gguf_error([](GgufAssembler& file) { file.key("llama.attention.sliding_window", 16); }),
      HasSubstr("'llama.attention.sliding_window' is not known here"));
  EXPECT_THAT(gguf_windows(small("gemma2")), ElementsAre(4096, 0, 4096, 0, 4096));
  EXPECT_THAT(gguf_windows(small("phi3")), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(gguf_windows(small("exaone4")), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(gguf_windows(small("olmo2")), ElementsAre(0, 0, 0, 0, 0));
  GgufAssembler olmo3 = small("olmo2");
  olmo3.key("olmo2.attention.sliding_window", 16);
  EXPECT_THAT(gguf_windows(olmo3), ElementsAre(16, 16, 16, 0, 16));
  EXPECT_EQ(gguf_config(olmo3)->model_type, "olmo3");
}

TEST(GgufConfigTest, GraniteDividesScoresAsOthersWhereTheFileDoesNotSay) {
  GgufAssembler file = small("granite");
  EXPECT_FLOAT_EQ(gguf_config(file)->layers.front().attention_scale, 0.5F);
  file.key("granite.attention.scale", 6, GgufAssembler::number(0.25F));
  EXPECT_FLOAT_EQ(gguf_config(file)->layers.front().attention_scale, 0.25F);
}

// As its codes are and as float32 a matrix has the same bits, whatever it is packed with; nothing
// of the file is widened.
TEST(GgufTensorsTest, CodesAreTheNumbersOfTheFile) {
  const std::string path = testing::source_dir() + "/tests/goldens/gguf/mixed.gguf";
  const auto config = read_model_config(path);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto source = open_checkpoint(path);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const auto specs = describe_tensors(*config);
  int num_coded = 0;
  for (const TensorSpec& spec : *specs) {
    const auto coded = (*source)->coded(spec);
    ASSERT_TRUE(coded.ok()) << coded.error().message;
    if (*coded == nullptr) continue;
    ++num_coded;
    const auto packing = (*coded)->packing();
    ASSERT_TRUE(packing.ok() && packing->has_value()) << spec.name;
    const kernels::Grouping& grouping = (*packing)->grouping;
    const auto count = static_cast<std::size_t>(spec.num_elements());
    const std::int64_t k = spec.shape[1];
    std::vector<std::uint8_t> codes(count);
    std::vector<float> scales(count / static_cast<std::size_t>(grouping.group));
    std::vector<float> offsets(scales.size());
    float* const put = grouping.has_offsets ? offsets.data() : nullptr;
    ASSERT_TRUE((*coded)->rows(0, spec.shape[0], {codes.data(), scales.data(), put}).ok());
    std::vector<float> values(count);
    ASSERT_TRUE((*source)->tensor(spec)->read(0, count * sizeof(float), values.data()).ok());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t group = i / static_cast<std::size_t>(grouping.group);
      const int code = static_cast<std::int8_t>(codes[i]) - kernels::code_base(grouping);
      ASSERT_EQ(std::fma(scales[group], static_cast<float>(code), offsets[group]), values[i])
          << spec.name << " " << i / static_cast<std::size_t>(k);
    }
  }
  EXPECT_EQ(num_coded, 2 + 2 * 7);
  kernels::WorkerPool pool(1);
  const auto store = make_host_store(pool, kernels::WeightType::kF32);
  WeightLoader loader(**source, *store, 0, nullptr);
  SingleRank single;
  ASSERT_TRUE(make_causal_lm(*config, loader, {.max_tokens = 1, .communicator = single}).ok());
  EXPECT_EQ(loader.num_widened(), 0);
}

// The file of whose metadata a config was made may have been replaced since.
TEST(GgufTensorsTest, TypesThatAreNotReadAreRefusedToo) {
  const testing::TempFolder folder;
  GgufAssembler file = small_llama();
  file.tensor("blk.0.ffn_up.weight", {256, 1}, kGgufTq1, 320);
  file.data_bytes = 448;
  folder.write("model.gguf", file.bytes());
  const auto source = open_checkpoint(folder.path() + "/model.gguf");
  ASSERT_FALSE(source.ok());
  EXPECT_THAT(source.error().message, HasSubstr("'blk.0.ffn_up.weight': its type is TQ1_0"));
}

// Checked before memory is taken, as with the other formats.
TEST(GgufTensorsTest, MissingAndMisshapenOnesAreNamed) {
  const testing::TempFolder folder;
  GgufAssembler assembler = small_llama();
  assembler.tensor("blk.0.attn_norm.weight", {9}, kGgufF32, 320);
  assembler.data_bytes = 384;
  folder.write("model.gguf", assembler.bytes());
  const std::string path = folder.path() + "/model.gguf";
  const auto config = read_model_config(path);
  ASSERT_TRUE(config.ok());
  const auto source = open_checkpoint(path);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const auto checked = check_tensors(*config, **source, false);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message,
              HasSubstr("'blk.0.attn_norm.weight': its shape is [9], and the file's metadata ask "
                        "for [8]"));
  const auto missing = (*source)->tensor({"model.norm.weight", {8}, {}});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("'model.norm.weight' is missing"));
}

// A tensor of all experts of an architecture with two of them, in Q8_0.
struct ExpertsFile {
  explicit ExpertsFile(std::uint32_t num_experts) : file(small("qwen3moe")) {
    file.key("qwen3moe.expert_count", num_experts);
    file.tensor("blk.0.ffn_gate_exps.weight", {32, 4, 2}, kGgufQ8, 320);
    file.data_bytes = 320 + 2 * kMatrixBytes;
  }
  std::unique_ptr<model::TensorSource> open() const {
    folder.write("model.gguf", file.bytes());
    auto source = model::open_checkpoint(folder.path() + "/model.gguf");
    EXPECT_TRUE(source.ok()) << source.error().message;
    return std::move(*source);
  }
  static constexpr std::uint32_t kGgufQ8 = 8;
  static constexpr std::uint64_t kMatrixBytes = 4 * 34;
  GgufAssembler file;
  testing::TempFolder folder;
};
const std::string kExperts = "model.layers.0.mlp.experts.";

// By its projection tensor_check.h knows such a layer.
TEST(GgufExpertsTest, TensorsThatGuessFurtherTokensHaveTheNamesOfTransformers) {
  GgufAssembler file = small("glm4moe");
  file.key("glm4moe.expert_count", 4);
  file.tensor("blk.4.nextn.eh_proj.weight", {8}, kGgufF32, 320);
  file.data_bytes = 352;
  const testing::TempFolder folder;
  folder.write("model.gguf", file.bytes());
  const auto source = model::open_checkpoint(folder.path() + "/model.gguf");
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_TRUE((*source)->stored("model.layers.4.eh_proj.weight"));
}

TEST(GgufExpertsTest, ATensorOfAllIsOneOfEach) {
  const ExpertsFile experts(2);
  const auto source = experts.open();
  const model::TensorSpec last = {kExperts + "1.gate_proj.weight", {4, 32}, {}};
  ASSERT_TRUE(source->tensor(last).ok());
  const auto packing = (*source->coded(last))->packing();
  EXPECT_EQ((*packing)->n, 4);
  EXPECT_EQ((*packing)->k, 32);
  EXPECT_FALSE(source->stored(kExperts + "2.gate_proj.weight"));
  EXPECT_THAT(source->tensor({last.name, {32, 4}, {}}).error().message,
              HasSubstr("its shape is [4, 32] of each expert"));
}

TEST(GgufExpertsTest, OtherNumbersThanTheMetadatasStayOneTensor) {
  for (const std::uint32_t count : {0U, 1U, 3U, 1U << 31}) {
    const ExpertsFile experts(count);
    EXPECT_TRUE(experts.open()->stored(kExperts + "*.gate_proj.weight")) << count;
  }
}

TEST(GgufExpertsTest, NamesOfOursAreNoWayAroundIt) {
  ExpertsFile experts(2);
  experts.file.tensor(kExperts + "gate_up_proj", {32, 4, 2}, ExpertsFile::kGgufQ8, 608);
  experts.file.data_bytes = 608 + 2 * ExpertsFile::kMatrixBytes;
  const auto source = experts.open();
  EXPECT_EQ(*source->coded({kExperts + "gate_up_proj", {2, 4, 32}, {}}), nullptr);
  experts.file.tensor(kExperts + "1.gate_proj.weight", {32, 4}, ExpertsFile::kGgufQ8, 896);
  experts.file.data_bytes = 896 + ExpertsFile::kMatrixBytes;
  EXPECT_THAT(
      experts.open()->tensor({kExperts + "0.gate_proj.weight", {4, 32}, {}}).error().message,
      HasSubstr("is there twice"));
}

}  // namespace
}  // namespace lmtp::model
