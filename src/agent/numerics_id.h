// One short text for all that the bits of a model's results depend on.
#pragma once

#include <string>

#include "kernels/backend.h"
#include "lmtp/agent/agent_options.h"

namespace lmtp::agent {

// 16 hexadecimal digits. Equal ones mean equal bits; different ones say nothing. They are of the
// build (its sources and compiler), the C library's version, the types of weights, keys and values,
// the instruction set or the device, the number of ranks, and the model: its config, and of each
// file of weights its size and samples of its bytes. No name, path, number of threads or size of a
// cache is in them. `backend`: the one that computes.
std::string numerics_id(const AgentOptions& options, const kernels::Backend& backend);

// Of the sources that results depend on, and how they were compiled. CMakeLists.txt has it made.
extern const char* const kBuildHash;

}  // namespace lmtp::agent
