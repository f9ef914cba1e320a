// Encoder: the thread that encodes long texts, and decodes long lists of ids, which would hold up
// the other connections of an io thread.
#pragma once

#include <cstddef>

#include "lmtp/base/turn_worker.h"

namespace lmtp::server {

// A text of so many bytes takes up to 40 ms where it is one word, a few as a rule; ids of so many
// bytes take less.
inline constexpr std::size_t kEncodedAtOnceMax = std::size_t{64} << 10;
// Longer ones, and chats, that wait for their turn, in all and of one share.
inline constexpr std::size_t kEncodesMax = 1024;
inline constexpr std::size_t kEncodesOfOneMax = 768;

// One that sends many long texts holds up another's by one of them.
// Owner: the server's context.
class Encoder : public TurnWorker {
 public:
  Encoder() : TurnWorker(kEncodesMax, kEncodesOfOneMax) {}
};

}  // namespace lmtp::server
