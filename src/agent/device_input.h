// Uploads a ModelInput to a device.
#pragma once

#include <cstddef>

#include "lmtp/model/model_input.h"
#include "staged_memory.h"

namespace lmtp::agent {

// Bytes that add_input() takes of an Upload.
std::size_t upload_size(const model::ModelInput& input);

// Adds the arrays of an input but for its ids, which the caller adds; returns where they will be on
// the device. What the kernels of a graph have the addresses of comes before all whose size is not
// of the step's shape.
model::InputArrays add_input(const model::ModelInput& input, Upload& upload);

}  // namespace lmtp::agent
