#include "device_input.h"

namespace lmtp::agent {

std::size_t upload_size(const model::ModelInput& input) {
  return Upload::size_of(input.positions) + Upload::size_of(input.slots) +
         Upload::size_of(input.cu_seqlens) + Upload::size_of(input.first_positions) +
         Upload::size_of(input.block_offsets) + Upload::size_of(input.logit_rows) +
         Upload::size_of(input.block_tables) + Upload::size_of(input.copies);
}

model::InputArrays add_input(const model::ModelInput& input, Upload& upload) {
  model::InputArrays arrays = model::arrays_of(input);
  arrays.ids = nullptr;
  arrays.positions = upload.add(input.positions);
  arrays.slots = upload.add(input.slots);
  arrays.cu_seqlens = upload.add(input.cu_seqlens);
  arrays.first_positions = upload.add(input.first_positions);
  arrays.block_offsets = upload.add(input.block_offsets);
  arrays.table_starts = arrays.block_offsets;
  arrays.logit_rows = upload.add(input.logit_rows);
  arrays.block_tables = upload.add(input.block_tables);
  arrays.copies = upload.add(input.copies);
  return arrays;
}

}  // namespace lmtp::agent
