#include "device_input.h"

namespace lmtp::agent {

std::size_t upload_size(const model::ModelInput& input) {
  std::size_t of_groups = 0;
  for (std::size_t group = 0; group < static_cast<std::size_t>(input.num_groups); ++group) {
    of_groups += Upload::size_of(input.slots[group]) + Upload::size_of(input.table_starts[group]);
  }
  return Upload::size_of(input.positions) + of_groups + Upload::size_of(input.cu_seqlens) +
         Upload::size_of(input.first_positions) + Upload::size_of(input.block_offsets) +
         Upload::size_of(input.logit_rows) + Upload::size_of(input.block_tables) +
         Upload::size_of(input.copies);
}

model::InputArrays add_input(const model::ModelInput& input, Upload& upload) {
  model::InputArrays arrays = model::arrays_of(input);
  arrays.ids = nullptr;
  arrays.positions = upload.add(input.positions);
  const auto num_groups = static_cast<std::size_t>(input.num_groups);
  for (std::size_t group = 0; group < num_groups; ++group) {
    arrays.groups[group].slots = upload.add(input.slots[group]);
  }
  arrays.cu_seqlens = upload.add(input.cu_seqlens);
  arrays.first_positions = upload.add(input.first_positions);
  arrays.block_offsets = upload.add(input.block_offsets);
  arrays.groups[0].table_starts = arrays.block_offsets;
  for (std::size_t group = 1; group < num_groups; ++group) {
    arrays.groups[group].table_starts = upload.add(input.table_starts[group]);
  }
  arrays.logit_rows = upload.add(input.logit_rows);
  const std::int32_t* const tables = upload.add(input.block_tables);
  for (std::size_t group = 0; group < num_groups; ++group) arrays.groups[group].tables = tables;
  arrays.copies = upload.add(input.copies);
  return arrays;
}

}  // namespace lmtp::agent
