// TurnQueue<T>: what waits for a worker or a few, of which shares take turns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "lmtp/base/ids.h"

namespace lmtp {

// A share is that of a key, or of a connection where there are no keys (share_of()). One that has
// one thing to be done waits for one of each other share, however many of these wait; within a
// share the order is kept. Bounded, in all and of one share, so that there is a place for others.
// Owner: whoever guards it by a mutex.
template <typename T>
class TurnQueue {
 public:
  TurnQueue(std::size_t max_all, std::size_t max_of_one)
      : max_all_(max_all), max_of_one_(max_of_one) {}

  bool empty() const { return turns_.empty(); }
  std::size_t size() const { return size_; }
  std::size_t size_of(ConnectionId share) const {
    const auto line = lines_.find(share);
    return line == lines_.end() ? 0 : line->second.size();
  }
  bool has_room(ConnectionId share) const {
    return size_ < max_all_ && size_of(share) < max_of_one_;
  }

  // False where there is no room; `item` is then left as it was.
  bool push(ConnectionId share, T&& item) {
    if (!has_room(share)) return false;
    std::deque<T>& line = lines_[share];
    line.push_back(std::move(item));
    ++size_;
    if (line.size() == 1) turns_.push_back(share);
    return true;
  }

  // The next one, of the shares for which `may` holds; nothing where there is none.
  template <typename May>
  std::optional<T> pop_if(const May& may) {
    const auto turn = std::ranges::find_if(turns_, may);
    if (turn == turns_.end()) return std::nullopt;
    const auto line = lines_.find(*turn);
    std::optional<T> item(std::move(line->second.front()));
    line->second.pop_front();
    --size_;
    if (line->second.empty()) {
      lines_.erase(line);
      turns_.erase(turn);
    } else {
      turns_.splice(turns_.end(), turns_, turn);
    }
    return item;
  }
  std::optional<T> pop() {
    return pop_if([](ConnectionId) { return true; });
  }

  // Removes one, wherever it is.
  void erase(ConnectionId share, const T& item) {
    const auto line = lines_.find(share);
    if (line == lines_.end()) return;
    size_ -= std::erase(line->second, item);
    if (!line->second.empty()) return;
    lines_.erase(line);
    turns_.remove(share);
  }

 private:
  const std::size_t max_all_;
  const std::size_t max_of_one_;
  std::size_t size_ = 0;
  std::map<ConnectionId, std::deque<T>> lines_;  // none is empty
  std::list<ConnectionId> turns_;                // the share of each line, the next one first
};

}  // namespace lmtp
