// From a StepPlan to the packed arrays that a model takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmtp/model/model_input.h"
#include "lmtp/scheduler/slot_table.h"
#include "lmtp/scheduler/step_plan.h"
#include "step_graphs.h"

namespace lmtp::agent {

// Fills `input`, reusing its memory. input_records: for each row of the plan the record of the step
// before that holds its last input token, which is ~record here; -1: it is known. REQUIRES: each
// row's tokens and blocks exist in its slot, num_tokens >= 1, 0 <= num_logits <= num_tokens.
void build_input(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots,
                 std::span<const std::int32_t> input_records, model::ModelInput& input);

// Pads an input to shape.num_tokens tokens, shape.num_rows sequences and shape.num_logits rows of
// logits, whose results are to be ignored: token 0 at position 0 of no sequence, written to the
// slots of block 0 in turn (so these are not distinct); sequences without tokens; and row 0.
// REQUIRES: it has no more; a device.
void pad_input(const StepShape& shape, model::ModelInput& input);

// Fills `copies` with the plan's block copies, as build_input() does for input.copies.
void build_copies(const scheduler::StepPlan& plan, std::vector<kernels::KvCopy>& copies);

}  // namespace lmtp::agent
