// Requests with a salt find nothing that others have left, and leave nothing for others.
#include "lmtp/scheduler/cache_scopes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "counting.h"
#include "scheduler_driver.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::FakeAgentOptions;
using testing::joined;
using testing::SchedulerDriver;

TEST(CacheScopesTest, ASaltHasANumberOfItsOwnForEachAdapter) {
  CacheScopes scopes;
  EXPECT_EQ(scopes.name_space(0, ""), 0);
  EXPECT_EQ(scopes.name_space(7, ""), 7);
  const int first = scopes.name_space(0, "a");
  EXPECT_GE(first, CacheScopes::kFirst);
  EXPECT_NE(scopes.name_space(0, "b"), first);
  EXPECT_NE(scopes.name_space(1, "a"), first);
  EXPECT_NE(scopes.name_space(11, "a"), scopes.name_space(1, "1 a"));
  EXPECT_EQ(scopes.name_space(0, "a"), first);
  // One that was not used for long is forgotten, and gets another number.
  const int second = scopes.name_space(0, "b");
  for (std::size_t i = 0; i < CacheScopes::kScopesMax; ++i) {
    if (i == CacheScopes::kScopesMax / 2) scopes.name_space(0, "a");
    scopes.name_space(0, "other " + std::to_string(i));
  }
  EXPECT_EQ(scopes.name_space(0, "a"), first);
  EXPECT_NE(scopes.name_space(0, "b"), second);
}

struct Asked {
  StreamKey key;
  std::int64_t num_computed = 0;
};

Asked run(SchedulerDriver& driver, StreamId id, const std::string& salt,
          const std::vector<TokenId>& prompt, bool scores = false) {
  auto sequence = std::make_unique<Sequence>();
  sequence->key = {1, id};
  sequence->cache_salt = salt;
  sequence->kind = scores ? RequestKind::kScore : RequestKind::kGenerate;
  sequence->tokens = prompt;
  sequence->num_prompt = static_cast<int>(prompt.size()) - (scores ? 10 : 0);
  sequence->params.max_tokens = 4;
  sequence->params.top_logprobs = scores ? 0 : 1;
  const auto before = driver.scheduler().counters().num_tokens_computed;
  const StreamKey key = driver.add(std::move(sequence));
  driver.run();
  return {key, driver.scheduler().counters().num_tokens_computed - before};
}

TEST(CacheScopesTest, OnlyRequestsWithTheSameSaltFindPrefixesAndScores) {
  FakeAgentOptions agent;
  agent.num_blocks = 200;
  SchedulerOptions options;
  options.vocab_size = agent.vocab_size;
  options.context_length = 512;
  options.score_cache_bytes = 1 << 20;
  SchedulerDriver driver(agent, options);
  const auto prompt = counting(0, 100);
  int id = 0;
  const auto computed = [&](const std::string& salt, bool scores) {
    return run(driver, ++id, salt, prompt, scores).num_computed;
  };
  EXPECT_EQ(computed("", false), 103);
  EXPECT_EQ(computed("a", false), 103);
  EXPECT_EQ(computed("b", false), 103);
  for (const char* salt : {"", "a", "b"}) EXPECT_LE(computed(salt, false), 1 + 3) << salt;
  EXPECT_GT(computed("", true), 0);
  EXPECT_GT(computed("a", true), 0);
  EXPECT_EQ(computed("", true), 0);
  EXPECT_EQ(computed("a", true), 0);
  EXPECT_GT(computed("b", true), 0);
}

TEST(CacheScopesTest, AForkHasTheSaltOfItsStream) {
  FakeAgentOptions agent;
  agent.num_blocks = 200;
  SchedulerOptions options;
  options.vocab_size = agent.vocab_size;
  options.context_length = 512;
  SchedulerDriver driver(agent, options);
  auto sequence = std::make_unique<Sequence>();
  sequence->key = {1, 1};
  sequence->cache_salt = "a";
  sequence->tokens = counting(0, 100);
  sequence->num_prompt = 100;
  sequence->params.max_tokens = 50;
  const StreamKey key = driver.add(std::move(sequence));
  while (driver.outcome(key).tokens.size() < 20) ASSERT_TRUE(driver.step());
  ASSERT_TRUE(driver.scheduler().fork(key, {1, 2}, {}));
  const auto before = driver.scheduler().counters().num_tokens_computed;
  driver.run();
  const auto text = joined(counting(0, 100), driver.outcome(key).tokens);
  EXPECT_LE(driver.scheduler().counters().num_tokens_computed - before, 30 + 32)
      << "the fork computes none of what it shares";
  EXPECT_GE(run(driver, 3, "", text).num_computed, 150);
  EXPECT_LE(run(driver, 4, "a", text).num_computed, 1 + 3);
}

}  // namespace
}  // namespace lmtp::scheduler
