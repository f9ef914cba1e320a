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

void add_row(const scheduler::PlanRow& row, const scheduler::SlotState& state,
             std::int32_t input_record, model::ModelInput& input) {
  const int end = row.first_position + row.num_tokens;
  const int num_blocks = (end + kBlockSize - 1) / kBlockSize;
  const auto num_known = static_cast<std::size_t>(input_record < 0 ? end : end - 1);
  LMTP_CHECK(row.first_position >= 0 && row.num_tokens >= 1 && num_known <= state.tokens.size() &&
                 row.num_logits >= 0 && row.num_logits <= row.num_tokens,
             row.first_position, row.num_tokens, row.num_logits, state.tokens.size());
  LMTP_CHECK(num_blocks <= static_cast<int>(state.blocks.size()), num_blocks, state.blocks.size());
  for (int position = row.first_position; position < end; ++position) {
    const auto at = static_cast<std::size_t>(position);
    const BlockId block = state.blocks[at / kBlockSize];
    if (position >= end - row.num_logits) {
      input.logit_rows.push_back(static_cast<std::int32_t>(input.ids.size()));
    }
    input.ids.push_back(at < num_known ? state.tokens[at] : ~input_record);
    input.positions.push_back(position);
    input.slots.push_back(block * kBlockSize + position % kBlockSize);
  }
  input.cu_seqlens.push_back(static_cast<std::int32_t>(input.ids.size()));
  input.first_positions.push_back(row.first_position);
  input.block_tables.insert(input.block_tables.end(), state.blocks.begin(),
                            state.blocks.begin() + num_blocks);
  input.block_offsets.push_back(static_cast<std::int32_t>(input.block_tables.size()));
}

}  // namespace

void build_copies(const scheduler::StepPlan& plan, std::vector<kernels::KvCopy>& copies) {
  copies.clear();
  for (const scheduler::BlockCopy& copy : plan.copies) {
    copies.push_back({.from = copy.from, .to = copy.to, .num_tokens = copy.num_tokens});
  }
}

void build_input(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots,
                 std::span<const std::int32_t> input_records, model::ModelInput& input) {
  clear(input);
  build_copies(plan, input.copies);
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    add_row(plan.rows[i], slots.at(plan.rows[i].slot), input_records[i], input);
  }
}

void pad_input(const StepShape& shape, model::ModelInput& input) {
  const auto rows = static_cast<std::size_t>(shape.num_rows);
  for (auto i = static_cast<std::int32_t>(input.num_tokens()); i < shape.num_tokens; ++i) {
    input.slots.push_back(i % kBlockSize);
  }
  input.ids.resize(static_cast<std::size_t>(shape.num_tokens));
  input.positions.resize(input.ids.size());
  input.cu_seqlens.resize(rows + 1, input.cu_seqlens.back());
  input.first_positions.resize(rows);
  input.block_offsets.resize(rows + 1, input.block_offsets.back());
  input.logit_rows.resize(static_cast<std::size_t>(shape.num_logits));
}

}  // namespace lmtp::agent
