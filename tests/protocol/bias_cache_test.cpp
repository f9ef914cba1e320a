// The cache of logit biases: equal texts give the same object, different ones never do.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

std::shared_ptr<const LogitBias> bias_of(TokenId id) {
  auto bias = std::make_shared<LogitBias>();
  bias->ids = {id};
  bias->values = {1.0F};
  return bias;
}

std::string text_of(TokenId id) { return "{\"" + std::to_string(id) + "\": 1}"; }

TEST(BiasCache, FindsWhatWasInsertedAndNothingElse) {
  BiasCache cache;
  const auto bias = bias_of(5);
  EXPECT_EQ(cache.find(text_of(5)), nullptr);
  cache.insert(text_of(5), bias);
  EXPECT_EQ(cache.find(text_of(5)), bias);
  EXPECT_EQ(cache.find(text_of(6)), nullptr);
  EXPECT_EQ(cache.find(text_of(5) + " "), nullptr);
}

TEST(BiasCache, FindsAnObjectAtTheFrontOfALongerText) {
  BiasCache cache;
  const auto bias = bias_of(5);
  cache.insert(text_of(5), bias);
  const BiasCache::PrefixHit hit = cache.find_at_front(text_of(5) + ", \"prompt\": [1]}");
  EXPECT_EQ(hit.bias, bias);
  EXPECT_EQ(hit.num_bytes, text_of(5).size());
  EXPECT_EQ(cache.find_at_front(text_of(55)).bias, nullptr);
  EXPECT_EQ(cache.find_at_front("{").bias, nullptr);
  EXPECT_EQ(cache.find_at_front("").bias, nullptr);
}

TEST(BiasCache, OldOnesLeaveTheFrontButStayInTheCache) {
  BiasCache cache;
  for (TokenId id = 0; id < 100; ++id) cache.insert(text_of(id), bias_of(id));
  EXPECT_EQ(cache.find_at_front(text_of(0)).bias, nullptr);
  ASSERT_NE(cache.find(text_of(0)), nullptr);
  EXPECT_EQ(cache.find(text_of(0))->ids[0], 0);
  EXPECT_NE(cache.find_at_front(text_of(0)).bias, nullptr) << "used last, so at the front again";
}

TEST(BiasCache, ForgetsTheLeastRecentlyUsedBeyondItsLimit) {
  BiasCache cache(4000);
  for (TokenId id = 0; id < 10; ++id) cache.insert(text_of(id), bias_of(id));
  ASSERT_NE(cache.find(text_of(0)), nullptr) << "room for ten";
  for (TokenId id = 10; id < 20; ++id) cache.insert(text_of(id), bias_of(id));
  EXPECT_NE(cache.find(text_of(0)), nullptr) << "used after the others";
  EXPECT_EQ(cache.find(text_of(1)), nullptr);
  EXPECT_EQ(cache.find_at_front(text_of(1)).bias, nullptr);
  EXPECT_NE(cache.find(text_of(19)), nullptr);
}

TEST(BiasCache, KeepsNothingThatIsLargerThanItself) {
  BiasCache cache(300);
  const std::string text(1000, 'x');
  cache.insert(text, bias_of(1));
  EXPECT_EQ(cache.find(text), nullptr);
}

TEST(BiasCache, ServesManyThreads) {
  BiasCache cache(8000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < 2000; ++i) {
        const TokenId id = (i * 7 + t) % 40;
        const std::string text = text_of(id);
        auto bias = cache.find_at_front(text).bias;
        if (!bias) bias = cache.find(text);
        if (!bias) cache.insert(text, bias_of(id));
        if (bias) {
          ASSERT_EQ(bias->ids[0], id);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lmtp::protocol
