// What this program needs of libtorch: c10d's gloo. It is half a gigabyte and takes a third of a
// second to load, so only a plugin links it, lib/lmtp/liblmtp_torch.so beside bin/, which is loaded
// on first use.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "lmtp/base/result.h"

namespace lmtp::libtorch {

// Ranks of this process that send each other bytes, by c10d's gloo, over connections through the
// loopback interface. Owner: who starts the ranks' threads; outlives them.
class GlooGroup {
 public:
  using Outgoing = std::span<const std::span<const std::byte>>;
  using Incoming = std::span<const std::span<std::byte>>;

  virtual ~GlooGroup() = default;
  // Sends outgoing[i] to rank i and receives incoming[i] of it, for all others than `rank`; returns
  // when all of it is done, and touches none of it later. After an error the group is at its end:
  // kUnavailable names a rank of which there was no sign in time; kCancelled says that a connection
  // has ended, which it does when another rank's exchange fails. Must not throw. Thread: that of
  // `rank`. REQUIRES: each rank makes the same calls in the same order, with sizes that match.
  virtual Result<void> exchange(int rank, Outgoing outgoing, Incoming incoming) = 0;
  // Ends the group: calls that wait, and all later ones, fail. Any thread. Must not throw.
  virtual void abort() = 0;
};

// Any thread, several at a time. Never unloaded.
class Library {
 public:
  virtual ~Library() = default;
  // Connects so many ranks, within a minute. timeout: of each exchange. The error says why they
  // cannot be connected.
  virtual Result<std::unique_ptr<GlooGroup>> make_gloo_group(
      int num_ranks, std::chrono::milliseconds timeout) const = 0;
};

// Loads the plugin if it is not loaded yet. The error says why it cannot be loaded, and what to do.
Result<const Library*> load();

}  // namespace lmtp::libtorch
