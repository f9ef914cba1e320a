// What an embedding is made of.
#pragma once

#include <cstdint>

namespace lmtp {

// A prompt's hidden states, after the model's final norm and before its head: the last token's, the
// first one's (cls), or the mean of all. kNone: no embedding.
enum class Pooling : std::uint8_t { kNone, kLast, kFirst, kMean };

}  // namespace lmtp
