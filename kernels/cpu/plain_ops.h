// Ops in plain code for every instruction set: they take little of a step.
#pragma once

#include "kernels/backend.h"

namespace lmtp::kernels::plain {

std::size_t packed_bytes(WeightType type, std::int64_t n, std::int64_t k, const Grouping& grouping);
void pack(Stream& stream, const SourceWeight& source, const PackTarget& to);
void fill_random(Stream& stream, const FillRandomArgs& args);
void reserve(Stream& stream, const OpLimits& limits);
void rotary_angles(Stream& stream, const RotaryAnglesArgs& args);
// experts.cpp
void route(Stream& stream, const RouteArgs& args);
void expert_rows(Stream& stream, const ExpertRowsArgs& args);
void expert_linear(Stream& stream, const ExpertLinearArgs& args);
void step_batch(Stream& stream, const StepBatchArgs& args);
void drawn_ids(Stream& stream, const DrawnIdsArgs& args);

}  // namespace lmtp::kernels::plain
