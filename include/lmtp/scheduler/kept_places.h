// KeptPlaces: where streams have ended that their clients may go on with, as LMQL's programs do: a
// chunk, then what it says about the next one.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>

#include "lmtp/base/ids.h"
#include "lmtp/base/runtime.h"

namespace lmtp::scheduler {

// Owner: a Scheduler; its thread. Takes no memory.
class KeptPlaces {
 public:
  using Clock = runtime::Clock;

  static constexpr std::chrono::milliseconds kKeptFor{50};
  static constexpr std::size_t kPlacesMax = 256;  // of all connections; the oldest goes

  // A stream with these tokens has ended, which were a prompt and what was generated.
  void keep(ConnectionId connection, int name_space, std::span<const TokenId> tokens,
            Clock::time_point now) {
    Place& place = places_[next_++ % kPlacesMax];
    place = {.connection = connection, .name_space = name_space, .num_tokens = tokens.size()};
    place.since = now;
    const auto tail = tokens.last(std::min(tokens.size(), kTailMax));
    std::ranges::copy(tail, place.tail.begin());
  }

  // Whether a prompt that comes `now` goes on with one of them. No other one then does.
  bool take(ConnectionId connection, int name_space, std::span<const TokenId> prompt,
            Clock::time_point now) {
    const std::size_t num_kept = std::min(next_, kPlacesMax);
    for (std::size_t i = 1; i <= num_kept; ++i) {
      Place& place = places_[(next_ - i) % kPlacesMax];
      if (now - place.since > kKeptFor) return false;
      if (place.connection != connection || place.name_space != name_space ||
          !place.begins(prompt)) {
        continue;
      }
      place.num_tokens = 0;
      return true;
    }
    return false;
  }

 private:
  // By so many of its last tokens, which stand where they stood, a prompt is told from others.
  static constexpr std::size_t kTailMax = 16;
  struct Place {
    ConnectionId connection = 0;
    int name_space = 0;
    std::size_t num_tokens = 0;  // 0: it was taken
    std::array<TokenId, kTailMax> tail{};
    Clock::time_point since = {};

    bool begins(std::span<const TokenId> prompt) const {
      if (num_tokens == 0 || prompt.size() < num_tokens) return false;
      const std::size_t count = std::min(num_tokens, kTailMax);
      return std::ranges::equal(prompt.subspan(num_tokens - count, count),
                                std::span(tail).first(count));
    }
  };

  std::array<Place, kPlacesMax> places_;
  std::size_t next_ = 0;  // of all that were kept
};

}  // namespace lmtp::scheduler
