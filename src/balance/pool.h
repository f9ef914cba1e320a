// Pool: the workers, and the streams that they have.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "affinity.h"
#include "link.h"
#include "lmtp/balance/remote_models.h"
#include "lmtp/engine/engine_metrics.h"
#include "lmtp/registry/models.h"
#include "lmtp/registry/refusal_counts.h"
#include "lmtp/registry/stream_canceller.h"
#include "remote_stream.h"
#include "turn.h"
#include "worker_info.h"

namespace lmtp::balance {

struct Worker;

// A connection to a worker, with the streams that it has.
struct Lane {
  Worker* worker = nullptr;
  std::unique_ptr<Link> link;
  bool is_open = false;     // MODEL_INFO has come, and fits
  bool is_leaving = false;  // the worker takes no new streams
  std::string numerics;     // of the process at its other end; empty: not known
  std::chrono::steady_clock::time_point last_heard;
  std::unordered_map<StreamId, std::shared_ptr<RemoteStream>> streams;
  StreamId next_id = kInfoId + 1;
};

struct Worker {
  using Clock = std::chrono::steady_clock;

  std::size_t index = 0;
  std::string name;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::optional<WorkerInfo> info;  // the latest
  bool was_tried = false;
  std::string error;                                    // why it is not used; empty: it is
  std::chrono::steady_clock::time_point shunned_until;  // after it has sent nonsense
  engine::EngineStats past;                             // counters of its processes that have ended
  Clock::time_point worked;     // when it last sent a token or its steps rose, or had no stream
  std::int64_t num_tokens = 0;  // that its streams have still to compute, at most
  std::int64_t num_streams = 0;

  bool is_up() const;  // a lane is open, and it is ready
  // The lane whose MODEL_INFOs count for its stats: on several, an older one might come later.
  bool reports(const Lane& lane) const { return lanes.front().get() == &lane; }
};

// Owner: shared by RemoteModels and by connections that have streams here. Any thread, but start()
// and stop().
class Pool final : public registry::StreamCanceller {
 public:
  using Clock = std::chrono::steady_clock;

  Pool(BalanceOptions options, registry::RefusalCounts& refusals);
  ~Pool() override;

  void begin();
  std::optional<Result<void>> start(int wait_ms);
  void stop(int grace_ms);

  // Takes it, or says why not.
  std::optional<Error> submit(Request& request);
  void cancel(StreamKey key) override;

  bool is_stopping() const;
  bool is_ready() const;
  std::optional<engine::ModelLimits> limits() const;
  std::string model_name() const;
  bool has_adapter(const std::string& name) const;  // by what the workers have said last
  registry::ModelStatus status() const;

 private:
  using StreamPtr = std::shared_ptr<RemoteStream>;

  // Of links; their threads.
  Result<bool> on_info(Lane& lane, const std::string& json);
  Result<void> on_entries(Lane& lane, std::vector<protocol::ServerEntry>& entries);
  void on_lost(Lane& lane, const Error& error);
  void keep();  // of keeper_

  std::optional<Result<void>> outcome_of_start() const;
  void warn_of_differences(const Worker& worker);

  // Under the lock.
  void on_entry(Lane& lane, const StreamPtr& stream, protocol::ServerEntry& entry, Turn& turn);
  void on_notice(Lane& lane, RemoteStream& stream, const protocol::ServerEntry& entry, Turn& turn);
  void on_error(Lane& lane, const StreamPtr& stream, const protocol::ServerEntry& entry,
                Turn& turn);
  void on_token(Lane& lane, const StreamPtr& stream, protocol::ServerEntry& entry, Turn& turn);
  void close(Lane& lane, Turn& turn);
  bool place(const StreamPtr& stream, Turn& turn);
  bool send_to(Lane& lane, const StreamPtr& stream);
  void wait_for_worker(const StreamPtr& stream, Turn& turn);
  void place_waiting(Turn& turn);
  void detach(RemoteStream& stream);
  void end(const StreamPtr& stream, Turn& turn);
  void fail(const StreamPtr& stream, StreamError error, Turn& turn);
  void fail(const StreamPtr& stream, Error error, Turn& turn);
  static void cancel_there(const RemoteStream& stream);
  Error no_worker(const RemoteStream& stream) const;
  bool can_take(const Lane& lane) const;
  Lane& lane_of(const Worker& worker, const RemoteStream& stream) const;
  void expire(Turn& turn);
  void drop_silent(Turn& turn);
  void take_info(Lane& lane, WorkerInfo info);
  void shun(Worker& worker, const std::string& why);

  const BalanceOptions options_;
  registry::RefusalCounts& refusals_;
  const Clock::time_point began_ = Clock::now();

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // workers, streams, or stopping_
  bool stopping_ = false;
  bool ended_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::optional<engine::ModelLimits> limits_;  // from start() on
  std::string model_worker_;                   // whose these are
  registry::ModelDescription model_;           // as well
  AffinityTable affinities_{kAffinitiesMax};
  std::unordered_map<StreamKey, StreamPtr, StreamKeyHash> streams_;
  std::vector<StreamPtr> waiting_;                          // those without a lane
  std::unordered_map<ConnectionId, std::size_t> num_held_;  // streams by share; none has zero
  engine::EngineMetrics metrics_;                           // of requests, as clients see them
  std::mt19937_64 random_{std::random_device()()};
  std::thread keeper_;
};

}  // namespace lmtp::balance
