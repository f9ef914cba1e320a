// A ModelInput on its way to a device.
#pragma once

#include <cstddef>

#include "lmtp/model/model_input.h"
#include "staged_memory.h"

namespace lmtp::agent {

// What add_input() takes of an Upload.
std::size_t upload_size(const model::ModelInput& input);

// Where the arrays of an input are going to lie.
model::InputArrays add_input(const model::ModelInput& input, Upload& upload);

}  // namespace lmtp::agent
