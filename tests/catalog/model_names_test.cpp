// What a name leads to, and what it never leads to where clients come from beyond this machine.
#include "lmtp/catalog/model_names.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "scoped_env.h"
#include "temp_folder.h"

namespace lmtp::catalog {
namespace {

namespace fs = std::filesystem;

// ROOT/served/{tiny,nested/deep} and ROOT/secret hold models, ROOT/cache a snapshot of org/cached.
struct ModelNames : ::testing::Test {
  ModelNames() {
    make_model(root / "served/tiny");
    make_model(root / "served/nested/deep");
    make_model(root / "secret");
    make_model(root / "cache/models--org--cached/snapshots/abc");
    write(root / "cache/models--org--cached/refs/main", "abc");
    beyond.anything = false;
    beyond.downloads.clear();
    beyond.model_dirs = {fs::canonical(root / "served").string()};
    here = beyond;
    here.anything = true;
  }

  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  static void make_model(const fs::path& folder) {
    write(folder / "config.json", "{}");
    write(folder / "tokenizer.json", "{}");
    write(folder / "model.safetensors", "weights");
  }
  static hub::FetchOptions local() {
    hub::FetchOptions options;
    options.allow_download = false;
    return options;
  }
  // The folder, or "" where there is none.
  static std::string folder_of(const std::string& name, const NamePolicy& policy) {
    const auto source = resolve_name(name, policy, local());
    return source ? source->folder : "";
  }
  static std::string error_of(const std::string& name, const NamePolicy& policy) {
    const auto source = resolve_name(name, policy, local());
    return source ? "" : source.error().message;
  }

  testing::TempFolder folder;
  fs::path root = fs::canonical(fs::path(folder.path()));
  testing::ScopedEnv cache{"HF_HUB_CACHE", (root / "cache").string().c_str()};
  NamePolicy beyond;
  NamePolicy here;
};

TEST_F(ModelNames, UnderAModelDirAreServedToEverybody) {
  for (const NamePolicy& policy : {here, beyond}) {
    EXPECT_EQ(folder_of("tiny", policy), root / "served/tiny");
    EXPECT_EQ(folder_of("nested/deep", policy), root / "served/nested/deep");
    EXPECT_EQ(folder_of("./tiny/", policy), root / "served/tiny");
    EXPECT_EQ(folder_of((root / "served/tiny").string(), policy), root / "served/tiny");
  }
  EXPECT_EQ(resolve_name("tiny", beyond, local())->name, "tiny");
}

// Adapters that clients name: by no link, ".." or name of the hub to what is elsewhere.
TEST_F(ModelNames, AdaptersBeyondThisMachineLieUnderAModelDir) {
  const auto of = [](const std::string& path, const NamePolicy& policy) {
    const auto found = resolve_adapter(path, policy);
    return found ? *found : found.error().message;
  };
  write(root / "served/lora/adapter_config.json", "{}");
  write(root / "served/leak/adapter_config.json", "{}");
  fs::create_symlink(root / "secret/model.safetensors",
                     root / "served/leak/adapter_model.safetensors");
  fs::create_directory_symlink(root / "secret", root / "served/link");
  fs::create_directory_symlink(root / "served/lora", root / "served/alias");
  beyond.any_adapter = false;
  const std::string lora = (root / "served/lora").string();
  for (const std::string& path : {std::string("lora"), std::string("./lora/"), lora,
                                  std::string("alias"), std::string("tiny/../lora")}) {
    EXPECT_EQ(of(path, beyond), lora) << path;
    EXPECT_EQ(of(path, here), lora) << path;
  }
  const std::string refusal = " is no folder under --model-dir, beyond which clients name none";
  for (const std::string& path :
       {std::string("../secret"), (root / "secret").string(), std::string("link"),
        std::string("leak"), std::string("nowhere"), std::string("org/cached"),
        std::string("lora/../../secret"), std::string("lora/adapter_config.json"),
        std::string(5000, 'a'), std::string("../served/lora/../../secret")}) {
    EXPECT_EQ(of(path, beyond), "lora_path: '" + path + "'" + refusal) << path;
  }
  EXPECT_EQ(of((root / "secret").string(), here), (root / "secret").string());
}

TEST_F(ModelNames, InTheCacheAreServedToEverybody) {
  for (const NamePolicy& policy : {here, beyond}) {
    EXPECT_NE(folder_of("org/cached", policy).find("snapshots/abc"), std::string::npos)
        << error_of("org/cached", policy);
    EXPECT_EQ(resolve_name("org/cached", policy, local())->name, "org/cached");
  }
}

TEST_F(ModelNames, TheDemoIsServedToEverybodyAndRandomWeightsAreNot) {
  EXPECT_NE(folder_of("demo", beyond), "");
  EXPECT_TRUE(resolve_name("random", here, local()).ok());
  EXPECT_NE(error_of("random:gpt2", beyond).find("is not served here"), std::string::npos);
}

TEST_F(ModelNames, NothingElseIsToldFromWhatDoesNotExist) {
  const auto told = [&](const std::string& name) {
    std::string error = error_of(name, beyond);
    const std::size_t at = error.find(name);
    EXPECT_NE(at, std::string::npos) << error;
    return at == std::string::npos ? error : error.replace(at, name.size(), "NAME");
  };
  const std::string nothing = told("/no/such/folder");
  EXPECT_NE(nothing.find("--model-dir"), std::string::npos) << nothing;
  for (const std::string& name :
       {(root / "secret").string(), (root / "secret/config.json").string(),
        (root / "served/../secret").string(), std::string("../secret"),
        std::string("tiny/../../secret"), std::string("~/model"), std::string("org/not-cached"),
        std::string("/etc"), std::string("/"), std::string("."), std::string("..")}) {
    EXPECT_EQ(told(name), nothing) << name;
  }
  EXPECT_NE(folder_of((root / "secret").string(), here), "") << "here, any folder is served";
}

TEST_F(ModelNames, LinksDoNotLeadOutOfAModelDir) {
  fs::create_directory_symlink(root / "secret", root / "served/link");
  fs::create_directory_symlink(root / "served/tiny", root / "served/alias");
  make_model(root / "served/mixed");
  fs::remove(root / "served/mixed/model.safetensors");
  fs::create_symlink(root / "secret/model.safetensors", root / "served/mixed/model.safetensors");
  EXPECT_NE(error_of("link", beyond).find("is not served here"), std::string::npos);
  EXPECT_NE(error_of("mixed", beyond).find("is not served here"), std::string::npos);
  EXPECT_NE(error_of("link", here).find("leads out of --model-dir"), std::string::npos);
  EXPECT_EQ(folder_of("alias", beyond), root / "served/tiny");
}

// A server is often started in a folder that holds things of its own.
TEST_F(ModelNames, TheWorkingFolderIsNotServedBeyondThisMachine) {
  const fs::path before = fs::current_path();
  fs::current_path(root);
  make_model(root / "org/cached");
  EXPECT_EQ(folder_of("secret", beyond), "");
  EXPECT_NE(folder_of("org/cached", beyond).find("snapshots/abc"), std::string::npos);
  EXPECT_EQ(folder_of("secret", here), root / "secret");
  fs::current_path(before);
}

TEST_F(ModelNames, AutoNamesNoModel) {
  EXPECT_NE(error_of("auto", here).find("names no model"), std::string::npos);
}

TEST(ModelDirs, AreMadeCanonicalOrNamed) {
  const testing::TempFolder folder;
  const fs::path root(folder.path());
  fs::create_directory(root / "a");
  const auto folders = canonical_folders({(root / "a/../a/").string()});
  ASSERT_TRUE(folders.ok());
  EXPECT_EQ(folders->at(0), fs::canonical(root / "a"));
  const auto missing = canonical_folders({(root / "b").string()});
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("--model-dir"), std::string::npos);
}

TEST(Loopback, IsWhereOnlyThisMachineConnects) {
  for (const char* host : {"127.0.0.1", "localhost", "127.8.8.8", "::1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host :
       {"0.0.0.0", "::", "192.168.0.1", "example.org", "", "127.example.org", "::ffff:10.0.0.1"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

}  // namespace
}  // namespace lmtp::catalog
