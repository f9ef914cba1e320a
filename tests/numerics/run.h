// Runs a configuration, and each of its streams alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "batch_mates.h"
#include "grid.h"
#include "kernels/backend.h"
#include "lmtp/base/result.h"
#include "lmtp/hub/model_source.h"
#include "lmtp/model/model_config.h"
#include "streams.h"

namespace lmtp::numerics {

using KvType = std::optional<kernels::ElementType>;  // none: by the weights

struct RunOptions {
  std::uint64_t seed = 0;
  const kernels::Backend* backend = nullptr;
  std::optional<int> cuda_device = {};  // of the backend
};

// The result of one configuration.
struct ConfigurationResult {
  BatchReport report;
  std::vector<std::string> differences;  // [batch]: empty, or how the stream differs from itself
  std::string not_so;  // the condition of the configuration that was not met; empty: all were

  int num_differing() const {
    return static_cast<int>(
        std::ranges::count_if(differences, [](const auto& d) { return !d.empty(); }));
  }
};

// The models of a grid, their batches, and the results of each stream alone in a fresh engine,
// which are computed once. One thread.
class Runner {
 public:
  explicit Runner(RunOptions options) : options_(options) {}

  // Makes a model known by the value that the axis "model" has for it: as `lmtp-serve MODEL`.
  Result<void> add_model(const std::string& name);

  Result<ConfigurationResult> run(const Configuration& configuration);

  int num_references() const { return static_cast<int>(references_.size()); }

 private:
  struct Model {
    ModelSource source;
    model::ModelConfig config;
    StreamLimits limits;
    // By types, also of the cache, whose blocks differ in size.
    std::map<std::pair<kernels::WeightType, KvType>, std::vector<std::shared_ptr<const Adapter>>>
        adapters = {};
  };
  struct Setting {
    kernels::WeightType dtype = kernels::WeightType::kF32;
    KvType kv_type = {};
    int num_threads = 1;
    int num_ranks = 1;
    int chunk = 0;  // 0: no limit
    int num_blocks = 0;
    int batched_tokens = 512;
    int max_drafts = 0;
    Edits edits = Edits::kNone;
    bool as_served = true;  // on a device: with CUDA graphs and steps started ahead
  };

  // With a KV cache of that size; see count_blocks.
  Result<ConfigurationResult> run(const Configuration& configuration, double share, int attempt);
  // The same for every configuration of one model and batch size.
  std::uint64_t batch_seed(int batch) const {
    return options_.seed * 1000 + static_cast<std::uint64_t>(batch);
  }
  std::vector<Phase> make_phases(const Configuration& configuration, const Model& model,
                                 const std::vector<Request>& batch, int attempt) const;
  Result<BatchReport> run_phases(const Model& model, const Setting& setting,
                                 std::vector<Phase> phases) const;
  // Gives the streams of a batch their adapters. Returns the blocks that these take.
  Result<int> give_adapters(Model& model, const Configuration& configuration,
                            std::vector<Request>& batch);
  Result<const StreamOutcome*> alone(const Configuration& configuration, const Model& model,
                                     const Request& request, int index);

  const RunOptions options_;
  std::map<std::string, Model> models_;
  // By model, types, ranks, batch size, whether one alone scores, index, and the adapter's name.
  std::map<std::tuple<std::string, kernels::WeightType, KvType, int, int, bool, int, std::string>,
           StreamOutcome>
      references_;
};

}  // namespace lmtp::numerics
