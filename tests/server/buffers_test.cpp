#include "lmtp/buffers.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace lmtp::server {
namespace {

using Tokens = Buffers::Tokens;

TEST(Buffers, KeepReplaceAppendAndForget) {
  MemoryLimit all(1000);
  Buffers buffers(400, all);
  EXPECT_EQ(buffers.find("a"), nullptr);
  EXPECT_EQ(*buffers.append("a", {1, 2}), 2U);
  EXPECT_EQ(*buffers.append("a", {3}), 3U);
  const auto held = buffers.find("a");
  EXPECT_EQ(*buffers.append("a", {4}), 4U);
  EXPECT_EQ(*held, (Tokens{1, 2, 3})) << "what a request holds does not change";
  EXPECT_EQ(*buffers.find("a"), (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(*buffers.set("a", {9}), 1U);
  EXPECT_TRUE(buffers.erase("a"));
  EXPECT_FALSE(buffers.erase("a"));
  EXPECT_EQ(*buffers.set("b", Tokens(100, 7)), 100U) << "all of its bytes are free again";
}

TEST(Buffers, AreBoundedInBytesAndInNumber) {
  MemoryLimit all(1000);
  Buffers buffers(400, all);
  EXPECT_EQ(*buffers.set("a", Tokens(60)), 60U);
  const auto full = buffers.set("b", Tokens(41));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().message.rfind("buffer: full: the buffers of this connection", 0), 0U);
  EXPECT_EQ(full.error().code, ErrorCode::kInvalid);
  EXPECT_FALSE(buffers.append("a", Tokens(41)).ok());
  EXPECT_EQ(buffers.find("a")->size(), 60U);
  EXPECT_EQ(*buffers.set("a", Tokens(100)), 100U) << "what is replaced does not count";
  EXPECT_TRUE(buffers.erase("a"));
  for (std::size_t i = 0; i < kMaxBuffers; ++i) {
    ASSERT_TRUE(buffers.set(std::to_string(i), {}).ok());
  }
  EXPECT_FALSE(buffers.set("one more", {}).ok());
  EXPECT_TRUE(buffers.set("0", {1}).ok());
}

TEST(Buffers, OfAllConnectionsTogetherAreBounded) {
  MemoryLimit all(1000);
  auto first = std::make_unique<Buffers>(800, all);
  Buffers second(800, all);
  const auto greedy = first->set("a", Tokens(188));
  ASSERT_FALSE(greedy.ok()) << "three quarters are one connection's";
  EXPECT_EQ(greedy.error().code, ErrorCode::kOverloaded);
  EXPECT_TRUE(first->set("a", Tokens(187)).ok());
  EXPECT_FALSE(second.set("a", Tokens(48)).ok()) << "and of the rest the next one's";
  EXPECT_TRUE(second.set("a", Tokens(47)).ok());
  EXPECT_TRUE(Buffers(800, all).set("a", Tokens(12)).ok()) << "there is a place for a third";
  EXPECT_TRUE(first->set("a", Tokens(186)).ok()) << "less is never refused";
  EXPECT_FALSE(first->append("a", Tokens(1)).ok());
  first.reset();
  EXPECT_TRUE(second.append("a", Tokens(100)).ok()) << "a connection's end frees its buffers";
}

}  // namespace
}  // namespace lmtp::server
