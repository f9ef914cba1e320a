// Which codes a GGUF file's matrices are packed as.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/grouping.h"
#include "kernels/linear.h"
#include "lmtp/gguf/gguf_file.h"

namespace lmtp::model {

// Those of the tensor's type; where it is packed as one with tensors of other types (queries, keys
// and values, gate and up), what holds the codes of all of them: bytes in groups of 16. Empty: it
// is no matrix of codes.
std::optional<kernels::Grouping> gguf_grouping(const gguf::GgufFile& file,
                                               const gguf::Tensor& tensor);

// Puts the codes of one row, as its blocks lie in the file, to where `to` begins. False: a scale is
// no finite number. REQUIRES: `grouping` is gguf_grouping()'s, but it may have offsets.
bool unpack_row(const gguf::Tensor& tensor, const kernels::Grouping& grouping, const void* blocks,
                const kernels::CodePiece& to);

}  // namespace lmtp::model
