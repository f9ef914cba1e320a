#include "archs/archs.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::model {
namespace {

// Records the requested tensors; has no data.
class DescribingSource : public TensorSource {
 public:
  Result<SourceTensor> tensor(const TensorSpec& spec) override {
    if (names_.insert(spec.name).second) specs.push_back(spec);
    return SourceTensor{};
  }

  std::vector<TensorSpec> specs;

 private:
  std::set<std::string> names_;  // experts ask for parts of one tensor
};

}  // namespace

// Embedding models, rerankers and classifiers are made of these.
constexpr std::string_view kEncoders[] = {
    "albert",     "bert",        "camembert",        "deberta", "deberta-v2",
    "distilbert", "electra",     "eurobert",         "ernie",   "gte",
    "ibert",      "jina_bert",   "longformer",       "luke",    "modernbert",
    "mpnet",      "new",         "nomic_bert",       "roberta", "t5",
    "xlm",        "xlm-roberta", "xlm-roberta-flash"};
constexpr const char* kNoEncoders =
    "those are not computed here; give an embedding model that is made of a decoder "
    "(Qwen3-Embedding, e5-mistral), or serve this one with text-embeddings-inference or infinity";

Result<const Architecture*> find_architecture(const std::string& model_type) {
  std::string known;
  for (const Architecture* architecture : kArchitectures) {
    if (model_type == architecture->model_type) return architecture;
    known += known.empty() ? "" : ", ";
    known += architecture->model_type;
  }
  if (std::ranges::find(kEncoders, model_type) != std::end(kEncoders)) {
    return Error{ErrorCode::kInvalid,
                 "model_type '" + model_type +
                     "' is an encoder, in which tokens see later ones: " + kNoEncoders};
  }
  return Error{ErrorCode::kInvalid,
               "model_type '" + model_type + "' is not supported; supported are: " + known};
}

const Architecture* find_in_flat(const std::string& outer_model_type) {
  const auto* const found = std::ranges::find_if(kArchitectures, [&](const Architecture* one) {
    return one->flat_outer != nullptr && outer_model_type == one->flat_outer;
  });
  return found == std::end(kArchitectures) ? nullptr : *found;
}

Result<std::unique_ptr<CausalLM>> make_causal_lm(const ModelConfig& config, WeightLoader& weights,
                                                 const ModelSetup& setup) {
  const Shard shard = weights.shard();
  LMTP_CHECK(setup.communicator.shard() == shard, setup.communicator.shard().rank, shard.rank,
             setup.communicator.shard().count, shard.count);
  const auto architecture = find_architecture(config.model_type);
  if (!architecture.ok()) return architecture.error();
  const auto share = rank_config(config, shard.count);
  if (!share.ok()) return share.error();
  auto model = make_decoder(*share, weights, setup, (*architecture)->form(*share));
  if (weights.error().has_value()) return *weights.error();
  return model;
}

namespace {

// Requests all tensors; a list of the loader.
Result<std::vector<WeightStack>> request_all(const ModelConfig& config, TensorSource& source,
                                             const std::vector<WeightStack>& (WeightLoader::*list)()
                                                 const = &WeightLoader::linears) {
  kernels::WorkerPool pool(1);
  const auto store = make_host_store(pool, kernels::WeightType::kF32);
  WeightLoader loader(source, *store, 0, nullptr);
  SingleRank single;
  const auto model = make_causal_lm(config, loader, {.max_tokens = 1, .communicator = single});
  if (!model.ok()) return model.error();
  return (loader.*list)();
}

}  // namespace

Result<void> request_tensors(const ModelConfig& config, TensorSource& source) {
  const auto asked = request_all(config, source);
  return asked.ok() ? Result<void>() : Result<void>(asked.error());
}

Result<std::vector<WeightStack>> describe_linears(const ModelConfig& config) {
  DescribingSource source;
  return request_all(config, source);
}

Result<std::vector<WeightStack>> describe_divided(const ModelConfig& config) {
  DescribingSource source;
  return request_all(config, source, &WeightLoader::divided);
}

Result<std::vector<TensorSpec>> describe_tensors(const ModelConfig& config) {
  DescribingSource source;
  if (const auto asked = request_tensors(config, source); !asked.ok()) return asked.error();
  return std::move(source.specs);
}

}  // namespace lmtp::model
