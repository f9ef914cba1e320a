// Each key of the configs that transformers writes for the golden folders, changed alone: it is
// read, and then nothing of another type passes, or it is known to be of no concern.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"
#include "read_config.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using nlohmann::json;

// They tell how to train, give other outputs than tokens, or are another program's.
const std::set<std::string> kOfNoConcern = {
    "_sliding_window_pattern",
    "attention_dropout",
    "attention_softmax_in_fp32",
    "attn_pdrop",
    "bos_token_id",
    "classifier_dropout",
    "dropout",
    "embd_pdrop",
    "hidden_dropout",
    "init_std",
    "initializer_range",
    "layerdrop",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "resid_pdrop",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scale_attention_softmax_in_fp32",
    "transformers_version",
    "use_cache",
};
// Which transformers does not read either: beside another key, or with a switch that is off.
const std::map<std::string, std::set<std::string>> kOfNoConcernIn = {
    {"codegen", {"n_ctx"}},
    {"falcon", {"multi_query"}},
    {"gpt_bigcode", {"num_key_value_heads"}},
    {"gpt_neox", {"partial_rotary_factor", "rope_theta"}},
    {"hunyuan_v1_dense", {"beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim"}},
    {"opt", {"_remove_final_layer_norm"}},
    {"phi3", {"original_max_position_embeddings"}},
    {"qwen2", {"sliding_window"}},
    {"qwen2_moe", {"max_window_layers", "sliding_window"}},
    {"qwen3", {"sliding_window"}},
    {"qwen3_moe", {"sliding_window"}},
};

const std::vector<json> kValues = {
    json::object(), json::array({1, "a"}), "a", true, 0, -1, 1LL << 40, 1e300, 0.3};

std::vector<std::string> config_files() {
  std::vector<std::string> files;
  for (const char* kind : {"families", "experts"}) {
    const std::string folder = testing::source_dir() + "/tests/goldens/" + kind;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      files.push_back(entry.path().string() + "/config.json");
    }
  }
  return files;
}

// Reads it as a server does before it opens the weights; the error.
std::string outcome(const json& config) {
  const auto made = read(config.dump());
  if (!made.ok()) return made.error().message;
  const auto tensors = model::describe_tensors(*made);
  if (!tensors.ok()) return tensors.error().message;
  std::string all;
  for (const auto& tensor : *tensors) all += tensor.name + " ";
  return all.empty() ? "no tensors" : "";
}

bool is_of_no_concern(const std::string& model_type, const std::string& key) {
  const auto own = kOfNoConcernIn.find(model_type);
  return kOfNoConcern.contains(key) || (own != kOfNoConcernIn.end() && own->second.contains(key));
}

// Also the keys of rope_scaling and its like.
void check_keys(const json& whole, const json& object, const json::json_pointer& at) {
  for (const auto& [key, value] : object.items()) {
    SCOPED_TRACE((at / key).to_string());
    json changed = whole;
    for (const json& other : kValues) {
      changed[at / key] = other;
      outcome(changed);  // a number beyond all bounds is no crash
    }
    if (value.is_object()) check_keys(whole, value, at / key);
    if (value.is_null() || is_of_no_concern(whole["model_type"], key)) continue;
    changed[at / key] = value.is_string() ? json(1) : json("a");
    EXPECT_THAT(outcome(changed), ::testing::HasSubstr(key)) << "it is not read";
  }
}

TEST(ConfigMutationsTest, EachKeyIsReadOrOfNoConcern) {
  for (const std::string& path : config_files()) {
    SCOPED_TRACE(path);
    std::ifstream file(path);
    const json config = json::parse(file);
    ASSERT_EQ(outcome(config), "");
    check_keys(config, config, json::json_pointer());
  }
}

}  // namespace
}  // namespace lmtp
