// RetryingClient: requests that survive their server. What a lost stream still lacks is asked for
// again, so that in the end it has the bits of an uninterrupted one (docs/lmtp.md, "Exact retry").
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/client/client.h"
#include "lmtp/protocol/message.h"

namespace lmtp::client {

inline constexpr int kInfoTimeoutMs = 10'000;    // for the answer to MODEL_INFO
inline constexpr int kRetryAfterMsMax = 60'000;  // longer waits are cut to it

struct RetryOptions {
  int attempts = 1;          // tries in a row that bring nothing new; 1: nothing is asked again
  int backoff_ms_min = 100;  // before the second try; twice as much before each further one
  int backoff_ms_max = 5000;
  // Of the part of it that is waited, and of the seeds of requests that have none.
  std::uint64_t random_seed = std::random_device()();
};

class Resumable;

// Owner: the caller. All calls from one thread at a time, except client().interrupt(); no
// background thread. One request at a time.
class RetryingClient {
 public:
  struct Address {
    std::string host;  // as Client::connect takes it
    std::uint16_t port = 0;
    std::string model = {};  // that MODEL_INFO asks about
    Security security = {};
  };
  enum class Outcome { kFinished, kInterrupted };
  // Tokens and notices of the request, each once; `stream_id` is the one on the wire. Of a stream
  // with a controller also what has no token: its output, its forks, and the error of one sample of
  // several.
  using OnEntry = std::function<void(const protocol::ServerEntry&)>;

  RetryingClient(Address address, RetryOptions options);

  // Connects where no connection is open, and asks for MODEL_INFO without waiting for it.
  Result<void> connect();

  // Runs a request to its end. The message's stream id is not used. A connection that broke since
  // the last request is made again once, whatever the options. kInterrupted: by
  // client().interrupt(); the streams of live() go on until they are cancelled or the connection is
  // closed. With more than one attempt: a GENERATE without a seed gets one; entries wait until the
  // server has said its `numerics`, and a stream of which something came is given up where another
  // server's differ, or it gives none. With a controller it is always given up then. Samples that
  // it has forked end each by itself: the error of one is returned when all have ended.
  Result<Outcome> run(protocol::GenerateMessage message, const OnEntry& on_entry);
  Result<Outcome> run(protocol::ScoreMessage message, const OnEntry& on_entry);
  Result<Outcome> run(protocol::DecideMessage message, const OnEntry& on_entry);
  const std::vector<StreamId>& live() const { return live_; }

  // Uploads, names or lists controllers, and waits for the answer, JSON. The message's stream id
  // and model are not used. An error also where the server refuses, or the call is interrupted.
  Result<std::string> ask(protocol::ControllerMessage message);

  // Asks for MODEL_INFO again, and waits. An error also where the server refuses, says nothing, or
  // the call is interrupted.
  Result<std::string> ask_info();
  // The latest answer, JSON; nothing where none came yet.
  const std::optional<std::string>& info() const { return info_; }

  Client& client() { return client_; }
  const Client& client() const { return client_; }

 private:
  using Clock = std::chrono::steady_clock;
  // Why a try failed.
  struct Failure {
    Error error;
    bool retryable = false;
    int retry_after_ms = 0;
    bool is_stale = false;  // the connection had ended before the request
  };

  Result<Outcome> run(Resumable& request, const OnEntry& on_entry);
  // Nothing where it did not fail: `outcome` says how it ended.
  std::optional<Failure> attempt(Resumable& request, const OnEntry& on_entry, Outcome& outcome);
  std::optional<Failure> deliver(Resumable& request, const OnEntry& on_entry,
                                 std::vector<protocol::ServerEntry>& entries);
  std::optional<Failure> check_numerics(const Resumable& request);
  int backoff_ms(int num_failed, int retry_after_ms);
  Result<void> send_info_request();
  bool take_info(const protocol::ServerEntry& entry);

  const Address address_;
  const RetryOptions options_;
  Client client_;
  std::mt19937_64 random_;
  StreamId next_id_ = 1;
  std::vector<StreamId> live_;
  StreamId info_id_ = 0;  // of the MODEL_INFO in flight
  bool info_awaited_ = false;
  std::optional<std::string> info_;
  std::string info_error_;
  std::string numerics_;  // of the server that what came of the request is from
};

}  // namespace lmtp::client
