#include "partial_blob.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "file_lock.h"
#include "support/temp_folder.h"

namespace lmtp::hub {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

// "hello\n" as `git hash-object` and `sha256sum` name it.
constexpr const char* kHello = "hello\n";
constexpr const char* kGit = "ce013625030ba8dba906f756967f9e9ca394464a";
constexpr const char* kSha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

class PartialBlobTest : public ::testing::Test {
 protected:
  std::unique_ptr<PartialBlob> open(const std::string& etag, std::int64_t size) const {
    auto blob = PartialBlob::open(folder_.path() + "/" + etag, etag, size);
    EXPECT_TRUE(blob.ok()) << blob.error().message;
    return blob.ok() ? *std::move(blob) : nullptr;
  }

  const TempFolder folder_;
};

TEST_F(PartialBlobTest, IsCheckedByTheHashThatItsNameIs) {
  for (const char* etag : {kGit, kSha256, "some-other-tag"}) {
    const auto blob = open(etag, 6);
    ASSERT_NE(blob, nullptr);
    ASSERT_TRUE(blob->append("hel").ok());
    ASSERT_TRUE(blob->append("lo\n").ok());
    EXPECT_TRUE(blob->is_right()) << etag;
    ASSERT_TRUE(blob->commit().ok());
    EXPECT_EQ(fs::file_size(folder_.path() + "/" + etag), 6U);
    EXPECT_FALSE(fs::exists(folder_.path() + "/" + etag + ".incomplete"));
  }
  const auto wrong = open(kSha256, 6);
  ASSERT_TRUE(wrong->append("hellO\n").ok());
  EXPECT_FALSE(wrong->is_right());
  const auto too_short = open("some-other-tag", 7);
  ASSERT_TRUE(too_short->append(kHello).ok());
  EXPECT_FALSE(too_short->is_right());
}

TEST_F(PartialBlobTest, GoesOnAfterWhatIsThere) {
  folder_.write(std::string(kGit) + ".incomplete", "hel");
  const auto blob = open(kGit, 6);
  EXPECT_EQ(blob->num_bytes(), 3);
  const auto hashed = blob->hash_some();
  ASSERT_TRUE(hashed.ok() && *hashed);
  ASSERT_TRUE(blob->append("lo\n").ok());
  EXPECT_TRUE(blob->is_right());
}

TEST_F(PartialBlobTest, HashesLongBeginningsPieceByPiece) {
  const std::string content(std::size_t{9} << 20, 'x');
  folder_.write("tag.incomplete", content);
  const auto blob = open("tag", static_cast<std::int64_t>(content.size()));
  int num_pieces = 0;
  for (bool all = false; !all; ++num_pieces) {
    const auto hashed = blob->hash_some();
    ASSERT_TRUE(hashed.ok());
    all = *hashed;
  }
  EXPECT_EQ(num_pieces, 3);
  EXPECT_TRUE(blob->is_right());
}

TEST_F(PartialBlobTest, BeginsAnewWhereMoreIsThereThanCanBe) {
  folder_.write(std::string(kGit) + ".incomplete", "more than six bytes");
  const auto blob = open(kGit, 6);
  EXPECT_EQ(blob->num_bytes(), 0);
  ASSERT_TRUE(blob->append("wrong").ok());
  blob->restart();
  ASSERT_TRUE(blob->append(kHello).ok());
  EXPECT_TRUE(blob->is_right());
}

TEST_F(PartialBlobTest, SaysWhenTheDiskIsFull) {
  fs::create_symlink("/dev/full", folder_.path() + "/tag.incomplete");
  const auto blob = open("tag", 6);
  const auto appended = blob->append(kHello);
  ASSERT_FALSE(appended.ok());
  EXPECT_NE(appended.error().message.find("the disk is full"), std::string::npos);
  EXPECT_NE(appended.error().message.find("HF_HUB_CACHE"), std::string::npos);
}

TEST(FileLock, ExcludesAnotherHolderInThisProcessToo) {
  const TempFolder folder;
  const std::string path = folder.path() + "/x.lock";
  FileLock first;
  FileLock second;
  ASSERT_TRUE(*first.try_acquire(path));
  EXPECT_FALSE(*second.try_acquire(path));
  first.release();
  EXPECT_TRUE(*second.try_acquire(path));
  EXPECT_FALSE(first.try_acquire(folder.path() + "/none/x.lock").ok());
}

}  // namespace
}  // namespace lmtp::hub
