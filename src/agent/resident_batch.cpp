#include "resident_batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);
constexpr std::size_t kSampleRowWords = sizeof(kernels::SampleRow) / kWord;
static_assert(sizeof(kernels::SampleRow) % kWord == 0 && sizeof(BlockId) == kWord);

// Of a sequence whose last token is at `position`.
int num_blocks_of(int position) { return position / kBlockSize + 1; }

}  // namespace

ResidentBatch::Layout::Layout(int rows_max, int context_length) {
  const auto rows = static_cast<std::size_t>(rows_max);
  const auto take = [&](std::size_t count) {
    const std::size_t at = num_words;
    num_words += count;
    return at;
  };
  sample_rows = take(rows * kSampleRowWords);  // first: it has the strictest alignment
  tokens = take(rows);
  next_positions = take(rows);
  block_offsets = take(rows + 1);
  cu_seqlens = take(rows + 1);
  ids = take(rows);
  positions = take(rows);
  slots = take(rows);
  table_stride = static_cast<std::size_t>(num_blocks_of(context_length));
  block_tables = take(rows * table_stride);
}

ResidentBatch::ResidentBatch(kernels::Stream& stream, int rows_max, int context_length)
    : stream_(stream),
      layout_(rows_max, context_length),
      memory_(kernels::Memory::allocate(stream.backend(), layout_.num_words * kWord)),
      words_(layout_.num_words),
      numbers_(static_cast<std::size_t>(rows_max) + 1) {
  std::iota(numbers_.begin(), numbers_.end(), 0);
}

std::int64_t ResidentBatch::num_bytes(int rows_max, int context_length) {
  return static_cast<std::int64_t>(Layout(rows_max, context_length).num_words * kWord);
}

ResidentBatch::Extent ResidentBatch::place(const scheduler::StepPlan& plan) {
  Extent extent{.num_rows = static_cast<int>(plan.rows.size())};
  LMTP_CHECK(plan.rows.size() < numbers_.size(), plan.rows.size(), numbers_.size());
  order_.assign(plan.rows.size(), -1);
  new_rows_.clear();
  for (int i = 0; i < extent.num_rows; ++i) {
    const scheduler::PlanRow& row = plan.rows[static_cast<std::size_t>(i)];
    LMTP_CHECK(row.num_tokens == 1 && row.first_position >= 0 &&
                   (row.input_row >= 0 || row.first_position < row.sequence->length()),
               i, row.num_tokens, row.first_position, row.sequence->length());
    extent.context_max = std::max(extent.context_max, row.first_position + 1);
    extent.num_blocks += num_blocks_of(row.first_position);
    const auto found = place_of_.find(row.sequence->id);
    const auto last = static_cast<std::size_t>(found != place_of_.end() ? found->second : -1);
    if (last < order_.size() && order_[last] < 0) {
      order_[last] = i;
    } else {
      new_rows_.push_back(i);
    }
  }
  auto new_row = new_rows_.begin();
  for (int& row : order_) {
    if (row < 0) row = *new_row++;
  }
  if (!new_rows_.empty() || place_of_.size() != order_.size()) {
    place_of_.clear();
    for (int place = 0; place < extent.num_rows; ++place) {
      const int row = order_[static_cast<std::size_t>(place)];
      place_of_[plan.rows[static_cast<std::size_t>(row)].sequence->id] = place;
    }
  }
  return extent;
}

void ResidentBatch::clear_device() {
  stream_.set_zero(memory_.data(), memory_.num_bytes());
  std::fill(words_.begin(), words_.end(), 0);
  is_synced_ = true;
}

void ResidentBatch::write(std::size_t at, const void* words, std::size_t count) {
  if (std::memcmp(&words_[at], words, count * kWord) == 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(words) + i * kWord, kWord);
    if (words_[at + i] != word) {
      words_[at + i] = word;
      patches_.push_back({.at = static_cast<std::uint32_t>(at + i), .value = word});
    }
  }
}

template <typename WordOf>
void ResidentBatch::write_each(std::size_t at, std::size_t count, const WordOf& word_of) {
  row_words_.clear();
  for (std::size_t place = 0; place < count; ++place) row_words_.push_back(word_of(place));
  write(at, row_words_.data(), count);
}

void ResidentBatch::prepare(const scheduler::StepPlan& plan,
                            std::span<const std::int32_t> input_records,
                            std::span<const kernels::SampleRow> sample_rows, int num_padded) {
  const std::size_t count = order_.size();
  const auto padded = static_cast<std::size_t>(num_padded);
  LMTP_CHECK(count >= 1 && count == plan.rows.size() && sample_rows.size() == count &&
                 (input_records.empty() || input_records.size() == count) && padded >= count &&
                 padded < numbers_.size(),
             count, plan.rows.size(), sample_rows.size(), input_records.size(), num_padded);
  const auto row_at = [&](std::size_t place) -> const scheduler::PlanRow& {
    return plan.rows[static_cast<std::size_t>(order_[place])];
  };
  patches_.clear();
  if (!is_synced_) clear_device();
  for (std::size_t place = 0; place < count; ++place) {
    const std::vector<BlockId>& blocks = row_at(place).sequence->blocks;
    const auto num_blocks = static_cast<std::size_t>(num_blocks_of(row_at(place).first_position));
    LMTP_CHECK(num_blocks <= blocks.size() && num_blocks <= layout_.table_stride, num_blocks,
               blocks.size(), layout_.table_stride);
    write(layout_.block_tables + place * layout_.table_stride, blocks.data(), num_blocks);
  }
  std::int32_t num_blocks_before = 0;
  write_each(layout_.block_offsets, padded + 1, [&](std::size_t place) {
    const std::int32_t before = num_blocks_before;
    // A padding row has one block.
    num_blocks_before += place < count ? num_blocks_of(row_at(place).first_position) : 1;
    return before;
  });
  write_each(layout_.tokens, count, [&](std::size_t place) {
    const scheduler::PlanRow& row = row_at(place);
    return input_records.empty()
               ? row.sequence->tokens[static_cast<std::size_t>(row.first_position)]
               : ~input_records[static_cast<std::size_t>(order_[place])];
  });
  write_each(layout_.next_positions, count,
             [&](std::size_t place) { return row_at(place).first_position; });
  write(layout_.sample_rows, sample_rows.data(), count * kSampleRowWords);
  write(layout_.cu_seqlens, numbers_.data(), numbers_.size());
  for (std::size_t place = 0; place < count; ++place) {
    ++words_[layout_.next_positions + place];  // as the op will do on the device
  }
  num_rows_ = static_cast<int>(count);
  num_padded_ = num_padded;
}

std::int32_t* ResidentBatch::on_device(std::size_t at) const {
  return static_cast<std::int32_t*>(memory_.data()) + at;
}

const kernels::SampleRow* ResidentBatch::sample_rows() const {
  return reinterpret_cast<const kernels::SampleRow*>(on_device(layout_.sample_rows));
}

model::InputArrays ResidentBatch::advance(const kernels::SampleRecord* records) {
  kernels::step_batch(stream_, {.words = reinterpret_cast<std::uint32_t*>(on_device(0)),
                                .patches = uploaded_patches_,
                                .num_patches = static_cast<std::int64_t>(patches_.size()),
                                .tokens = on_device(layout_.tokens),
                                .next_positions = on_device(layout_.next_positions),
                                .block_tables = on_device(layout_.block_tables),
                                .table_stride = static_cast<std::int64_t>(layout_.table_stride),
                                .records = records,
                                .num_rows = num_rows_,
                                .num_padded = num_padded_,
                                .ids = on_device(layout_.ids),
                                .positions = on_device(layout_.positions),
                                .slots = on_device(layout_.slots)});
  return {.num_tokens = num_padded_,
          .num_sequences = num_padded_,
          .chunk_max = 1,
          .ids = on_device(layout_.ids),
          .positions = on_device(layout_.positions),
          .slots = on_device(layout_.slots),
          .cu_seqlens = on_device(layout_.cu_seqlens),
          .first_positions = on_device(layout_.positions),
          .block_offsets = on_device(layout_.block_offsets),
          .block_tables = on_device(layout_.block_tables),
          .table_stride = static_cast<std::int64_t>(layout_.table_stride),
          .logit_rows = on_device(layout_.cu_seqlens)};
}

}  // namespace lmtp::agent
