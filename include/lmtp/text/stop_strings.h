// Stop strings, found in a text that comes in pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmtp::text {

// The stop strings of a request, made ready for matching. Immutable and shared by its samples, and
// by what ends a stream and what cuts its text; any thread.
class StopStrings {
 public:
  // REQUIRES: none is empty; each has fewer than 64 Ki bytes.
  explicit StopStrings(std::vector<std::string> strings);

  std::size_t size() const { return stops_.size(); }
  const std::string& operator[](std::size_t which) const { return stops_[which].bytes; }
  // Whether one of them is this very text.
  bool has(std::string_view text) const {
    return std::ranges::find(stops_, text, &Stop::bytes) != stops_.end();
  }

 private:
  friend class StopMatcher;
  struct Stop {
    std::string bytes;
    // By the number of bytes that match: how many still do where the next one does not, or where
    // all matched.
    std::vector<std::uint16_t> fallback;  // [bytes.size() + 1]
  };
  std::vector<Stop> stops_;
};

// Looks for all of them at once: Knuth, Morris and Pratt for each, a few steps a byte.
// Owner: one stream; one thread.
class StopMatcher {
 public:
  explicit StopMatcher(std::shared_ptr<const StopStrings> stops)
      : stops_(std::move(stops)), num_matched_(stops_->size(), 0) {}

  struct Match {
    std::size_t end = 0;    // in the piece: the byte behind the stop string
    std::size_t which = 0;  // in the StopStrings
  };
  // Looks through the text's next piece for the stop string that ends first; of several that end
  // together, the longest. What is found while `may_stop` is false is passed over. Behind a match
  // the text has not been looked at.
  std::optional<Match> push(std::string_view piece, bool may_stop);

  // How many of the text's last bytes may be the beginning of a stop string.
  std::size_t num_held() const;

  const StopStrings& stops() const { return *stops_; }

 private:
  std::shared_ptr<const StopStrings> stops_;
  std::vector<std::uint16_t> num_matched_;  // of each string's bytes
};

}  // namespace lmtp::text
