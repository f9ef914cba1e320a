// Resumable: a request, what came of it, and the request for the rest. No sockets.
#pragma once

#include <chrono>
#include <cstddef>
#include <variant>
#include <vector>

#include "lmtp/protocol/message.h"

namespace lmtp::client {

// Owner: the call that runs the request.
class Resumable {
 public:
  // REQUIRES: a GENERATE that may be asked for again has a seed.
  explicit Resumable(protocol::GenerateMessage message);
  explicit Resumable(protocol::ScoreMessage message);

  // The messages that ask for what is missing, a stream each, with ids from `first_id` on.
  std::vector<protocol::ClientMessage> ask(StreamId first_id);

  // A token of a stream that was asked for. False: it came before, and is not for the caller.
  // `entry` gets the index of its sample.
  bool take(protocol::ServerEntry& entry);

  std::size_t num_received() const;
  std::size_t num_samples() const { return samples_.size(); }
  bool finished() const;

 private:
  struct Sample {
    std::vector<TokenId> tokens;  // that came
    std::size_t num_skipped = 0;  // of them, how many come again
    bool finished = false;
  };

  protocol::GenerateMessage rest_of(const protocol::GenerateMessage& whole, int index) const;
  protocol::ScoreMessage rest_of(const protocol::ScoreMessage& whole);
  void set_timeouts(protocol::StreamOptions& options) const;

  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  const std::variant<protocol::GenerateMessage, protocol::ScoreMessage> whole_;
  std::vector<Sample> samples_;
  StreamId first_id_ = 0;
  std::vector<int> asked_;  // the sample of each stream; empty: one stream has them all
};

}  // namespace lmtp::client
