// A step's sampling on a device against the host's.
#include "step_sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bit_cases.h"
#include "device_under_test.h"
#include "slice_rows.h"

namespace lmtp {
namespace {

using agent::LogitTarget;
using agent::StepSampling;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(int vocab_size, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, 4.0F);
  std::vector<float> row(static_cast<std::size_t>(vocab_size));
  for (float& logit : row) logit = normal(generator);
  return row;
}

std::shared_ptr<const LogitBias> bias_of(const std::vector<TokenId>& ids, float value) {
  auto bias = std::make_shared<LogitBias>();
  bias->ids = ids;
  bias->values.assign(ids.size(), value);
  return bias;
}

// One row of logits with its sampling parameters.
struct Row {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> tokens = {1};
  bool is_scored = false;  // the last of the tokens is; else one behind it is drawn
};

// The same rows through both.
struct Outcome {
  scheduler::StepResult on_device;
  scheduler::StepResult on_host;
};

class StepSamplingTest : public ::testing::Test {
 protected:
  Outcome choose(const std::vector<Row>& rows) {
    const auto vocab_size = static_cast<std::int64_t>(rows.front().logits.size());
    scheduler::StepPlan plan;
    std::vector<float> logits;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      scheduler::SlotStart& start = plan.changes.started.emplace_back();
      start.slot = static_cast<int>(i);
      start.tokens = rows[i].tokens;
      start.params = rows[i].params;
      const int num_scored = rows[i].is_scored ? 1 : 0;
      plan.rows.push_back({.slot = start.slot,
                           .first_position = 0,
                           .num_tokens = static_cast<int>(start.tokens.size()) - num_scored,
                           .num_logits = 1,
                           .num_scored = num_scored});
      logits.insert(logits.end(), rows[i].logits.begin(), rows[i].logits.end());
    }
    const auto matrix =
        kernels::make_matrix(logits.data(), static_cast<std::int64_t>(rows.size()), vocab_size);
    std::vector<float> copy = logits;
    Outcome outcome;
    scheduler::SlotTable slots;
    slots.apply(plan);
    outcome.on_device = run(testing::device_under_test(), plan, slots, matrix);
    outcome.on_host = run(kernels::cpu_backend(), plan, slots,
                          kernels::make_matrix(copy.data(), matrix.rows, vocab_size));
    return outcome;
  }

  scheduler::StepResult run(const kernels::Backend& backend, const scheduler::StepPlan& plan,
                            scheduler::SlotTable slots, kernels::Matrix<float> logits) {
    kernels::Stream stream(backend, pool_);
    BatchLimits limits;
    limits.max_tokens = limits.max_sequences = static_cast<int>(logits.rows);
    StepSampling sampling(stream, static_cast<int>(logits.columns), limits, limits.max_tokens);
    std::vector<LogitTarget> targets;
    scheduler::StepResult result;
    agent::list_targets(plan, targets, result);
    agent::Upload upload(stream);
    sampling.prepare(plan, slots, targets, 1);
    upload.begin(sampling.rows_size());
    const agent::SampleRows sample_rows = sampling.add_rows(upload);
    upload.send();
    // By two tiles, where there are two rows.
    const std::int64_t tile = (logits.rows + 1) / 2;
    sampling.choose(sample_rows, 0, testing::slice_rows(logits, 0, tile));
    if (tile < logits.rows) {
      sampling.choose(sample_rows, static_cast<std::size_t>(tile),
                      testing::slice_rows(logits, tile, logits.rows - tile));
    }
    agent::PendingTokens tokens;
    sampling.list(tokens);
    stream.synchronize();
    agent::read_tokens(tokens, result);
    return result;
  }

  void expect_equal(const std::vector<Row>& rows) {
    const Outcome outcome = choose(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(i);
      const scheduler::RowResult& a = outcome.on_device.rows[i];
      const scheduler::RowResult& b = outcome.on_host.rows[i];
      ASSERT_EQ(a.error.has_value(), b.error.has_value());
      if (a.error.has_value()) continue;
      ASSERT_EQ(a.tokens[0].token, b.tokens[0].token);
      ASSERT_NEAR(a.tokens[0].logprob, b.tokens[0].logprob, 2e-5);
      const Measures& measures = rows[i].params.measures;
      for (const Measured& measured : {a.tokens[0].measured, b.tokens[0].measured}) {
        ASSERT_EQ(measured.entropy.has_value(), measures.entropy);
        ASSERT_EQ(measured.rank > 0, measures.rank);
      }
      ASSERT_NEAR(a.tokens[0].measured.entropy.value_or(0.0F),
                  b.tokens[0].measured.entropy.value_or(0.0F), 2e-5);
      ASSERT_EQ(a.tokens[0].measured.rank, b.tokens[0].measured.rank);
      const auto& listed = rows[i].params.logprob_token_ids;
      for (std::size_t k = 0; listed != nullptr && k < listed->size(); ++k) {
        const TokenLogprob& one = (*a.tokens[0].listed_logprobs)[k];
        const TokenLogprob& other = (*b.tokens[0].listed_logprobs)[k];
        ASSERT_EQ(one.token, (*listed)[k]);
        ASSERT_EQ(other.token, (*listed)[k]);
        ASSERT_NEAR(one.logprob, other.logprob, 2e-5);
        const auto& top = b.tokens[0].top_logprobs;
        const auto found = std::ranges::find(top, one.token, &TokenLogprob::token);
        if (found != top.end()) {
          ASSERT_EQ(found->logprob, other.logprob);
        }
      }
      ASSERT_EQ(a.tokens[0].top_logprobs.size(), b.tokens[0].top_logprobs.size());
      for (std::size_t k = 0; k < a.tokens[0].top_logprobs.size(); ++k) {
        ASSERT_EQ(a.tokens[0].top_logprobs[k].token, b.tokens[0].top_logprobs[k].token) << k;
        ASSERT_NEAR(a.tokens[0].top_logprobs[k].logprob, b.tokens[0].top_logprobs[k].logprob, 2e-5);
      }
    }
  }

  kernels::WorkerPool pool_{1};
};

TEST_F(StepSamplingTest, GreedyAndTopLogprobs) {
  for (const int vocab_size : {1, 7, 1003, 5000}) {
    std::vector<Row> rows;
    for (const int num_top : {0, 1, 2, 20, 1024, 4000}) {
      Row row{.logits = random_row(vocab_size, 3), .params = {}};
      row.params.top_logprobs = num_top;
      rows.push_back(row);
    }
    for (const int num_top : {0, 2, 1000}) {
      Row row{.logits = random_row(vocab_size, 4), .params = {}};
      row.params.top_logprobs = num_top;
      std::vector<TokenId> listed;
      for (TokenId id = vocab_size - 1; id >= 0 && listed.size() < 24; --id) listed.push_back(id);
      row.params.logprob_token_ids =
          std::make_shared<const std::vector<TokenId>>(std::move(listed));
      row.params.measures = {.entropy = num_top != 2, .rank = num_top != 0};
      rows.push_back(row);
    }
    // Ties go to the lowest id; what is impossible is not listed; zero has one value.
    rows.push_back(rows[3]);
    for (std::size_t id = 0; id < rows.back().logits.size(); ++id) {
      rows.back().logits[id] = id % 3 == 0 ? -kInfinity : id % 2 == 0 ? 0.0F : -0.0F;
    }
    if (vocab_size == 1) rows.pop_back();
    expect_equal(rows);
  }
}

TEST_F(StepSamplingTest, DrawsByTheSameNumbers) {
  std::vector<Row> rows;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Row row{.logits = random_row(1003, seed), .params = {}};
    row.params.temperature = seed % 4 == 0 ? 1.0F : 0.3F + 0.1F * static_cast<float>(seed);
    row.params.top_k = seed % 3 == 0 ? 1 + static_cast<int>(seed) : 0;
    row.params.top_p = seed % 2 == 0 ? 0.02F * static_cast<float>(seed + 1) : 1.0F;
    row.params.min_p = seed % 5 == 0 ? 0.01F * static_cast<float>(seed + 1) : 0.0F;
    row.params.typical_p = seed % 3 == 1 ? 0.02F * static_cast<float>(seed + 1) : 1.0F;
    row.params.seed = seed;
    row.params.has_seed = true;
    rows.push_back(row);
  }
  rows[0].params.top_p = 1e-6F;
  rows[3].params.top_k = 5000;
  rows[5].params.temperature = std::numeric_limits<float>::denorm_min();
  expect_equal(rows);
}

TEST_F(StepSamplingTest, TiesAtTheEdgeOfWhatIsKept) {
  std::vector<Row> rows;
  for (unsigned seed = 0; seed < 30; ++seed) {
    Row row{.logits = std::vector<float>(300, 0.0F), .params = {}};
    for (std::size_t id = 0; id < 300; id += 7) row.logits[id] = 2.0F;
    row.params.temperature = 1.0F;
    row.params.top_k = seed % 2 == 0 ? 20 + 5 * static_cast<int>(seed) : 0;
    row.params.top_p = seed % 3 == 0 ? 0.37F : 1.0F;
    row.params.seed = seed;
    rows.push_back(row);
  }
  expect_equal(rows);
}

TEST_F(StepSamplingTest, PenaltiesThenBiases) {
  std::vector<Row> rows;
  for (unsigned seed = 0; seed < 6; ++seed) {
    Row row{.logits = random_row(1003, seed), .params = {}};
    row.params.top_logprobs = 8;
    row.params.repetition_penalty = seed % 2 == 0 ? 1.7F : 1.0F;
    row.params.presence_penalty = seed % 3 == 0 ? 2.0F : 0.0F;
    row.params.frequency_penalty = 0.4F;
    row.tokens = {5, 5, 5, 1002, 0, 17, 5, static_cast<TokenId>(seed)};
    row.params.logit_bias =
        seed < 3 ? nullptr
                 : bias_of({0, 5, 900, 1002, 1003, 70000}, 1.0F * static_cast<float>(seed));
    rows.push_back(row);
  }
  rows[5].params.logit_bias = rows[4].params.logit_bias;
  expect_equal(rows);
}

TEST_F(StepSamplingTest, Scores) {
  std::vector<Row> rows;
  for (const TokenId token : {0, 3, 1002}) {
    rows.push_back(
        {.logits = random_row(1003, 9), .params = {}, .tokens = {4, token}, .is_scored = true});
  }
  expect_equal(rows);
}

TEST_F(StepSamplingTest, ScoresWithAlternatives) {
  std::vector<Row> rows;
  for (const int num_top : {0, 1, 5, 4000}) {
    for (const TokenId token : {0, 3, 1002}) {
      Row row{.logits = random_row(1003, 9), .params = {}, .tokens = {4, token}, .is_scored = true};
      row.params.top_logprobs = num_top;
      rows.push_back(row);
    }
  }
  expect_equal(rows);
  EXPECT_TRUE(choose(rows).on_device.rows[0].tokens[0].top_logprobs.empty());
}

// Of every so many-th token. What the mask forbids may be biased besides.
std::shared_ptr<const TokenMask> mask_of_every(int step, int vocab_size) {
  auto mask = std::make_shared<TokenMask>();
  mask->words.resize(static_cast<std::size_t>(vocab_size) / 64 + 1);
  for (int id = 0; id < vocab_size; id += step) {
    mask->words[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
  }
  return mask;
}

std::vector<Row> masked_rows() {
  std::vector<Row> rows;
  for (unsigned seed = 0; seed < 12; ++seed) {
    Row row{.logits = random_row(1003, seed), .params = {}};
    row.params.top_logprobs = 8;
    row.params.temperature = seed % 3 == 0 ? 0.0F : 1.1F;
    row.params.top_k = seed % 4 == 1 ? 5 : 0;
    row.params.top_p = seed % 4 == 2 ? 0.6F : 1.0F;
    row.params.seed = seed;
    row.params.repetition_penalty = seed % 2 == 0 ? 1.4F : 1.0F;
    row.params.mask = seed == 11 ? nullptr : mask_of_every(1 << (seed % 10), 1003);
    row.params.logit_bias =
        seed % 3 == 0 ? nullptr
                      : bias_of({0, 5, 900, 1002, 1003, 70000}, seed == 4 ? -kInfinity : 3.0F);
    row.tokens = {5, 5, 900, static_cast<TokenId>(seed)};
    rows.push_back(row);
  }
  rows.push_back(rows[3]);  // the same mask, with another bias
  rows.back().params.logit_bias = bias_of({8, 16}, 40.0F);
  return rows;
}

TEST_F(StepSamplingTest, MasksAreBiases) { expect_equal(masked_rows()); }

// A token that is in the sequence already is reported as if it had been drawn: after penalties,
// bias and mask.
TEST_F(StepSamplingTest, ScoresOfRowsWithEdits) {
  std::vector<Row> rows = masked_rows();
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].params.raw_logprobs = i % 5 == 0;
  const Outcome drawn = choose(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].tokens.push_back(drawn.on_host.rows[i].tokens[0].token);
    rows[i].is_scored = true;
  }
  expect_equal(rows);
  const Outcome scored = choose(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    testing::expect_same_bits(scored.on_device.rows[i].tokens, drawn.on_device.rows[i].tokens);
    testing::expect_same_bits(scored.on_host.rows[i].tokens, drawn.on_host.rows[i].tokens);
  }
}

TEST_F(StepSamplingTest, AMaskThatAllowsNothingFailsItsRowAlone) {
  std::vector<Row> rows(2, {.logits = random_row(1003, 4), .params = {}});
  auto none = std::make_shared<TokenMask>();
  none->words.resize(20);
  none->words[15] = std::uint64_t{1} << 60;  // behind the vocabulary
  rows[1].params.mask = none;
  expect_equal(rows);
  EXPECT_TRUE(choose(rows).on_device.rows[1].error.has_value());
}

TEST_F(StepSamplingTest, RawLogprobsAreOfTheLogitsAsTheyWere) {
  auto rows = masked_rows();
  const Outcome processed = choose(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].params.raw_logprobs = true;
    rows[i].params.top_logprobs = static_cast<int>(i % 4);
  }
  expect_equal(rows);
  const Outcome raw = choose(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    const scheduler::TokenResult& token = raw.on_device.rows[i].tokens[0];
    EXPECT_EQ(token.token, processed.on_device.rows[i].tokens[0].token);
    // To the bit what a SCORE says of it.
    Row score{
        .logits = rows[i].logits, .params = {}, .tokens = {4, token.token}, .is_scored = true};
    score.params.top_logprobs = std::max(rows[i].params.top_logprobs, 1);
    const Outcome scored = choose({score});
    EXPECT_EQ(token.logprob, scored.on_device.rows[0].tokens[0].logprob);
  }
}

TEST_F(StepSamplingTest, RowsWithoutNumbersFailAlone) {
  std::vector<Row> rows(5, {.logits = random_row(1003, 4), .params = {}});
  rows[0].logits[1002] = NAN;
  rows[1].logits[3] = kInfinity;
  rows[2].logits.assign(1003, -kInfinity);
  rows[3].logits.assign(1003, NAN);
  expect_equal(rows);
  const Outcome outcome = choose(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(outcome.on_device.rows[i].error.has_value(), i < 4) << i;
  }
}

// They may be of a text that never comes to be.
TEST_F(StepSamplingTest, LogitsBehindADraftThatAreNotNumbersEndTheRowBeforeThem) {
  for (const std::size_t broken : {0U, 1U, 2U}) {
    SCOPED_TRACE(broken);
    scheduler::StepPlan plan;
    plan.changes.started.emplace_back().tokens = {1, 2, 3};
    plan.changes.started.back().slot = 0;
    plan.rows.push_back(
        {.slot = 0, .first_position = 2, .num_tokens = 3, .num_logits = 3, .num_drafts = 2});
    plan.drafts = {4, 5};
    std::vector<float> logits;
    for (unsigned seed = 0; seed < 3; ++seed) {
      const std::vector<float> row = random_row(1003, seed);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    logits[broken * 1003 + 7] = NAN;
    scheduler::SlotTable slots;
    slots.apply(plan);
    for (const auto* backend : {&testing::device_under_test(), &kernels::cpu_backend()}) {
      std::vector<float> copy = logits;
      const auto result =
          run(*backend, plan, slots,
              kernels::make_matrix(copy.data(), std::int64_t{3}, std::int64_t{1003}));
      EXPECT_EQ(result.rows[0].error.has_value(), broken == 0);
      if (broken > 0) {
        EXPECT_EQ(result.rows[0].tokens.size(), broken);
      }
    }
  }
}

TEST_F(StepSamplingTest, LargeBiasesKeepTheSmallPart) {
  Row row{.logits = std::vector<float>(300, 1e8F), .params = {}};
  row.logits[7] = -kInfinity;
  row.params.top_logprobs = 2;
  expect_equal({row});
}

// Each row equals itself alone, in bits, in any order of the device's threads.
TEST_F(StepSamplingTest, OtherRowsAndOrderDoNotMatter) {
  std::vector<Row> rows;
  for (unsigned seed = 0; seed < 8; ++seed) {
    Row row{.logits = random_row(2000, seed), .params = {}};
    row.params.temperature = 1.0F;
    row.params.top_p = 0.8F;
    row.params.top_logprobs = 30;
    row.params.seed = seed;
    rows.push_back(row);
  }
  testing::set_thread_order(5);
  const Outcome together = choose(rows);
  testing::set_thread_order(0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Outcome alone = choose({rows[i]});
    testing::expect_same_bits(together.on_device.rows[i].tokens, alone.on_device.rows[0].tokens);
  }
}

// More biases and masks than the device keeps: those of the step at hand are always there.
TEST_F(StepSamplingTest, BiasesAndMasksComeAndGo) {
  constexpr int kVocab = 60000;
  kernels::Stream stream(testing::device_under_test(), pool_);
  agent::SharedArrays arrays(stream, kVocab, 30);
  std::vector<TokenId> ids(kVocab);
  for (int id = 0; id < kVocab; ++id) ids[static_cast<std::size_t>(id)] = id;
  const agent::SharedArray kept = agent::shared_array(bias_of({3, 4}, 0.5F), kVocab);
  for (int step = 0; step < 20; ++step) {
    std::vector<agent::SharedArray> now = {kept, kept};
    for (int i = 0; i < 10; ++i) {
      now.push_back(agent::shared_array(bias_of(ids, static_cast<float>(100 * step + i)), kVocab));
      now.push_back(agent::shared_array(mask_of_every(1 + i, kVocab), kVocab));
    }
    arrays.upload(now);
    stream.synchronize();
    const auto expect_at = [](const std::byte* at, std::span<const std::byte> expected) {
      std::vector<std::byte> placed(expected.size());
      testing::copy_to_host(placed.data(), at, placed.size());
      ASSERT_TRUE(std::ranges::equal(placed, expected));
    };
    for (const agent::SharedArray& array : now) {
      const auto [first, second] = arrays.at(array);
      expect_at(first, array.first);
      expect_at(second, array.second);
    }
  }
}

}  // namespace
}  // namespace lmtp
