#include "batch_builder.h"

#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

void clear(model::ModelInput& input) {
  input.ids.clear();
  input.positions.clear();
  input.slots.clear();
  input.cu_seqlens.assign(1, 0);
  input.first_positions.clear();
  input.block_offsets.assign(1, 0);
  input.block_tables.clear();
  input.logit_rows.clear();
  input.copies.clear();
}

void add_row(const scheduler::PlanRow& row, model::ModelInput& input) {
  const scheduler::Sequence& sequence = *row.sequence;
  const int end = row.first_position + row.num_tokens;
  const int num_blocks = (end + kBlockSize - 1) / kBlockSize;
  const int num_unknown = row.follows >= 0 ? 1 : 0;
  LMTP_CHECK(row.first_position >= 0 && row.num_tokens >= 1 &&
                 end <= sequence.length() + num_unknown && row.num_logits >= 0 &&
                 row.num_logits <= row.num_tokens,
             row.first_position, row.num_tokens, row.num_logits, sequence.length());
  LMTP_CHECK(num_blocks <= static_cast<int>(sequence.blocks.size()), num_blocks,
             sequence.blocks.size());
  for (int position = row.first_position; position < end; ++position) {
    const BlockId block = sequence.blocks[static_cast<std::size_t>(position / kBlockSize)];
    if (position >= end - row.num_logits) {
      input.logit_rows.push_back(static_cast<std::int32_t>(input.ids.size()));
    }
    input.ids.push_back(
        position < sequence.length() ? sequence.tokens[static_cast<std::size_t>(position)] : 0);
    input.positions.push_back(position);
    input.slots.push_back(block * kBlockSize + position % kBlockSize);
  }
  input.cu_seqlens.push_back(static_cast<std::int32_t>(input.ids.size()));
  input.first_positions.push_back(row.first_position);
  input.block_tables.insert(input.block_tables.end(), sequence.blocks.begin(),
                            sequence.blocks.begin() + num_blocks);
  input.block_offsets.push_back(static_cast<std::int32_t>(input.block_tables.size()));
}

}  // namespace

void build_input(const scheduler::StepPlan& plan, model::ModelInput& input) {
  clear(input);
  for (const scheduler::BlockCopy& copy : plan.copies) {
    input.copies.push_back({.from = copy.from, .to = copy.to, .num_tokens = copy.num_tokens});
  }
  for (const scheduler::PlanRow& row : plan.rows) {
    add_row(row, input);
  }
}

void pad_decode_input(int num_rows, model::ModelInput& input) {
  LMTP_CHECK(input.logit_rows.size() == input.ids.size() &&
                 input.first_positions.size() == input.ids.size(),
             input.ids.size(), input.logit_rows.size(), input.first_positions.size());
  for (auto row = static_cast<std::int32_t>(input.ids.size()); row < num_rows; ++row) {
    input.logit_rows.push_back(row);
    input.ids.push_back(0);
    input.positions.push_back(0);
    input.slots.push_back(row % kBlockSize);
    input.cu_seqlens.push_back(row + 1);
    input.first_positions.push_back(0);
    input.block_tables.push_back(0);
    input.block_offsets.push_back(static_cast<std::int32_t>(input.block_tables.size()));
  }
}

}  // namespace lmtp::agent
