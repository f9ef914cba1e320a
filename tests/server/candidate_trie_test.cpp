// Candidates over one prompt: which Scores read them, what these compute, and what comes of it.
#include "generation/candidate_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "counting.h"
#include "scheduler_driver.h"

namespace lmtp::server {
namespace {

using scheduler::SchedulerEvent;
using testing::counting;
using testing::FakeAgent;
using testing::first_of;
using testing::joined;
using testing::SchedulerDriver;
using Tokens = std::vector<TokenId>;

CandidateTrie trie_of(const std::vector<Tokens>& candidates) {
  Result<CandidateTrie> trie = CandidateTrie::make(candidates);
  return std::move(trie).value();
}

// What a Score of the row would be answered.
TokenEvent event_of(const ScoreRow& row, std::size_t position, const Tokens& prompt) {
  const Tokens prefix = joined(joined(prompt, row.prompt_tail), first_of(row.scored, position));
  TokenEvent event;
  event.token = row.scored[position];
  event.logprob = FakeAgent::logprob_after(prefix, event.token);
  if (row.listed == nullptr) return event;
  std::vector<TokenLogprob> listed;
  for (const TokenId token : *row.listed) {
    listed.push_back({token, FakeAgent::logprob_after(prefix, token)});
  }
  event.listed_logprobs = std::make_shared<const std::vector<TokenLogprob>>(std::move(listed));
  return event;
}

void expect_right(const CandidateTrie& trie, const std::vector<Tokens>& candidates,
                  const Tokens& prompt) {
  const auto logprobs = trie.logprobs();
  ASSERT_TRUE(logprobs.ok());
  ASSERT_EQ(logprobs->size(), candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    double sum = 0.0;
    Tokens prefix = prompt;
    for (const TokenId token : candidates[i]) {
      sum += FakeAgent::logprob_after(prefix, token);
      prefix.push_back(token);
    }
    EXPECT_EQ((*logprobs)[i].logprob, sum) << i;
    EXPECT_EQ((*logprobs)[i].num_tokens, static_cast<int>(candidates[i].size()));
  }
}

std::set<Tokens> inner_nodes(const std::vector<Tokens>& candidates) {
  std::set<Tokens> inner;
  for (const Tokens& candidate : candidates) {
    for (auto end = candidate.begin(); end != candidate.end(); ++end) {
      inner.insert({candidate.begin(), end});
    }
  }
  return inner;
}

std::vector<Tokens> random_candidates(std::mt19937& random, std::size_t count, int num_letters) {
  std::set<Tokens> distinct;
  while (distinct.size() < count) {
    Tokens candidate(1 + random() % 7);
    for (TokenId& token : candidate) {
      token = static_cast<TokenId>(random() % static_cast<unsigned>(num_letters));
    }
    distinct.insert(candidate);
  }
  std::vector<Tokens> candidates(distinct.begin(), distinct.end());
  std::ranges::shuffle(candidates, random);
  return candidates;
}

TEST(CandidateTrie, EachInnerNodeIsReadByOneRow) {
  std::mt19937 random(7);
  const Tokens prompt = {5, 6};
  for (int round = 0; round < 60; ++round) {
    const auto candidates = random_candidates(random, 1 + random() % 80, 2 + round % 9);
    CandidateTrie trie = trie_of(candidates);
    std::set<Tokens> computed;
    while (const auto at = trie.next_row()) {
      const ScoreRow& row = trie.rows()[*at];
      for (std::size_t i = 0; i < row.prompt_tail.size(); ++i) {
        EXPECT_TRUE(i == 0 || computed.contains(first_of(row.prompt_tail, i)))
            << "it waits for the row of this";
      }
      for (std::size_t i = 0; i < row.scored.size(); ++i) {
        EXPECT_TRUE(computed.insert(joined(row.prompt_tail, first_of(row.scored, i))).second)
            << "computed twice";
        trie.read(*at, event_of(row, i, prompt));
      }
      if (row.listed != nullptr) {
        EXPECT_EQ(std::ranges::adjacent_find(*row.listed, std::ranges::greater_equal()),
                  row.listed->end())
            << "they ascend";
      }
      EXPECT_FALSE(trie.has_ended());
      trie.end_row(*at);
    }
    EXPECT_TRUE(trie.has_ended());
    EXPECT_EQ(computed, inner_nodes(candidates));
    expect_right(trie, candidates, prompt);
  }
}

TEST(CandidateTrie, WhatBranchesOffAtTheRootIsThereAtOnce) {
  CandidateTrie trie = trie_of({{1, 1, 1}, {1, 2, 2}, {2, 1}, {3, 1}, {4}});
  std::size_t num_rows = 0;
  std::set<Tokens> tails;
  while (const auto row = trie.next_row()) {
    tails.insert(trie.rows()[*row].prompt_tail);
    ++num_rows;
  }
  EXPECT_EQ(num_rows, 3U);
  EXPECT_EQ(tails, (std::set<Tokens>{{}, {2}, {3}}));
  trie.return_row(1);
  EXPECT_EQ(trie.next_row(), 1U) << "it comes again";
  EXPECT_EQ(trie.next_row(), std::nullopt);
  trie.end_row(0);
  const auto other = trie.next_row();
  ASSERT_TRUE(other);
  EXPECT_EQ(trie.rows()[*other].prompt_tail, (Tokens{1, 2}));
}

// A node is computed again for each 1025 of its children, and a row ends where it would list many
// tokens at many positions.
TEST(CandidateTrie, NoRowListsTooMuch) {
  std::vector<Tokens> wide;
  for (TokenId i = 0; i < 3000; ++i) wide.push_back({i});
  std::vector<Tokens> long_ones;
  for (TokenId i = 0; i < 200; ++i) {
    long_ones.push_back(counting(i, 30));
    long_ones.push_back(joined(counting(i, 30), {i}));
    long_ones.push_back(joined(counting(i, 30), counting(i + 500, 30)));
  }
  for (const auto& candidates : {wide, long_ones}) {
    CandidateTrie trie = trie_of(candidates);
    std::size_t num_computed = 0;
    while (const auto at = trie.next_row()) {
      const ScoreRow& row = trie.rows()[*at];
      const std::size_t num_listed = row.listed != nullptr ? row.listed->size() : 0;
      EXPECT_LE(num_listed * row.scored.size(), 1024U);
      num_computed += row.scored.size();
      for (std::size_t i = 0; i < row.scored.size(); ++i) {
        trie.read(*at, event_of(row, i, {5}));
      }
      trie.end_row(*at);
    }
    EXPECT_EQ(num_computed, inner_nodes(candidates).size() + (candidates.size() == 3000 ? 2 : 0));
    expect_right(trie, candidates, {5});
  }
}

TEST(CandidateTrie, WhatIsWrongIsSaid) {
  const auto error = [](const std::vector<Tokens>& candidates) {
    const auto trie = CandidateTrie::make(candidates);
    return trie ? std::string() : trie.error().message;
  };
  EXPECT_EQ(error({}), "candidates: has 0 of them; allowed are 1 to 4096");
  EXPECT_EQ(error(std::vector<Tokens>(4097, {1})),
            "candidates: has 4097 of them; allowed are 1 to 4096");
  EXPECT_EQ(error({{1}, {}}), "candidates[1]: is empty; at least one token is needed");
  EXPECT_EQ(error({{1, 2}, {3}, {1, 2}}),
            "candidates[2]: has the same tokens as candidates[0]; allowed are candidates that "
            "differ");
  EXPECT_EQ(error({Tokens(300'000, 1)}),
            "candidates: have 300000 tokens together; allowed are at most 65536");
  EXPECT_EQ(error({{1}, {1, 2}}), "");
}

TEST(CandidateTrie, AnEventWithoutWhatWasAskedForIsAnError) {
  CandidateTrie trie = trie_of({{1}, {2}});
  TokenEvent event;
  event.token = 1;
  trie.read(0, event);
  trie.read(0, event);
  trie.end_row(0);
  EXPECT_TRUE(trie.has_ended());
  EXPECT_FALSE(trie.logprobs().ok());
}

// Rows as a scheduler computes them.
class CandidateRows : public ::testing::TestWithParam<int> {
 protected:
  static scheduler::SchedulerOptions options() {
    scheduler::SchedulerOptions options;
    options.vocab_size = 5000;
    options.context_length = 512;
    options.batch.max_tokens = 512;
    options.batch.max_sequences = 256;
    options.score_cache_bytes = 8 << 20;
    options.debug.max_chunk_tokens = GetParam();
    return options;
  }
  static testing::FakeAgentOptions agent() {
    testing::FakeAgentOptions agent;
    agent.vocab_size = 5000;
    agent.num_blocks = 4000;
    return agent;
  }

  struct Cost {
    std::int64_t num_tokens = 0;
    int num_steps = 0;
  };
  // Rows go to the scheduler as they are there, and the steps are run to the end each time.
  Cost run(const Tokens& prompt, const std::vector<Tokens>& candidates) {
    CandidateTrie trie = trie_of(candidates);
    std::map<StreamId, std::size_t> row_of;
    driver_.set_on_event([&](const SchedulerEvent& event) {
      const auto& token = std::get<TokenEvent>(event.entry);
      const std::size_t row = row_of.at(event.key.stream);
      trie.read(row, token);
      if (token.finish_reason != FinishReason::kNone) trie.end_row(row);
    });
    Cost cost;
    const std::int64_t before = driver_.scheduler().counters().num_tokens_computed;
    while (!trie.has_ended()) {
      while (const auto at = trie.next_row()) {
        const ScoreRow& row = trie.rows()[*at];
        row_of[++last_id_] = *at;
        driver_.score(last_id_, joined(prompt, row.prompt_tail), row.scored, 1, nullptr,
                      row.listed != nullptr ? *row.listed : Tokens());
      }
      while (driver_.scheduler().num_waiting() + driver_.scheduler().num_running() > 0) {
        driver_.step();
        ++cost.num_steps;
      }
    }
    driver_.set_on_event({});
    expect_right(trie, candidates, prompt);
    cost.num_tokens = driver_.scheduler().counters().num_tokens_computed - before;
    return cost;
  }

  SchedulerDriver driver_{agent(), options()};
  StreamId last_id_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Chunks, CandidateRows, ::testing::Values(0, 3, 5, 16));

TEST_P(CandidateRows, ComputeThePromptAndEachInnerNodeOnce) {
  std::mt19937 random(11);
  for (const int num_prompt : {1, 3, 15, 16, 17, 40}) {
    const auto candidates = random_candidates(random, 60, 5);
    const auto num_inner = static_cast<std::int64_t>(inner_nodes(candidates).size()) - 1;
    const Tokens cold = counting(100 * num_prompt, num_prompt);
    EXPECT_EQ(run(cold, candidates).num_tokens, num_prompt + num_inner) << num_prompt;
    const Cost again = run(cold, candidates);
    EXPECT_EQ(again.num_tokens, 0);
    EXPECT_EQ(again.num_steps, 0);
    const Tokens warm = counting(100 * num_prompt + 50, num_prompt);
    driver_.generate(++last_id_, warm, 1);
    driver_.run();
    EXPECT_EQ(run(warm, candidates).num_tokens, 1 + num_inner) << num_prompt;
  }
}

// A Score of each: tails that differ from their first token on.
TEST_P(CandidateRows, TailsThatShareNothingComputeTheirPromptOnce) {
  std::vector<Tokens> tails;
  std::int64_t num_tokens = 0;
  for (TokenId i = 0; i < 400; ++i) {
    tails.push_back(counting(1000 + i, 2 + i % 9));
    num_tokens += static_cast<std::int64_t>(tails.back().size()) - 1;
  }
  for (const int num_prompt : {33, 200}) {
    const Tokens prompt = counting(num_prompt, num_prompt);
    EXPECT_EQ(run(prompt, tails).num_tokens, num_prompt + num_tokens);
  }
}

TEST_P(CandidateRows, BranchesOfTheRootAreReadInOneStep) {
  const Tokens prompt = counting(1, 40);
  driver_.generate(++last_id_, prompt, 1);
  driver_.run();
  std::vector<Tokens> candidates;
  for (TokenId i = 0; i < 30; ++i) candidates.push_back({i, 1000 + i, 7});
  EXPECT_EQ(run(prompt, candidates).num_steps, 1);
}

}  // namespace
}  // namespace lmtp::server
