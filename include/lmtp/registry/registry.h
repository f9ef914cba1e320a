// Registry: from the name in a request to the engine that serves it. It loads models on demand,
// reports progress to the requests that wait, and unloads idle models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/batch_limits.h"
#include "lmtp/base/result.h"
#include "lmtp/registry/model_factory.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/request.h"

namespace lmtp::registry {

// Jobs at a time, each with a thread: of names that are looked up, and besides of models that are
// downloaded because they are not on this machine.
inline constexpr int kLoadersMax = 8;
inline constexpr int kFetchesMax = 8;
// Adapters that are read at a time by request.
inline constexpr int kAdapterJobsMax = 4;
// Names under which one loaded model is found at once; with others it is looked up anew each time.
inline constexpr std::size_t kNamesPerModelMax = 32;
// Failed loads whose reason MODEL_INFO still shows.
inline constexpr std::size_t kFailuresMax = 64;
// Tokens and biases of requests that wait for one model, in bytes.
inline constexpr std::size_t kWaitingBytesMax = std::size_t{128} << 20;
// How long a model waits for memory that models in use hold.
inline constexpr int kMemoryWaitMsMax = 60'000;
// Waiting streams get a notice of progress at most so often.
inline constexpr int kNoticeIntervalMs = 250;
// Where a model is downloaded first, the download is this many percent of the whole, and the
// loading is the rest.
inline constexpr int kDownloadShare = 90;

struct AutoOptions {
  int max_models = 3;                // loaded at a time
  std::int64_t unload_after_ms = 0;  // idle for so long: unloaded; 0: never
  // For one model; more are refused.
  std::size_t max_waiting_requests = kDefaultConcurrentRequests;
  std::int64_t memory_wait_ms = kMemoryWaitMsMax;  // for the models in use
  // For requests without a name while no model is loaded. If it has no name, they are refused.
  ModelDescription default_model = {};
};

// A static server's one model.
struct OnlyModel {
  std::string name;
  // Where there are any: the first is what clients are told, in the place of `name`, to which it
  // answers as well. `found` has them too (ServedModel::names).
  std::vector<std::string> served_names = {};
  std::optional<ServedModel> found;  // nothing: fetch() brings it
  std::size_t max_waiting_requests = kDefaultConcurrentRequests;
  // Called with the outcome of the loading, on the actor's thread; not where stopped before.
  std::function<void(const Result<void>&)> on_loaded;
  // Called with the reason, on the actor's thread, where the model does not come back after its
  // device was lost: there is nothing to serve from then on.
  std::function<void(const std::string& reason)> on_gone;
};

// Owner: main. Constructor, stop() and destructor from one thread; the rest from any.
class Registry final : public Models {
 public:
  // Serves whatever the factory knows; loads by request.
  Registry(std::unique_ptr<ModelFactory> factory, AutoOptions options);
  // Serves one model alone and begins to load it.
  Registry(std::unique_ptr<ModelFactory> factory, OnlyModel model);
  // As stop(0).
  ~Registry() override;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  Submission submit(Request&& request) override;
  std::string lasting_name(const std::string& name) const override;
  Submission submit_forks(std::vector<Request> forks) override;
  Result<void> backtrack(const std::string& model, Backtrack command) override;
  Result<void> check_access(const Account& account, const std::string& name) const override;
  RefusalCounts& refusals() override;
  const RefusalCounts& refusals() const override;
  std::optional<engine::ModelLimits> limits_of(const std::string& name) const override;
  std::optional<ReadyModel> ready_model(const std::string& name) const override;
  std::optional<Result<ModelStatus>> status(const std::string& name) const override;
  bool look_up(std::string name, std::function<void(Result<ModelStatus>)> done) override;
  void load_adapter(AdapterSource source, std::string base, bool may_replace,
                    const AdapterDone& done) override;
  void unload_adapter(std::string name, const AdapterDone& done) override;
  std::vector<ModelStatus> list() const override;
  bool is_auto() const override;
  const ModelDescription& default_model() const override;
  bool healthy() const override;
  void stop(int grace_ms) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmtp::registry
