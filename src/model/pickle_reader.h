// Reads the pickle of a state dict that torch.save wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::model {

// A view of a storage, which is a record of the zip file. Not checked against the record's size.
struct PickledTensor {
  std::string name;
  std::string_view type;     // safetensors' name: "F32"; empty: a type that it does not have
  std::string_view storage;  // the record's name
  std::int64_t offset = 0;   // elements, in the storage
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // [shape.size()], in elements
};

inline constexpr std::size_t kPickleDimensionsMax = 8;

// The tensors of a state dict, or of the one under "state_dict" (and some other names) in a
// dictionary. Pickle protocols 2 to 5. A pickle is a program; this reader makes dictionaries,
// lists, tuples and tensors and calls nothing. A pickle that needs anything else is refused by its
// name. Time and memory are bounded by the pickle's size. The views are of `pickle`.
Result<std::vector<PickledTensor>> read_pickle(std::string_view pickle);

}  // namespace lmtp::model
