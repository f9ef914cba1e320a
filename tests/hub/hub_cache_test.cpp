#include "hub_cache.h"

#include <gtest/gtest.h>

#include "support/scoped_env.h"

namespace lmtp::hub {
namespace {

using testing::ScopedEnv;

TEST(ParseHubName, TakesNamesWithAndWithoutOwnerAndRevision) {
  const auto plain = parse_hub_name("gpt2-medium");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->repo, "gpt2-medium");
  EXPECT_EQ(plain->revision, "main");
  const auto full = parse_hub_name("EleutherAI/pythia_1.4b@refs/pr/1");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->repo, "EleutherAI/pythia_1.4b");
  EXPECT_EQ(full->revision, "refs/pr/1");
}

TEST(ParseHubName, RefusesWhatLeadsElsewhere) {
  for (const char* name : {"", "a/b/c", "../x", "a/..", "a/", "/a", "a b", "a\\b", "a@", "a@../x",
                           "a@/etc", "a@b//c", "a@x@y", "a..b", ".hidden"}) {
    EXPECT_FALSE(parse_hub_name(name).ok()) << name;
  }
}

TEST(CacheFolder, FollowsTheEnvironmentInOrder) {
  const ScopedEnv home("HOME", "/h");
  const ScopedEnv old("HUGGINGFACE_HUB_CACHE", std::nullopt);
  const ScopedEnv xdg_off("XDG_CACHE_HOME", std::nullopt);
  const ScopedEnv hf_off("HF_HOME", std::nullopt);
  const ScopedEnv hub_off("HF_HUB_CACHE", std::nullopt);
  EXPECT_EQ(cache_folder(), "/h/.cache/huggingface/hub");
  const ScopedEnv xdg("XDG_CACHE_HOME", "/x");
  EXPECT_EQ(cache_folder(), "/x/huggingface/hub");
  const ScopedEnv hf("HF_HOME", "/f");
  EXPECT_EQ(cache_folder(), "/f/hub");
  const ScopedEnv hub("HF_HUB_CACHE", "/c");
  EXPECT_EQ(cache_folder(), "/c");
}

}  // namespace
}  // namespace lmtp::hub
