// Resumable: a request, what came of it, and the request for the rest. No sockets.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"

namespace lmtp::client {

// Owner: the call that runs the request.
class Resumable {
 public:
  // REQUIRES: a GENERATE that may be asked for again has a seed.
  explicit Resumable(protocol::GenerateMessage message);
  explicit Resumable(protocol::ScoreMessage message);
  explicit Resumable(protocol::DecideMessage message);

  // The messages that ask for what is missing, a stream each, with ids from `first_id` on.
  std::vector<protocol::ClientMessage> ask(StreamId first_id);

  // An entry of a stream that was asked for, and no error. False: it came before, and is not for
  // the caller. `entry` gets the index of its sample.
  bool take(protocol::ServerEntry& entry);
  // An error. True: it ended one of the samples that a controller has made, and no other.
  bool take_error(const protocol::ServerEntry& entry);

  // What came: tokens; of a controller's stream entries of any kind.
  std::size_t num_received() const;
  // Whether the rest can be asked for, of a stream of which something came.
  bool is_continued() const { return !controlled_; }  // what a controller would do, it alone knows
  // The first that take_error() has taken.
  std::optional<Error> error_of_sample() const;
  std::size_t num_samples() const { return samples_.size(); }
  bool finished() const;

 private:
  struct Sample {
    std::vector<TokenId> tokens;  // that came
    std::size_t num_skipped = 0;  // of them, how many come again
    bool finished = false;
  };

  // A controller forks its stream by itself, and says so in the first entry of the new sample.
  struct Controlled {
    std::set<int> live = {0};  // samples that have not ended
    std::size_t num_entries = 0;
    bool has_forked = false;
    std::optional<Error> error = {};
  };

  void take_controlled(const protocol::ServerEntry& entry);
  protocol::GenerateMessage rest_of(const protocol::GenerateMessage& whole, int index) const;
  protocol::ScoreMessage rest_of(const protocol::ScoreMessage& whole);
  void set_timeouts(protocol::StreamOptions& options) const;

  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  const std::variant<protocol::GenerateMessage, protocol::ScoreMessage, protocol::DecideMessage>
      whole_;
  std::vector<Sample> samples_;
  std::optional<Controlled> controlled_;  // none: it has no controller
  StreamId first_id_ = 0;
  std::vector<int> asked_;  // the sample of each stream; empty: one stream has them all
};

}  // namespace lmtp::client
