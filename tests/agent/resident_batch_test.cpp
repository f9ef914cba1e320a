// What stays on a device of running sequences, against each step's plan.
#include "resident_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
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

  // A sequence as the scheduler has it.
  struct Known {
    int slot = 0;
    std::vector<TokenId> tokens;
    std::vector<BlockId> blocks;
    std::uint64_t seed = 0;

    int length() const { return static_cast<int>(tokens.size()); }
  };

  void add(int slot, int length) {
    Known& known = sequences_.emplace_back();
    known.slot = slot;
    restart(known, length);
  }

  void restart(Known& known, int length) {
    known.seed = ++num_started_;
    known.blocks.clear();
    known.tokens.clear();
    while (known.length() < length) known.tokens.push_back(known.slot * 7 + known.length());
    while (static_cast<int>(known.blocks.size()) * kBlockSize < length) {
      known.blocks.push_back(++num_blocks_);
    }
    std::erase_if(changes_.blocks, [&](const auto& block) { return block.slot == known.slot; });
    std::erase_if(changes_.tokens, [&](const auto& tokens) { return tokens.slot == known.slot; });
    scheduler::SlotStart& start = changes_.started.emplace_back();
    start.slot = known.slot;
    start.tokens = known.tokens;
    start.blocks = known.blocks;
    start.params.seed = known.seed;
  }

  // Each sequence by a token of its own.
  void move_on() {
    for (Known& known : sequences_) {
      known.tokens.push_back(known.slot * 7 + known.length());
      changes_.tokens.push_back({known.slot, {known.tokens.back()}});
      if (static_cast<int>(known.blocks.size()) * kBlockSize >= known.length()) continue;
      set_block(known, known.blocks.size());
    }
  }

  void set_block(Known& known, std::size_t index) {
    if (index == known.blocks.size()) known.blocks.emplace_back();
    known.blocks[index] = ++num_blocks_;
    changes_.blocks.push_back({known.slot, static_cast<int>(index), num_blocks_});
  }

  void leave(std::size_t index) {
    const int slot = sequences_[index].slot;
    const auto is_its = [slot](const auto& change) { return change.slot == slot; };
    std::erase_if(changes_.started, is_its);
    std::erase_if(changes_.blocks, is_its);
    std::erase_if(changes_.tokens, is_its);
    changes_.ended.push_back(slot);
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  // The last token of each sequence, in that order.
  scheduler::StepPlan plan() {
    scheduler::StepPlan plan;
    std::swap(plan.changes, changes_);
    for (const Known& known : sequences_) {
      plan.rows.push_back({.slot = known.slot,
                           .first_position = known.length() - 1,
                           .num_tokens = 1,
                           .num_logits = 1});
    }
    return plan;
  }

  void note(const scheduler::StepPlan& plan) {
    slots_.apply(plan);
    rows_.mark_stale(plan.changes);
  }

  // Executes a plan of all sequences and compares all arrays on the device with it. Returns how
  // many words of what stays there were new.
  std::size_t step(std::vector<std::int32_t> input_records = {}, int num_padded = 0) {
    const scheduler::StepPlan next = plan();
    note(next);
    input_records.resize(next.rows.size(), -1);
    num_padded = std::max(num_padded, static_cast<int>(next.rows.size()));
    std::vector<SampleRow> sample_rows;
    for (const Known& known : sequences_) sample_rows.emplace_back().seed = known.seed;
    if (is_counted_) sample_rows.front().num_counts = ++num_counts_;
    turn_ = 1 - turn_;
    rows_.prepare(next, slots_, input_records, sample_rows, turn_);
    rows_.advance(num_padded, static_cast<const SampleRecord*>(records_.data()));
    stream_.synchronize();
    expect_rows(input_records, rows_.arrays(num_padded), num_padded);
    auto on_device = from_device(rows_.sample_rows(), static_cast<std::size_t>(num_padded));
    for (std::size_t i = sample_rows.size(); i < on_device.size(); ++i) {
      EXPECT_EQ(on_device[i].scored, kernels::kSampleNothing);
    }
    on_device.resize(sample_rows.size());
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(on_device)),
                                   std::as_bytes(std::span(sample_rows))));
    return rows_.num_patches();
  }

  void expect_rows(const std::vector<std::int32_t>& input_records, const model::InputArrays& arrays,
                   int num_padded) {
    const auto count = static_cast<std::size_t>(num_padded);
    ASSERT_EQ(arrays.num_tokens, num_padded);
    ASSERT_EQ(arrays.num_sequences, num_padded);
    const auto ids = from_device(arrays.ids, count);
    const auto positions = from_device(arrays.positions, count);
    const auto slots = from_device(arrays.groups[0].slots, count);
    const auto offsets = from_device(arrays.block_offsets, count + 1);
    const auto starts = from_device(arrays.groups[0].table_starts, count);
    const auto cu_seqlens = from_device(arrays.cu_seqlens, count + 1);
    EXPECT_EQ(from_device(arrays.first_positions, count), positions);
    EXPECT_EQ(arrays.logit_rows, arrays.cu_seqlens);
    for (std::size_t i = 0; i < count; ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(cu_seqlens[i], static_cast<std::int32_t>(i));
      EXPECT_EQ(cu_seqlens[i + 1], static_cast<std::int32_t>(i + 1));
      const std::int32_t num_blocks = offsets[i + 1] - offsets[i];
      if (i >= sequences_.size()) {
        EXPECT_EQ(ids[i], 0);
        EXPECT_EQ(positions[i], 0);
        EXPECT_LT(slots[i], kBlockSize);
        EXPECT_EQ(num_blocks, 1);
        EXPECT_EQ(starts[i], 0);
        continue;
      }
      const Known& known = sequences_[i];
      const int position = known.length() - 1;
      EXPECT_EQ(ids[i],
                input_records[i] < 0 ? known.tokens.back() : token_of_record(input_records[i]));
      EXPECT_EQ(positions[i], position);
      EXPECT_EQ(slots[i],
                known.blocks[static_cast<std::size_t>(position / kBlockSize)] * kBlockSize +
                    position % kBlockSize);
      ASSERT_EQ(num_blocks, position / kBlockSize + 1);
      const auto table =
          from_device(arrays.groups[0].tables + starts[i], static_cast<std::size_t>(num_blocks));
      EXPECT_TRUE(std::equal(table.begin(), table.end(), known.blocks.begin()));
    }
  }

  kernels::WorkerPool pool_{1};
  kernels::Stream stream_{testing::device_under_test(), pool_};
  scheduler::SlotTable slots_;
  ResidentBatch rows_{stream_, kRowsMax, kContext};
  kernels::Memory records_;
  std::deque<Known> sequences_;
  scheduler::SlotChanges changes_;
  std::uint64_t num_started_ = 0;
  BlockId num_blocks_ = 0;
  bool is_counted_ = false;  // the first one has penalties
  std::int64_t num_counts_ = 0;
  int turn_ = 0;
};

TEST_F(ResidentBatchTest, OnlyWhatIsNewIsSent) {
  add(4, 3);
  add(0, 20);
  add(7, 70);
  EXPECT_GT(step({}, 4), 0U);
  for (int length = 4; length <= 17; ++length) {
    move_on();
    // The second has its 33rd token when the first has 16, the third its 81st at 14, the first a
    // second block at 17: a word.
    EXPECT_EQ(step({0, 1, 2}, 4), length == 14 || length >= 16 ? 1U : 0U) << length;
  }
}

TEST_F(ResidentBatchTest, ASequenceWithPenaltiesIsSentInEachStep) {
  add(1, 3);
  add(2, 3);
  step();
  is_counted_ = true;
  constexpr std::size_t kRowWords = sizeof(SampleRow) / sizeof(std::uint32_t);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(), kRowWords);
}

TEST_F(ResidentBatchTest, SequencesComeAndGo) {
  std::mt19937 generator(5);
  const auto one_of = [&](int count) {
    return std::uniform_int_distribution<int>(0, count - 1)(generator);
  };
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    move_on();
    for (std::size_t i = sequences_.size(); i-- > 0;) {
      if (sequences_[i].length() >= kContext || one_of(12) == 0) leave(i);
    }
    while (sequences_.empty() || (sequences_.size() < kRowsMax && one_of(3) == 0)) {
      int slot = one_of(kRowsMax);
      while (std::ranges::find(sequences_, slot, &Known::slot) != sequences_.end()) {
        slot = (slot + 1) % kRowsMax;
      }
      add(slot, 1 + one_of(kContext - 1));
    }
    Known& known = sequences_[static_cast<std::size_t>(one_of(2)) % sequences_.size()];
    if (one_of(5) == 0) restart(known, known.length());  // it was preempted
    if (one_of(5) == 0) {
      set_block(known, static_cast<std::size_t>(one_of(known.length()) / kBlockSize));
    }
    std::shuffle(sequences_.begin(), sequences_.end(), generator);
    if (one_of(4) == 0) {
      note(plan());  // another kind of step
      continue;
    }
    if (one_of(20) == 0) rows_.forget_samples();
    std::vector<std::int32_t> input_records;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      input_records.push_back(one_of(2) == 0 ? one_of(kRowsMax) : -1);
    }
    const auto count = static_cast<int>(sequences_.size());
    step(input_records, count + one_of(kRowsMax - count + 1));
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace lmtp::agent
