#include "lmtp/text/stop_strings.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::text {

StopStrings::StopStrings(std::vector<std::string> strings) {
  stops_.reserve(strings.size());
  for (std::string& bytes : strings) {
    LMTP_CHECK(!bytes.empty());
    LMTP_CHECK(bytes.size() < std::numeric_limits<std::uint16_t>::max(), bytes.size());
    std::vector<std::uint16_t> fallback(bytes.size() + 1, 0);
    std::uint16_t matched = 0;
    for (std::size_t i = 1; i < bytes.size(); ++i) {
      while (matched > 0 && bytes[i] != bytes[matched]) matched = fallback[matched];
      if (bytes[i] == bytes[matched]) ++matched;
      fallback[i + 1] = matched;
    }
    stops_.push_back({std::move(bytes), std::move(fallback)});
  }
}

std::optional<StopMatcher::Match> StopMatcher::push(std::string_view piece, bool may_stop) {
  for (std::size_t i = 0; i < piece.size(); ++i) {
    std::optional<Match> found;
    for (std::size_t which = 0; which < num_matched_.size(); ++which) {
      const StopStrings::Stop& stop = stops_->stops_[which];
      std::uint16_t& matched = num_matched_[which];
      while (matched > 0 && piece[i] != stop.bytes[matched]) matched = stop.fallback[matched];
      if (piece[i] == stop.bytes[matched]) ++matched;
      if (matched < stop.bytes.size()) continue;
      matched = stop.fallback[matched];
      const bool is_longest = !found || stop.bytes.size() > (*stops_)[found->which].size();
      if (is_longest) found = Match{i + 1, which};
    }
    if (found && may_stop) return found;
  }
  return std::nullopt;
}

std::size_t StopMatcher::num_held() const {
  if (num_matched_.empty()) return 0;
  return *std::max_element(num_matched_.begin(), num_matched_.end());
}

}  // namespace lmtp::text
