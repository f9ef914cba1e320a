#include "lmtp/hub/model_source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "source_dir.h"
#include "support/scoped_env.h"
#include "support/temp_folder.h"

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;
using testing::ScopedEnv;
using testing::TempFolder;
using Names = std::vector<std::string>;

// The error of resolving `model`; a failure of the test where there is none.
std::string error_of(const std::string& model, Purpose purpose = Purpose::kServe) {
  const auto source = resolve_model(model, purpose);
  if (source.ok()) {
    ADD_FAILURE() << model << " was resolved to " << source->folder;
    return "";
  }
  return source.error().message;
}

void expect_says(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos)
        << "'" << message << "' lacks '" << part << "'";
  }
}

TEST(ResolveModel, AFolderAnswersToThreeNames) {
  const TempFolder folder;
  folder.write("models/tiny/config.json", "{}");
  const std::string path = fs::canonical(folder.path()).string() + "/models/tiny";
  const std::string with_dots = path + "/../tiny/";
  const auto source = resolve_model(with_dots);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->kind, SourceKind::kFolder);
  EXPECT_EQ(source->name, with_dots);
  EXPECT_EQ(source->folder, path);
  EXPECT_EQ(source->names, (Names{with_dots, path, "tiny"}));
  const auto plain = resolve_model(path);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->names, (Names{path, "tiny"}));
}

TEST(ResolveModel, ALinkAnswersToItsOwnNameToo) {
  const TempFolder folder;
  folder.write("real/config.json", "{}");
  fs::create_directory_symlink("real", folder.path() + "/alias");
  const auto source = resolve_model(folder.path() + "/alias");
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->names,
            (Names{folder.path() + "/alias", fs::canonical(folder.path()).string() + "/real",
                   "alias", "real"}));
}

TEST(ResolveModel, SaysWhatAFolderLacks) {
  const TempFolder folder;
  folder.write("tokenizer.json", "{}");
  expect_says(error_of(folder.path()), {folder.path(), "no config.json"});
  EXPECT_TRUE(resolve_model(folder.path(), Purpose::kTokenizer).ok());
  expect_says(error_of(folder.path() + "/tokenizer.json"), {"is a file"});
  expect_says(error_of(folder.path() + "/none"), {"/none", "no such folder"});
  expect_says(error_of("./none"), {"./none", "no such folder"});
}

TEST(ResolveModel, AGgufFileIsAModel) {
  const TempFolder folder;
  folder.write("one/tiny.gguf", "GGUF");
  folder.write("two/a.gguf", "GGUF");
  folder.write("two/b.gguf", "GGUF");
  const std::string root = fs::canonical(folder.path()).string();
  const auto file = resolve_model(root + "/two/../two/a.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->kind, SourceKind::kFolder);
  EXPECT_EQ(file->folder, root + "/two/a.gguf");
  EXPECT_EQ(file->names, (Names{root + "/two/../two/a.gguf", root + "/two/a.gguf", "a.gguf", "a"}));
  // The only one of a folder that is no model otherwise.
  const auto one = resolve_model(root + "/one");
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->folder, root + "/one/tiny.gguf");
  EXPECT_EQ(one->names,
            (Names{root + "/one", root + "/one/tiny.gguf", "one", "tiny", "tiny.gguf"}));
  EXPECT_EQ(resolve_model(root + "/one", Purpose::kTokenizer)->folder, one->folder);
  expect_says(error_of(root + "/two"), {"no config.json", "2 GGUF files: name one"});
  // As in the hub's cache, where links lead to files without an ending.
  folder.write("blobs/abc", "GGUF");
  fs::create_symlink("../blobs/abc", folder.path() + "/one/linked.gguf");
  EXPECT_EQ(resolve_model(root + "/one/linked.gguf")->folder, root + "/one/linked.gguf");
}

TEST(ResolveModel, FindsTheDemoBesideTheProgram) {
  const auto source = resolve_model("demo");
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->folder, fs::canonical(testing::source_dir() + "/models/demo"));
  EXPECT_EQ(source->names, (Names{"demo", source->folder}));
}

TEST(ResolveModel, ReadsRandomShapesAndSeeds) {
  struct Case {
    const char* model;
    const char* shape;
    std::uint64_t seed;
  };
  for (const Case& c : {Case{"random", "gpt2", 0}, Case{"random:gpt2-medium", "gpt2-medium", 0},
                        Case{"random:gpt2:18446744073709551615", "gpt2", UINT64_MAX}}) {
    const auto source = resolve_model(c.model);
    ASSERT_TRUE(source.ok()) << source.error().message;
    EXPECT_EQ(source->kind, SourceKind::kRandom);
    EXPECT_EQ(source->shape, c.shape);
    EXPECT_EQ(source->seed, c.seed);
    EXPECT_EQ(source->names.front(), c.model);
    EXPECT_EQ(source->names.back(), "random");
  }
  for (const char* model : {"random:", "random:gpt2:", "random:gpt2:x", "random:gpt2:-1",
                            "random:gpt2:1:2", "random:gpt2:18446744073709551616"}) {
    expect_says(error_of(model), {"random[:SHAPE[:SEED]]"});
  }
}

// A cache as huggingface_hub leaves it.
class HubCacheTest : public ::testing::Test {
 protected:
  void write_snapshot(const std::string& repo, const std::string& commit,
                      const std::vector<std::string>& files = {"config.json",
                                                               "model.safetensors"}) const {
    cache_.write(repo + "/blobs/" + commit + "blob", "{}");
    fs::create_directories(cache_.path() + "/" + repo + "/snapshots/" + commit);
    for (const std::string& file : files) {
      fs::create_symlink("../../blobs/" + commit + "blob",
                         cache_.path() + "/" + repo + "/snapshots/" + commit + "/" + file);
    }
  }

  const TempFolder cache_;
  const ScopedEnv env_{"HF_HUB_CACHE", cache_.path()};
};

TEST_F(HubCacheTest, FindsBranchesTagsAndCommits) {
  write_snapshot("models--org--name", "aaa");
  write_snapshot("models--org--name", "bbb");
  cache_.write("models--org--name/refs/main", "aaa");
  cache_.write("models--org--name/refs/refs/pr/1", "bbb\n");
  const std::string snapshots =
      fs::canonical(cache_.path()).string() + "/models--org--name/snapshots/";
  const auto main = resolve_model("org/name");
  ASSERT_TRUE(main.ok()) << main.error().message;
  EXPECT_EQ(main->folder, snapshots + "aaa");
  EXPECT_EQ(main->names, (Names{"org/name", snapshots + "aaa", "name"}));
  const auto branch = resolve_model("org/name@refs/pr/1");
  ASSERT_TRUE(branch.ok()) << branch.error().message;
  EXPECT_EQ(branch->folder, snapshots + "bbb");
  EXPECT_EQ(branch->names, (Names{"org/name@refs/pr/1", snapshots + "bbb", "org/name", "name"}));
  const auto commit = resolve_model("org/name@bbb");
  ASSERT_TRUE(commit.ok()) << commit.error().message;
  EXPECT_EQ(commit->folder, snapshots + "bbb");
}

TEST_F(HubCacheTest, NamesWithoutAnOwner) {
  write_snapshot("models--gpt2-medium", "ccc");
  cache_.write("models--gpt2-medium/refs/main", "ccc");
  const auto source = resolve_model("gpt2-medium");
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->names.front(), "gpt2-medium");
}

TEST_F(HubCacheTest, SaysWhatIsMissing) {
  expect_says(error_of("gpt2-medium"), {"'gpt2-medium' is neither a folder", "'demo'", "'random'",
                                        cache_.path(), "models--gpt2-medium"});
  write_snapshot("models--org--name", "aaa");
  cache_.write("models--org--name/refs/main", "gone");
  expect_says(error_of("org/name"), {"no snapshot of revision 'main'"});
  expect_says(error_of("org/name@dev"), {"'dev'"});
  cache_.write("models--org--name/refs/main", "../../elsewhere");
  expect_says(error_of("org/name"), {"no snapshot of revision 'main'"});
  expect_says(error_of("a/b/c"), {"neither a folder", "not a name on the Hugging Face hub"});
}

TEST_F(HubCacheTest, AFewFilesAreNotAModel) {
  write_snapshot("models--half", "ddd", {"tokenizer.json"});
  cache_.write("models--half/refs/main", "ddd");
  expect_says(error_of("half"), {"only partly", "lacks config.json"});
  EXPECT_TRUE(resolve_model("half", Purpose::kTokenizer).ok());
  write_snapshot("models--config", "eee", {"config.json"});
  cache_.write("models--config/refs/main", "eee");
  expect_says(error_of("config"), {"only partly", "lacks model.safetensors"});
  expect_says(error_of("config", Purpose::kTokenizer), {"only partly", "lacks tokenizer.json"});
}

TEST_F(HubCacheTest, AutoIsNoModelByItself) {
  expect_says(error_of("auto"), {"'auto' is no model by itself", "name one"});
  expect_says(error_of(""), {"no model is named"});
}

}  // namespace
}  // namespace lmtp::hub
