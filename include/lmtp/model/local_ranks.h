// LocalRanks: ranks that are threads of this process. They sum in host memory, to which matrices of
// devices are copied.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/model/rank_group.h"

namespace lmtp::model {

class LocalRanks : public RankGroup {
 public:
  // REQUIRES: 1 <= count <= kRanksMax.
  explicit LocalRanks(int count, std::chrono::milliseconds timeout = kTimeout);
  ~LocalRanks() override;

  int count() const override { return static_cast<int>(ranks_.size()); }
  Communicator& operator[](int rank) override { return *ranks_[static_cast<std::size_t>(rank)]; }
  void abort(const std::string& reason) override;

 private:
  class Meeting;
  class Rank;

  std::unique_ptr<Meeting> meeting_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace lmtp::model
