// Link: one connection to a worker, made again whenever it is lost.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lmtp/balance/remote_models.h"
#include "lmtp/base/result.h"
#include "lmtp/client/client.h"
#include "lmtp/protocol/message.h"

namespace lmtp::balance {

// Of the MODEL_INFOs that a link asks for; streams have others.
inline constexpr StreamId kInfoId = 0;

// Owner: the pool. Its own thread sends, receives and calls back, one call at a time and with no
// lock held.
class Link {
 public:
  struct Callbacks {
    // A MODEL_INFO: the first thing of a connection, and from then on every health_interval_ms, or
    // more often while it returns false: the model is not ready. An error is the end of the
    // connection.
    std::function<Result<bool>(const std::string& json)> on_info;
    // What came in one message, none of it of MODEL_INFO. An error is the end of the connection.
    std::function<Result<void>(std::vector<protocol::ServerEntry>& entries)> on_entries;
    // The connection is lost, or could not be made. What was to be sent is dropped.
    std::function<void(const Error& error)> on_lost;
  };

  // To workers[index] of the options.
  Link(const BalanceOptions& options, std::size_t index, Callbacks callbacks);
  ~Link();  // as stop()
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Queues it. False: too much waits already. Any thread; takes a lock of its own. REQUIRES: called
  // between on_info and on_lost.
  bool send(protocol::ClientMessage message, std::size_t num_tokens);
  // The connection is given up as soon as its thread sees it. Any thread.
  void drop(std::string reason);

  // Any thread but its own. begin_stop() does not wait; stop() joins the thread.
  void begin_stop();
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  struct Outgoing {
    protocol::ClientMessage message;
    std::size_t num_tokens = 0;
  };

  void run();
  Error serve();
  Result<void> send_queued();
  Result<void> ask_info();
  Result<void> take(const client::ReceivedMessage& message);

  const WorkerAddress address_;
  const client::Security security_;
  const std::chrono::milliseconds health_interval_;
  const int num_unanswered_max_;  // MODEL_INFOs
  const Callbacks callbacks_;
  client::Client client_;
  Clock::time_point next_info_;
  int num_unanswered_ = 0;  // MODEL_INFOs
  std::atomic<bool> stopping_ = false;

  std::mutex mutex_;
  std::deque<Outgoing> outbox_;
  std::size_t num_tokens_ = 0;  // of outbox_
  std::string drop_reason_;     // empty: none

  std::thread thread_;
};

}  // namespace lmtp::balance
