// Bytes as base64 (RFC 4648) and back; and a TokenMask: its bytes in order, the lowest bit of each
// first.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lmtp/request/sampling_params.h"

namespace lmtp::protocol {

// With padding or without. Nothing where `base64` is not that.
std::optional<std::string> decode_base64(std::string_view base64);

// With padding.
std::string encode_base64(std::string_view bytes);

// As decode_base64(). Null where `base64` is not that; the mask may allow nothing.
std::shared_ptr<TokenMask> decode_mask(std::string_view base64);

bool allows_any(const TokenMask& mask);

// With padding.
std::string encode_mask(const TokenMask& mask);

}  // namespace lmtp::protocol
