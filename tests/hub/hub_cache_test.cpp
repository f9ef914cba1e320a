#include "hub_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "lmtp/hub/fetch.h"
#include "support/temp_folder.h"

namespace lmtp::hub {
namespace {

TEST(MatchesAny, ComparesNamesWithoutTheirRevisions) {
  const std::vector<std::string> patterns = {"org/*", "gpt2-?arge"};
  for (const char* name : {"org/a", "org/a@dev", "org/a@refs/pr/1", "local:org/a", "gpt2-large"}) {
    EXPECT_TRUE(matches_any(name, patterns)) << name;
    EXPECT_TRUE(matches_any(name, {"*"})) << name;
    EXPECT_FALSE(matches_any(name, {})) << name;
  }
  for (const char* name :
       {"orga/a", "x/org/a", "org", "Org/a", "evil/a@org/b", "../org/a", "", "gpt-4"}) {
    EXPECT_FALSE(matches_any(name, patterns)) << name;
  }
}

namespace fs = std::filesystem;
using testing::TempFolder;

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
                           "a@/etc", "a@b//c", "a@x@y", "a..b", ".hidden", "a--b"}) {
    EXPECT_FALSE(parse_hub_name(name).ok()) << name;
  }
}

TEST(ParseHubName, KnowsWhatLmqlCallsModels) {
  const auto local = parse_hub_name("local:gpt2-medium");
  ASSERT_TRUE(local.ok());
  EXPECT_EQ(local->repo, "gpt2-medium");
  for (const char* name : {"chatgpt", "gpt-4", "openai/gpt-4", "local:gpt-4"}) {
    const auto parsed = parse_hub_name(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_NE(parsed.error().message.find("OpenAI"), std::string::npos) << parsed.error().message;
  }
}

class RepoFolderTest : public ::testing::Test {
 protected:
  static constexpr const char* kCommit = "1111111111111111111111111111111111111111";

  const TempFolder cache_;
  const RepoFolder repo_{cache_.path(), "org/name"};
};

TEST_F(RepoFolderTest, LinksBlobsAndReplacesWhatLeadsElsewhere) {
  ASSERT_TRUE(repo_.prepare(kCommit).ok());
  EXPECT_TRUE(fs::is_directory(cache_.path() + "/.locks/models--org--name"));
  cache_.write("models--org--name/blobs/new", "content");
  const std::string path = repo_.snapshot_file(kCommit, "config.json");
  fs::create_symlink("../../blobs/gone", path);
  for (int i = 0; i < 2; ++i) {
    const auto linked = repo_.link(kCommit, "config.json", "new");
    ASSERT_TRUE(linked.ok()) << linked.error().message;
    EXPECT_EQ(fs::read_symlink(path), "../../blobs/new");
  }
  EXPECT_EQ(fs::file_size(path), 7U);
}

TEST_F(RepoFolderTest, NotesWhereABranchIs) {
  ASSERT_TRUE(repo_.prepare(kCommit).ok());
  EXPECT_EQ(repo_.commit_of("refs/pr/1"), "");
  const std::string other(40, '2');
  for (const std::string& commit : {std::string(kCommit), other}) {
    ASSERT_TRUE(repo_.write_ref("refs/pr/1", commit).ok());
    EXPECT_EQ(repo_.commit_of("refs/pr/1"), commit);
  }
  ASSERT_TRUE(repo_.write_ref(kCommit, kCommit).ok());
  EXPECT_EQ(repo_.commit_of(kCommit), "") << "a commit needs no note of itself";
  EXPECT_EQ(std::distance(fs::directory_iterator(repo_.path()), {}), 3)
      << "blobs, refs, snapshots, and no temporary file";
}

TEST_F(RepoFolderTest, SaysWhatCannotBeWritten) {
  cache_.write("models--org--name", "a file where the folder should be");
  const auto prepared = repo_.prepare(kCommit);
  ASSERT_FALSE(prepared.ok());
  EXPECT_NE(prepared.error().message.find("models--org--name"), std::string::npos);
}

}  // namespace
}  // namespace lmtp::hub
