#include "batch_builder.h"

#include "lmtp/base/check.h"

namespace lmtp::agent {
namespace {

void clear(model::ModelInput& input) {
  input.ids.clear();
  input.positions.clear();
  for (auto& slots : input.slots) slots.clear();
  for (auto& starts : input.table_starts) starts.clear();
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
  LMTP_CHECK(num_blocks * input.num_groups <= static_cast<int>(state.blocks.size()), num_blocks,
             state.blocks.size());
  for (int position = row.first_position; position < end; ++position) {
    const auto at = static_cast<std::size_t>(position);
    if (position >= end - row.num_logits) {
      input.logit_rows.push_back(static_cast<std::int32_t>(input.ids.size()));
    }
    input.ids.push_back(at < num_known ? state.tokens[at] : ~input_record);
    input.positions.push_back(position);
  }
  input.cu_seqlens.push_back(static_cast<std::int32_t>(input.ids.size()));
  input.first_positions.push_back(row.first_position);
  input.block_offsets.push_back(input.block_offsets.back() + num_blocks);
}

// The blocks of a row in one group.
void add_blocks(const scheduler::PlanRow& row, const scheduler::SlotState& state, int group,
                model::ModelInput& input) {
  const auto at = static_cast<std::size_t>(group);
  const auto num_groups = static_cast<std::size_t>(input.num_groups);
  const auto block_of = [&](int position) {
    return state.blocks[static_cast<std::size_t>(position / kBlockSize) * num_groups + at];
  };
  const int end = row.first_position + row.num_tokens;
  for (int position = row.first_position; position < end; ++position) {
    input.slots[at].push_back(block_of(position) * kBlockSize + position % kBlockSize);
  }
  if (group > 0) {
    input.table_starts[at].push_back(static_cast<std::int32_t>(input.block_tables.size()));
  }
  if (input.num_groups == 1) {
    const std::int32_t num_blocks = (end + kBlockSize - 1) / kBlockSize;
    input.block_tables.insert(input.block_tables.end(), state.blocks.begin(),
                              state.blocks.begin() + num_blocks);
    return;
  }
  for (int position = 0; position < end; position += kBlockSize) {
    input.block_tables.push_back(block_of(position));
  }
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
  for (int group = 0; group < input.num_groups; ++group) {
    for (const scheduler::PlanRow& row : plan.rows) {
      add_blocks(row, slots.at(row.slot), group, input);
    }
  }
}

void pad_input(const StepShape& shape, model::ModelInput& input) {
  const auto rows = static_cast<std::size_t>(shape.num_rows);
  for (std::size_t group = 0; group < static_cast<std::size_t>(input.num_groups); ++group) {
    for (auto i = static_cast<std::int32_t>(input.num_tokens()); i < shape.num_tokens; ++i) {
      input.slots[group].push_back(i % kBlockSize);
    }
    if (group > 0) input.table_starts[group].resize(rows);
  }
  input.ids.resize(static_cast<std::size_t>(shape.num_tokens));
  input.positions.resize(input.ids.size());
  input.cu_seqlens.resize(rows + 1, input.cu_seqlens.back());
  input.first_positions.resize(rows);
  input.block_offsets.resize(rows + 1, input.block_offsets.back());
  input.logit_rows.resize(static_cast<std::size_t>(shape.num_logits));
}

}  // namespace lmtp::agent
