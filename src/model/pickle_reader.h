// What torch.save writes of a state dict, read from its pickle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::model {

// A view of a storage, which is a record of the file. Nothing of it has been checked against the
// record.
struct PickledTensor {
  std::string name;
  std::string_view type;     // as safetensors calls it: "F32"; empty: one it does not know
  std::string_view storage;  // the record's name
  std::int64_t offset = 0;   // elements, in the storage
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // elements; as many as the shape has sizes
};

inline constexpr std::size_t kPickleDimensionsMax = 8;

// The tensors of a state dict, or of the one that lies under "state_dict" (and some other names)
// in a dictionary. Pickle protocols 2 to 5. A pickle is a program; this one makes dictionaries,
// lists, tuples and tensors, and calls nothing: one that asks for anything else is refused, with
// what it asked for. Time and memory are bounded by the pickle's size. The views are of `pickle`.
Result<std::vector<PickledTensor>> read_pickle(std::string_view pickle);

}  // namespace lmtp::model
