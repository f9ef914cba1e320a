// RankGroup: the ranks of a divided model, whatever carries their sums.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lmtp/base/result.h"
#include "lmtp/model/communicator.h"

namespace lmtp::model {

// What carries matrices from rank to rank. Sums are the ranks' own, in the same order with all of
// them, so that bits do not depend on it.
enum class Transport {
  kLocal,  // the memory of this process
  kGloo,   // c10d's gloo: connections through the loopback interface
  kNccl,   // NCCL, between CUDA devices
};

// "local", "gloo", "nccl".
const char* transport_name(Transport transport);

// Owner: who starts the ranks' threads; it outlives them.
class RankGroup {
 public:
  // The longest that a rank waits for the others in a sum.
  static constexpr std::chrono::milliseconds kTimeout = std::chrono::minutes(1);

  RankGroup() = default;
  virtual ~RankGroup() = default;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  virtual int count() const = 0;
  // Valid while this lives; each is its rank's.
  virtual Communicator& operator[](int rank) = 0;

  // Ends the group, for a rank that fails: the sums that wait for it, and all later ones, throw
  // RankError with the first reason that was given. Any thread.
  virtual void abort(const std::string& reason) = 0;
};

// timeout: of each sum. first_device: the driver's number of the first rank's device; -1: none has
// one. The error says why there is no such transport here, and what to do.
// REQUIRES: 1 <= count <= kRanksMax; NCCL's ranks have devices.
Result<std::unique_ptr<RankGroup>> make_rank_group(
    Transport transport, int count, std::chrono::milliseconds timeout = RankGroup::kTimeout,
    int first_device = -1);

// Whether there is one here: connects ranks, but for NCCL's, whose library is loaded and no more.
Result<void> check_transport(Transport transport, int count);

}  // namespace lmtp::model
