// The batch that stays on a device, against each step's plan.
#include "resident_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <vector>

#include "device_under_test.h"

namespace lmtp::agent {
namespace {

using kernels::SampleRecord;
using kernels::SampleRow;

constexpr int kRowsMax = 12;
constexpr int kContext = 200;

template <typename T>
std::vector<T> from_device(const T* from, std::size_t count) {
  std::vector<T> to(count);
  testing::copy_to_host(to.data(), from, count * sizeof(T));
  return to;
}

// The token in a record of the step before.
TokenId token_of_record(int record) { return 1000 + record; }

class ResidentBatchTest : public ::testing::Test {
 protected:
  ResidentBatchTest()
      : records_(kernels::Memory::allocate(stream_.backend(), kRowsMax * sizeof(SampleRecord))) {
    std::vector<SampleRecord> records(kRowsMax);
    for (int i = 0; i < kRowsMax; ++i) {
      records[static_cast<std::size_t>(i)].token = token_of_record(i);
    }
    testing::copy_to_device(records_.data(), records.data(), records_.num_bytes());
  }

  scheduler::Sequence& add(int length) {
    scheduler::Sequence& sequence = sequences_.emplace_back();
    sequence.id = ++num_sequences_;
    sequence.params.seed = sequence.id;
    grow(sequence, length);
    return sequence;
  }

  // By tokens and blocks of its own.
  void grow(scheduler::Sequence& sequence, int length) {
    while (sequence.length() < length) {
      sequence.tokens.push_back(static_cast<TokenId>(sequence.id) * 7 + sequence.length());
    }
    while (static_cast<int>(sequence.blocks.size()) * kBlockSize < length) {
      sequence.blocks.push_back(++num_blocks_);
    }
  }

  // The last token of each sequence.
  scheduler::StepPlan plan() const {
    scheduler::StepPlan plan;
    for (const scheduler::Sequence& sequence : sequences_) {
      plan.rows.push_back({.sequence = &sequence,
                           .first_position = sequence.length() - 1,
                           .num_tokens = 1,
                           .num_logits = 1});
    }
    return plan;
  }

  // Executes a plan and compares all arrays on the device with it. Returns how many words were
  // uploaded.
  std::size_t step(const scheduler::StepPlan& plan, const std::vector<std::int32_t>& input_records,
                   int num_padded) {
    const ResidentBatch::Extent extent = rows_.place(plan);
    std::vector<SampleRow> sample_rows;
    for (const int row : rows_.order()) {
      SampleRow& sample = sample_rows.emplace_back();
      sample.seed = plan.rows[static_cast<std::size_t>(row)].sequence->params.seed;
    }
    rows_.prepare(plan, input_records, sample_rows, num_padded);
    const std::size_t num_bytes = rows_.upload_size();
    upload_.begin(num_bytes);
    rows_.add_to(upload_);
    upload_.send();
    const model::InputArrays arrays =
        rows_.advance(static_cast<const SampleRecord*>(records_.data()));
    stream_.synchronize();
    expect_extent(plan, extent);
    expect_rows(plan, input_records, arrays, num_padded);
    const auto on_device = from_device(rows_.sample_rows(), sample_rows.size());
    EXPECT_EQ(
        std::memcmp(on_device.data(), sample_rows.data(), sample_rows.size() * sizeof(SampleRow)),
        0);
    return num_bytes / sizeof(kernels::WordPatch);
  }
  std::size_t step() { return step(plan(), {}, static_cast<int>(sequences_.size())); }

  static void expect_extent(const scheduler::StepPlan& plan, const ResidentBatch::Extent& extent) {
    int context_max = 0;
    int num_blocks = 0;
    for (const scheduler::PlanRow& row : plan.rows) {
      context_max = std::max(context_max, row.first_position + 1);
      num_blocks += row.first_position / kBlockSize + 1;
    }
    EXPECT_EQ(extent.num_rows, static_cast<int>(plan.rows.size()));
    EXPECT_EQ(extent.context_max, context_max);
    EXPECT_EQ(extent.num_blocks, num_blocks);
  }

  void expect_rows(const scheduler::StepPlan& plan, const std::vector<std::int32_t>& input_records,
                   const model::InputArrays& arrays, int num_padded) {
    const auto count = static_cast<std::size_t>(num_padded);
    ASSERT_EQ(arrays.num_tokens, num_padded);
    ASSERT_EQ(arrays.num_sequences, num_padded);
    const auto ids = from_device(arrays.ids, count);
    const auto positions = from_device(arrays.positions, count);
    const auto slots = from_device(arrays.slots, count);
    const auto offsets = from_device(arrays.block_offsets, count + 1);
    const auto logit_rows = from_device(arrays.logit_rows, count);
    const auto cu_seqlens = from_device(arrays.cu_seqlens, count + 1);
    EXPECT_EQ(from_device(arrays.first_positions, count), positions);
    std::vector<bool> is_placed(plan.rows.size());
    for (std::size_t place = 0; place < count; ++place) {
      SCOPED_TRACE(place);
      EXPECT_EQ(logit_rows[place], static_cast<std::int32_t>(place));
      EXPECT_EQ(cu_seqlens[place + 1], static_cast<std::int32_t>(place + 1));
      if (place >= plan.rows.size()) {
        EXPECT_EQ(ids[place], 0);
        EXPECT_EQ(positions[place], 0);
        EXPECT_LT(slots[place], kBlockSize);
        EXPECT_EQ(offsets[place + 1] - offsets[place], 1);
        continue;
      }
      const auto i = static_cast<std::size_t>(rows_.order()[place]);
      EXPECT_FALSE(is_placed[i]);
      is_placed[i] = true;
      const scheduler::PlanRow& row = plan.rows[i];
      const std::vector<BlockId>& blocks = row.sequence->blocks;
      const auto at = static_cast<std::size_t>(row.first_position);
      EXPECT_EQ(ids[place], input_records.empty() ? row.sequence->tokens[at]
                                                  : token_of_record(input_records[i]));
      EXPECT_EQ(positions[place], row.first_position);
      EXPECT_EQ(slots[place],
                blocks[at / kBlockSize] * kBlockSize + row.first_position % kBlockSize);
      const auto num_blocks = static_cast<std::size_t>(offsets[place + 1] - offsets[place]);
      ASSERT_EQ(num_blocks, at / kBlockSize + 1);
      const auto table = from_device(
          arrays.block_tables + static_cast<std::int64_t>(place) * arrays.table_stride, num_blocks);
      EXPECT_TRUE(std::equal(table.begin(), table.end(), blocks.begin()));
    }
  }

  void move_on() {
    for (scheduler::Sequence& sequence : sequences_) grow(sequence, sequence.length() + 1);
  }

  kernels::WorkerPool pool_{1};
  kernels::Stream stream_{testing::device_under_test(), pool_};
  Upload upload_{stream_};
  ResidentBatch rows_{stream_, kRowsMax, kContext};
  kernels::Memory records_;
  std::deque<scheduler::Sequence> sequences_;
  SequenceId num_sequences_ = 0;
  BlockId num_blocks_ = 0;
};

TEST_F(ResidentBatchTest, NothingIsUploadedWhileNothingChanges) {
  for (const int length : {3, 20, 70}) add(length);
  const std::vector<std::int32_t> own = {0, 1, 2};
  EXPECT_GT(step(plan(), {}, 4), 0U);
  move_on();
  EXPECT_GT(step(plan(), own, 4), 0U);  // from now on tokens come from the records
  for (int length = 5; length <= 17; ++length) {
    move_on();
    // The second has its 33rd token when the first has 16, the third its 81st at 14, the first a
    // second block at 17.
    const std::size_t num_words = step(plan(), own, 4);
    if (length == 14 || length >= 16) {
      EXPECT_GT(num_words, 0U) << length;
      EXPECT_LT(num_words, 8U) << length;
    } else {
      EXPECT_EQ(num_words, 0U) << length;
    }
  }
}

TEST_F(ResidentBatchTest, AStreamKeepsItsPlaceWhereverItIsInThePlan) {
  for (const int length : {3, 20, 70, 100}) add(length);
  step();
  move_on();
  scheduler::StepPlan turned = plan();
  std::reverse(turned.rows.begin(), turned.rows.end());
  // Two words a row: a token, and one for Upload's rounding at most.
  EXPECT_LE(step(turned, {}, 4), 8U);
}

TEST_F(ResidentBatchTest, StreamsComeAndGo) {
  std::mt19937 generator(5);
  const auto one_of = [&](int count) {
    return std::uniform_int_distribution<int>(0, count - 1)(generator);
  };
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    move_on();
    std::erase_if(sequences_, [&](const scheduler::Sequence& sequence) {
      return sequence.length() >= kContext || one_of(12) == 0;
    });
    while (sequences_.empty() || (sequences_.size() < kRowsMax && one_of(3) == 0)) {
      add(1 + one_of(kContext - 1));
    }
    if (one_of(5) == 0) {
      // It was preempted: it has other blocks now.
      scheduler::Sequence& sequence =
          sequences_[static_cast<std::size_t>(one_of(2)) % sequences_.size()];
      sequence.blocks.clear();
      grow(sequence, sequence.length());
    }
    scheduler::StepPlan next = plan();
    std::shuffle(next.rows.begin(), next.rows.end(), generator);
    std::vector<std::int32_t> input_records;
    if (one_of(2) == 0) {
      for (std::size_t i = 0; i < next.rows.size(); ++i) input_records.push_back(one_of(kRowsMax));
    }
    if (one_of(20) == 0) rows_.invalidate();
    const int count = static_cast<int>(next.rows.size());
    step(next, input_records, count + one_of(kRowsMax - count + 1));
    ASSERT_FALSE(HasFailure());
  }
}

// Nothing of the failed step was uploaded: the next one must not rely on it.
TEST_F(ResidentBatchTest, AFailedStepInvalidatesTheBatch) {
  add(30);
  add(50);
  step();
  move_on();
  const scheduler::StepPlan failed = plan();
  (void)rows_.place(failed);
  rows_.prepare(failed, {}, std::vector<SampleRow>(2), 2);
  rows_.invalidate();
  step();
}

TEST_F(ResidentBatchTest, SequencesOfOneIdHaveAPlaceEach) {
  add(5);
  add(9);
  sequences_[1].id = sequences_[0].id;
  step();
  move_on();
  step();
}

}  // namespace
}  // namespace lmtp::agent
