// Why a tensor's type is not read.
#pragma once

#include <cstdint>
#include <string>

#include "lmtp/gguf/gguf_file.h"

namespace lmtp::gguf {

// What follows a tensor's name in the error. REQUIRES: `id` is no type that can_dequantize(). Any
// thread.
std::string type_refusal(std::uint32_t id);

}  // namespace lmtp::gguf
