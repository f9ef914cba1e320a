// Uploads a ModelInput to a device.
#pragma once

#include <cstddef>

#include "lmtp/model/model_input.h"
#include "staged_memory.h"

namespace lmtp::agent {

// Bytes that add_input() takes of an Upload.
std::size_t upload_size(const model::ModelInput& input);

// Adds the arrays of an input; returns where they will be on the device.
model::InputArrays add_input(const model::ModelInput& input, Upload& upload);

}  // namespace lmtp::agent
