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
}

void add_row(const scheduler::PlanRow& row, model::ModelInput& input) {
  const scheduler::Sequence& sequence = *row.sequence;
  const int end = row.first_position + row.num_tokens;
  const int num_blocks = (end + kBlockSize - 1) / kBlockSize;
  LMTP_CHECK(row.first_position >= 0 && row.num_tokens >= 1 && end <= sequence.length() &&
                 row.num_logits >= 0 && row.num_logits <= row.num_tokens,
             row.first_position, row.num_tokens, row.num_logits, sequence.length());
  LMTP_CHECK(num_blocks <= static_cast<int>(sequence.blocks.size()), num_blocks,
             sequence.blocks.size());
  for (int position = row.first_position; position < end; ++position) {
    const BlockId block = sequence.blocks[static_cast<std::size_t>(position / kBlockSize)];
    if (position >= end - row.num_logits) {
      input.logit_rows.push_back(static_cast<std::int32_t>(input.ids.size()));
    }
    input.ids.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
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

void build_copies(const scheduler::StepPlan& plan, std::vector<kernels::KvCopy>& copies) {
  copies.clear();
  for (const scheduler::BlockCopy& copy : plan.copies) {
    copies.push_back({.from = copy.from, .to = copy.to, .num_tokens = copy.num_tokens});
  }
}

void build_input(const scheduler::StepPlan& plan, model::ModelInput& input) {
  clear(input);
  build_copies(plan, input.copies);
  for (const scheduler::PlanRow& row : plan.rows) add_row(row, input);
}

}  // namespace lmtp::agent
