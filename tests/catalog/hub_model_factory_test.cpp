// What is told of a model that was found.
#include "lmtp/catalog/hub_model_factory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lmtp/catalog/model_options.h"
#include "temp_folder.h"

namespace lmtp::catalog {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// In the place of its folder, which still leads to it, those whom --served-model-name names.
TEST(HubModelFactory, TellsTheServedNameAndNoPath) {
  const testing::TempFolder temporary;
  const std::string folder = std::filesystem::canonical(temporary.path()).string();
  temporary.write("config.json", R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
    "n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 64, "vocab_size": 100})");
  temporary.write("model.safetensors", "weights");
  temporary.write("tokenizer.json", "[]");
  const auto make = [&](std::vector<std::string> served_names) {
    ModelOptions options;
    options.served_names = std::move(served_names);
    HubModelFactory factory(options, true, {}, [](const std::string& /*reason*/) {});
    return factory.find(folder);
  };
  const auto plain = make({});
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(plain->description.name, folder);
  EXPECT_THAT(plain->load_tokenizer().error().message, HasSubstr(folder + "/tokenizer.json"));

  const auto named = make({"org/shown", "alias"});
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_EQ(named->key, plain->key);
  EXPECT_TRUE(named->description.hides_path);
  EXPECT_EQ(named->description.name, "org/shown");
  EXPECT_EQ(named->options.name, "org/shown");
  EXPECT_EQ(named->description.tokenizer, "org/shown");
  EXPECT_EQ(named->description.constructor, "AutoModelForCausalLM.from_pretrained('org/shown')");
  EXPECT_THAT(named->names, ElementsAre("org/shown", "alias", folder,
                                        std::filesystem::path(folder).filename().string()));
  EXPECT_THAT(named->load_tokenizer().error().message, HasSubstr("org/shown/tokenizer.json"));
  EXPECT_THAT(named->load_tokenizer().error().message, Not(HasSubstr(folder)));
  EXPECT_THAT(named->load_chat_template(nullptr).error().message, Not(HasSubstr(folder)));
}

}  // namespace
}  // namespace lmtp::catalog
