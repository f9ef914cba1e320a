#include "archs/archs.h"

#include <string>
#include <utility>
#include <vector>

namespace lmtp::model {
namespace {

// Records the requested tensors; has no data.
class DescribingSource : public TensorSource {
 public:
  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    specs.push_back(spec);
    return SourceTensor{};
  }

  std::vector<TensorSpec> specs;
};

}  // namespace

Result<const Architecture*> find_architecture(const std::string& model_type) {
  std::string known;
  for (const Architecture* architecture : kArchitectures) {
    if (model_type == architecture->model_type) return architecture;
    known += known.empty() ? "" : ", ";
    known += architecture->model_type;
  }
  return Error{ErrorCode::kInvalid,
               "model_type '" + model_type + "' is not supported; supported are: " + known};
}

Result<std::unique_ptr<CausalLM>> make_causal_lm(const ModelConfig& config, WeightLoader& weights,
                                                 int max_tokens) {
  const auto architecture = find_architecture(config.model_type);
  if (!architecture.ok()) return architecture.error();
  std::unique_ptr<CausalLM> model = (*architecture)->make(config, weights, max_tokens);
  if (weights.error().has_value()) return *weights.error();
  return model;
}

Result<void> request_tensors(const ModelConfig& config, TensorSource& source) {
  kernels::WorkerPool pool(1);
  const auto store = make_host_store(pool, kernels::WeightType::kF32);
  WeightLoader loader(source, *store, 0, nullptr);
  const auto model = make_causal_lm(config, loader, 1);
  return model.ok() ? Result<void>() : Result<void>(model.error());
}

Result<std::vector<TensorSpec>> describe_tensors(const ModelConfig& config) {
  DescribingSource source;
  if (const auto asked = request_tensors(config, source); !asked.ok()) return asked.error();
  return std::move(source.specs);
}

}  // namespace lmtp::model
