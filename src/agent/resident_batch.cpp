#include "resident_batch.h"

#include <algorithm>
#include <cstring>

#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);
constexpr std::size_t kSampleRowWords = sizeof(kernels::SampleRow) / kWord;
static_assert(sizeof(kernels::SampleRow) % kWord == 0 && sizeof(BlockId) == kWord);

// Of a sequence whose last token is at `position`.
int num_blocks_of(int position) { return position / kBlockSize + 1; }

// Whether the row is the same in the next step.
bool is_lasting(const kernels::SampleRow& row) {
  return row.scored < 0 && row.num_counts == 0 && row.counts_input == 0;
}

}  // namespace

ResidentBatch::Layout::Layout(int rows_max, int context_length, int num_groups) {
  const auto groups = static_cast<std::size_t>(num_groups);
  const auto rows = static_cast<std::size_t>(rows_max);
  const auto take = [&](std::size_t count) {
    const std::size_t at = num_words;
    num_words += count;
    return at;
  };
  slot_samples = take(rows * kSampleRowWords);  // first: they have the strictest alignment
  samples = take(rows * kSampleRowWords);
  ids = take(rows);
  positions = take(rows);
  slots = take(groups * rows);
  cu_seqlens = take(rows + 1);
  block_offsets = take(rows + 1);
  table_starts = take(rows);
  table_stride = static_cast<std::size_t>(num_blocks_of(context_length));
  group_stride = rows * table_stride;
  block_tables = take(groups * group_stride);
}

std::size_t ResidentBatch::mapped_bytes(std::size_t num_patches) const {
  return sizeof(kernels::StepHeader) +
         static_cast<std::size_t>(rows_max_) * sizeof(kernels::BatchRow) +
         std::max<std::size_t>(num_patches, kernels::kStepPatchesRead) * sizeof(kernels::WordPatch);
}

// Zeros: all tables begin with block 0.
ResidentBatch::ResidentBatch(kernels::Stream& stream, int rows_max, int context_length,
                             int num_groups)
    : stream_(stream),
      rows_max_(rows_max),
      num_groups_(num_groups),
      layout_(rows_max, context_length, num_groups),
      memory_(kernels::Memory::allocate(stream.backend(), layout_.num_words * kWord)),
      mapped_(stream, mapped_bytes(0)),
      sent_(static_cast<std::size_t>(rows_max)) {
  stream_.set_zero(memory_.data(), memory_.num_bytes());
}

std::int64_t ResidentBatch::num_bytes(int rows_max, int context_length, int num_groups) {
  return static_cast<std::int64_t>(Layout(rows_max, context_length, num_groups).num_words * kWord);
}

void ResidentBatch::mark_stale(const scheduler::SlotChanges& changes) {
  for (const scheduler::SlotStart& start : changes.started) {
    sent_.at(static_cast<std::size_t>(start.slot)) = {};
  }
  for (const scheduler::SlotBlock& block : changes.blocks) {
    std::size_t& num_blocks = sent_.at(static_cast<std::size_t>(block.slot)).num_blocks;
    num_blocks = std::min(num_blocks, static_cast<std::size_t>(block.index / num_groups_));
  }
  for (const scheduler::SlotBias& bias : changes.biases) {
    sent_.at(static_cast<std::size_t>(bias.slot)).is_sample = false;
  }
}

void ResidentBatch::forget_samples() {
  for (Sent& sent : sent_) sent.is_sample = false;
}

ResidentBatch::Extent ResidentBatch::extent_of(const scheduler::StepPlan& plan) {
  Extent extent{.num_rows = static_cast<int>(plan.rows.size())};
  for (const scheduler::PlanRow& row : plan.rows) {
    extent.context_max = std::max(extent.context_max, row.first_position + 1);
    extent.num_blocks += num_blocks_of(row.first_position);
  }
  return extent;
}

void ResidentBatch::patch(std::size_t at, const void* words, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(words) + i * kWord, kWord);
    patches_.push_back({.at = static_cast<std::uint32_t>(at + i), .value = word});
  }
}

// What the device has not of a slot's tables; `blocks`: [runs, groups].
void ResidentBatch::patch_tables(std::size_t slot, const std::vector<BlockId>& blocks) {
  std::size_t& num_sent = sent_.at(slot).num_blocks;
  const auto num_groups = static_cast<std::size_t>(num_groups_);
  const std::size_t num_blocks = blocks.size() / num_groups;
  for (std::size_t group = 0; group < num_groups; ++group) {
    const std::size_t table =
        layout_.block_tables + group * layout_.group_stride + slot * layout_.table_stride;
    for (std::size_t i = num_sent; i < num_blocks; ++i) {
      patch(table + i, &blocks[i * num_groups + group], 1);
    }
  }
  num_sent = num_blocks;
}

void ResidentBatch::prepare(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots,
                            std::span<const std::int32_t> input_records,
                            std::span<const kernels::SampleRow> sample_rows, int turn) {
  const std::size_t count = plan.rows.size();
  LMTP_CHECK(count >= 1 && count <= static_cast<std::size_t>(rows_max_) &&
                 sample_rows.size() == count && input_records.size() == count,
             count, rows_max_, sample_rows.size(), input_records.size());
  patches_.clear();
  rows_.clear();
  std::int32_t num_blocks_before = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const scheduler::PlanRow& row = plan.rows[i];
    const scheduler::SlotState& state = slots.at(row.slot);
    const int num_blocks = num_blocks_of(row.first_position);
    const auto position = static_cast<std::size_t>(row.first_position);
    const bool is_known = input_records[i] < 0;
    LMTP_CHECK(row.num_tokens == 1 && (!is_known || position < state.tokens.size()), i,
               row.num_tokens, row.first_position, state.tokens.size());
    const std::size_t num_known = state.blocks.size() / static_cast<std::size_t>(num_groups_);
    LMTP_CHECK(
        static_cast<std::size_t>(num_blocks) <= num_known && num_known <= layout_.table_stride,
        num_blocks, num_known, layout_.table_stride);
    rows_.push_back({.slot = row.slot,
                     .token = is_known ? state.tokens[position] : ~input_records[i],
                     .position = row.first_position,
                     .first_block = num_blocks_before});
    num_blocks_before += num_blocks;
    const auto slot = static_cast<std::size_t>(row.slot);
    Sent& sent = sent_.at(slot);
    patch_tables(slot, state.blocks);
    if (sent.is_sample && is_lasting(sample_rows[i])) continue;
    patch(layout_.slot_samples + slot * kSampleRowWords, &sample_rows[i], kSampleRowWords);
    sent.is_sample = is_lasting(sample_rows[i]);
  }
  mapped_.reserve(turn, mapped_bytes(patches_.size()));
  *header() = {.num_patches = static_cast<std::int32_t>(patches_.size()),
               .num_rows = static_cast<std::int32_t>(count),
               .num_blocks = num_blocks_before};
  std::ranges::copy(rows_, mapped_rows());
  std::ranges::copy(patches_, mapped_patches());
}

kernels::StepHeader* ResidentBatch::header() const {
  return reinterpret_cast<kernels::StepHeader*>(mapped_.data());
}

kernels::BatchRow* ResidentBatch::mapped_rows() const {
  return reinterpret_cast<kernels::BatchRow*>(header() + 1);
}

kernels::WordPatch* ResidentBatch::mapped_patches() const {
  return reinterpret_cast<kernels::WordPatch*>(mapped_rows() + rows_max_);
}

std::int32_t* ResidentBatch::on_device(std::size_t at) const {
  return static_cast<std::int32_t*>(memory_.data()) + at;
}

kernels::SampleRow* ResidentBatch::samples_on_device(std::size_t at) const {
  return reinterpret_cast<kernels::SampleRow*>(on_device(at));
}

const kernels::SampleRow* ResidentBatch::sample_rows() const {
  return samples_on_device(layout_.samples);
}

void ResidentBatch::advance(int num_padded, const kernels::SampleRecord* records) {
  LMTP_CHECK(num_padded <= rows_max_, num_padded, rows_max_);
  kernels::step_batch(stream_, {.step = header(),
                                .patches = mapped_patches(),
                                .rows = mapped_rows(),
                                .words = reinterpret_cast<std::uint32_t*>(on_device(0)),
                                .slot_samples = samples_on_device(layout_.slot_samples),
                                .block_tables = on_device(layout_.block_tables),
                                .table_stride = static_cast<std::int64_t>(layout_.table_stride),
                                .num_groups = num_groups_,
                                .group_stride = static_cast<std::int64_t>(layout_.group_stride),
                                .slots_stride = rows_max_,
                                .records = records,
                                .num_padded = num_padded,
                                .ids = on_device(layout_.ids),
                                .positions = on_device(layout_.positions),
                                .slots = on_device(layout_.slots),
                                .cu_seqlens = on_device(layout_.cu_seqlens),
                                .block_offsets = on_device(layout_.block_offsets),
                                .table_starts = on_device(layout_.table_starts),
                                .samples = samples_on_device(layout_.samples)});
}

model::InputArrays ResidentBatch::arrays(int num_padded) const {
  model::InputArrays arrays{.num_tokens = num_padded,
                            .num_sequences = num_padded,
                            .chunk_max = 1,
                            .ids = on_device(layout_.ids),
                            .positions = on_device(layout_.positions),
                            .cu_seqlens = on_device(layout_.cu_seqlens),
                            .first_positions = on_device(layout_.positions),
                            .block_offsets = on_device(layout_.block_offsets),
                            .logit_rows = on_device(layout_.cu_seqlens)};
  for (std::size_t group = 0; group < static_cast<std::size_t>(num_groups_); ++group) {
    arrays.groups[group] = {
        .slots = on_device(layout_.slots + group * static_cast<std::size_t>(rows_max_)),
        .tables = on_device(layout_.block_tables + group * layout_.group_stride),
        .table_starts = on_device(layout_.table_starts)};
  }
  return arrays;
}

}  // namespace lmtp::agent
