// LocalRanks: ranks that are threads of this process. They sum in host memory, to which matrices of
// devices are copied.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/model/communicator.h"

namespace lmtp::model {

// Owner: who starts the ranks' threads; it outlives them.
class LocalRanks {
 public:
  // The longest that a rank waits for the others in a sum.
  static constexpr std::chrono::milliseconds kTimeout = std::chrono::minutes(1);

  // REQUIRES: 1 <= count <= kRanksMax.
  explicit LocalRanks(int count, std::chrono::milliseconds timeout = kTimeout);
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  int count() const { return static_cast<int>(ranks_.size()); }
  // Valid while this lives; each is its rank's.
  Communicator& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  // Ends the group, for a rank that fails: the sums that wait for it, and all later ones, throw
  // RankError with the first reason that was given. Any thread.
  void abort(const std::string& reason);

 private:
  class Meeting;
  class Rank;

  std::unique_ptr<Meeting> meeting_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace lmtp::model
