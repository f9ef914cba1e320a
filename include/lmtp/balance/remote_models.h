// RemoteModels: the models of a server that computes nothing itself: its streams go to workers,
// other servers of one and the same model (docs/scaling.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/client/client.h"
#include "lmtp/registry/loaded_texts.h"
#include "lmtp/registry/models.h"

namespace lmtp::balance {

inline constexpr std::size_t kWorkersMax = 256;
// Known prefixes, of kBlockSize tokens each beyond the one before.
inline constexpr std::size_t kAffinitiesMax = 1'000'000;
// Workers that a stream may lose in a row without a token in between: it might be the cause.
inline constexpr int kFailedMovesMax = 16;
// Of messages that wait to be sent to a worker, in tokens; beyond it, it counts as overloaded. Each
// counts as kMessageTokens and those of its prompt.
inline constexpr std::size_t kOutboxTokensMax = std::size_t{16} << 20;
inline constexpr std::size_t kMessageTokens = 64;
inline constexpr int kLinksMax = 1024;  // connections to all workers together, a thread each

// How a worker is chosen for a stream.
enum class Policy {
  kPrefix,     // the one that has seen its beginning, unless that has too much to do; else as below
  kLeastConn,  // the one with the fewest streams
  kRandom,
};

struct WorkerAddress {
  std::string host;  // as client::Client takes it
  std::uint16_t port = 0;

  std::string name() const;
};

// "HOST:PORT", "[ADDRESS]:PORT" or "unix:PATH".
Result<WorkerAddress> parse_worker_address(const std::string& text);

struct BalanceOptions {
  // [1, kWorkersMax], distinct; `connections` to each are kLinksMax at most together
  std::vector<WorkerAddress> workers;
  client::Security security = {};  // of the connections to them
  Policy policy = Policy::kPrefix;
  int affinity_tokens = 2048;       // of a stream's beginning that are looked at; >= 0
  double balance_factor = 1.25;     // a worker may have so much more to do than the mean; >= 1
  int worker_timeout_ms = 10'000;   // how long a stream waits while no worker can take it; > 0
  int connections = 4;              // to each worker: clients share them out; [1, kLinksMax]
  int stall_timeout_ms = 300'000;   // a worker that has streams and computes no step; 0: never
  std::size_t max_requests = 1024;  // held at a time; more are refused; > 0
  // MODEL_INFO is asked for so often, > 0; a worker that says nothing for silence_timeout_ms, which
  // is no less, is down.
  int health_interval_ms = 2'000;
  int silence_timeout_ms = 6'500;
  // A longer message of a worker ends the connection. > 0; no less than its --max-write-queue.
  std::size_t message_bytes_max = std::size_t{16} << 20;
  // A worker that has sent nonsense or stood still is left alone for so long; >= 0.
  int shun_ms = 10'000;
};

// Owner: main. start(), set_texts(), stop() and destructor from one thread; the rest from any.
class RemoteModels final : public registry::Models {
 public:
  // Begins to connect. REQUIRES: what BalanceOptions says of its values.
  explicit RemoteModels(BalanceOptions options);
  ~RemoteModels() override;  // as stop(0)
  RemoteModels(const RemoteModels&) = delete;
  RemoteModels& operator=(const RemoteModels&) = delete;

  // Waits for at most wait_ms until all workers have been tried and one of them is ready: nullopt
  // where that takes longer. An error where two of them differ in what they serve, by both their
  // names, or where none answers for worker_timeout_ms. REQUIRES: it has not succeeded.
  std::optional<Result<void>> start(int wait_ms);

  // What texts, chats and grammars are read with; without them requests by token ids alone are
  // answered. REQUIRES: start() has succeeded; nothing was submitted.
  void set_texts(registry::LoadedTexts texts);

  registry::Submission submit(Request&& request) override;
  std::string lasting_name(const std::string& name) const override;
  registry::Submission submit_forks(std::vector<Request> forks) override;
  Result<void> backtrack(const std::string& model, Backtrack command) override;
  Result<void> check_access(const Account& account, const std::string& name) const override;
  registry::RefusalCounts& refusals() override;
  const registry::RefusalCounts& refusals() const override;
  std::optional<engine::ModelLimits> limits_of(const std::string& name) const override;
  std::optional<registry::ReadyModel> ready_model(const std::string& name) const override;
  std::optional<Result<registry::ModelStatus>> status(const std::string& name) const override;
  bool look_up(std::string name, std::function<void(Result<registry::ModelStatus>)> done) override;
  void load_adapter(AdapterSource source, std::string base, bool may_replace,
                    const AdapterDone& done) override;
  void unload_adapter(std::string name, const AdapterDone& done) override;
  std::vector<registry::ModelStatus> list() const override;
  bool is_auto() const override;
  const registry::ModelDescription& default_model() const override;
  bool healthy() const override;
  void stop(int grace_ms) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmtp::balance
