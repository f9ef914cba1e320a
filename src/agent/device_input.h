// A ModelInput on its way to a device.
#pragma once

#include <cstddef>

#include "lmtp/model/model_input.h"
#include "staged_memory.h"

namespace lmtp::agent {

// What add_input() takes of an Upload.
std::size_t upload_size(const model::ModelInput& input);

// Where the arrays of an input are going to lie.
struct UploadedInput {
  model::InputArrays arrays;
  std::int32_t* ids = nullptr;  // those of `arrays`, to be written
};

// REQUIRES: nothing has been added before. Arrays whose ops are captured lie where they lay for any
// input with as many tokens, sequences and logit rows, as long as upload.num_moves() stays.
UploadedInput add_input(const model::ModelInput& input, Upload& upload);

}  // namespace lmtp::agent
