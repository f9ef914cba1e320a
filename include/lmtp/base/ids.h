// Identifiers that modules share. Plain integers: they are copied, compared and hashed in inner
// loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace lmtp {

using TokenId = std::int32_t;

// A stream's number as its client chose it; unique among the live streams of one connection.
using StreamId = std::int64_t;

// A connection's number as the server counts them; never reused while the process lives.
using ConnectionId = std::uint64_t;

// A sequence's number as the scheduler counts them; never reused; grows with age.
using SequenceId = std::uint64_t;

// A block of the paged KV cache. Block 0 is never handed out: padding rows write there.
using BlockId = std::int32_t;
inline constexpr BlockId kNullBlock = 0;
inline constexpr BlockId kNoBlock = -1;

// Tokens in one KV block.
inline constexpr int kBlockSize = 16;

// One sequence that a client asked for, in the whole process. A request for n samples has n of
// them, with one stream id.
struct StreamKey {
  ConnectionId connection = 0;
  StreamId stream = 0;
  int sample = 0;

  bool operator==(const StreamKey&) const = default;
};

struct StreamKeyHash {
  std::size_t operator()(const StreamKey& key) const {
    const std::size_t high = std::hash<ConnectionId>{}(key.connection);
    const auto low =
        static_cast<std::uint64_t>(key.stream) + (static_cast<std::uint64_t>(key.sample) << 40);
    return (high * 0x9E3779B97F4A7C15ULL) ^ std::hash<std::uint64_t>{}(low);
  }
};

}  // namespace lmtp
