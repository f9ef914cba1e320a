// Some of a request's sampling parameters, for what goes on with others.
#pragma once

#include <bitset>

#include "lmtp/request/sampling_params.h"
#include "lmtp/request/sampling_table.h"

namespace lmtp {

struct SamplingChanges {
  SamplingParams values;
  std::bitset<kSamplingTable.size()> given;  // which of them, in the table's order

  // Sets those that are given.
  void apply(SamplingParams& params) const;
};

}  // namespace lmtp
