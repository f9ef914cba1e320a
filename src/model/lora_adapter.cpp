#include "lmtp/model/lora_adapter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint_files.h"
#include "lmtp/model/causal_lm.h"
#include "lora_config.h"

namespace lmtp::model {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kA = ".lora_A.weight";
constexpr std::string_view kB = ".lora_B.weight";

// A delta, and where it comes from.
struct Source {
  std::string name;  // of the layer
  const TensorEntry* a = nullptr;
  const TensorEntry* b = nullptr;
  std::int64_t k = 0;
  float scale = 1.0F;
  const std::vector<std::int64_t>* permutation = nullptr;  // WeightStack's
};

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// A tensor that is not of the two kinds, by what it is.
std::string kind_of(const std::string& name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("lora_embedding_")) return "is of an adapter of embeddings, which is not served";
  if (has("lora_magnitude_vector")) return "is of DoRA, which is not served";
  if (name.ends_with(".lora_A.bias") || name.ends_with(".lora_B.bias")) {
    return "is a bias of the adapter, which is not served";
  }
  return "is no matrix of an adapter; weights that replace the model's own are not served";
}

class Reading {
 public:
  Reading(std::string folder, const ModelConfig& model, const LoraOptions& options)
      : folder_(std::move(folder)), model_(model), options_(options) {}

  Result<LoraWeights> read() {
    if (Result<void> ok = open(); !ok) return ok.error();
    for (std::size_t i = 0; i < linears_.size(); ++i) {
      weights_.first_delta.push_back(static_cast<std::int32_t>(weights_.deltas.size()));
      std::int64_t first_output = 0;
      for (const WeightPart& part : linears_[i].parts) {
        if (Result<void> ok = add(linears_[i], part, first_output); !ok) return ok.error();
        first_output += part.n();
      }
    }
    weights_.first_delta.push_back(static_cast<std::int32_t>(weights_.deltas.size()));
    if (Result<void> ok = check_rest(); !ok) return ok.error();
    return read_all();
  }

 private:
  Result<void> open() {
    auto config = LoraConfig::read(folder_ + "/adapter_config.json");
    if (!config) return config.error();
    config_ = *std::move(config);
    auto linears = describe_linears(model_);
    if (!linears) return linears.error();
    linears_ = *std::move(linears);
    std::string path = folder_ + "/adapter_model.safetensors";
    const std::string pickled = folder_ + "/adapter_model.bin";
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored) && std::filesystem::exists(pickled, ignored)) {
      path = pickled;
    }
    auto file = WeightsFile::open(path);
    if (!file) return file.error();
    file_ = *std::move(file);
    auto entries = path.ends_with(".bin") ? read_pickled(*file_) : read_safetensors(*file_);
    if (!entries) return entries.error();
    entries_ = *std::move(entries);
    settle_names();
    return check_targets();
  }

  // An adapter may be of a larger model, such as one with vision: its tensors for this one
  // get the names that it has alone, and those for other parts, which change no text, go.
  void settle_names() {
    for (const std::string_view inside : {"model.language_model.", "language_model.model."}) {
      const std::string outer = std::string(kPrefix) + std::string(inside);
      TensorEntries own;
      for (const auto& [name, entry] : entries_) {
        if (!name.starts_with(outer)) continue;
        own.emplace(std::string(kPrefix) + "model." + name.substr(outer.size()), entry);
      }
      if (own.empty()) continue;
      entries_ = std::move(own);
      return;
    }
  }

  Result<void> check_targets() const {
    std::vector<std::string> names;
    std::set<std::string> leaves;
    for (const WeightStack& linear : linears_) {
      for (const WeightPart& part : linear.parts) {
        names.push_back(part.name);
        leaves.insert(part.name.substr(part.name.rfind('.') + 1));
      }
    }
    const std::vector<std::string> unknown = config_.unknown_targets(names);
    if (unknown.empty()) return {};
    std::string allowed;
    for (const std::string& leaf : leaves) allowed += (allowed.empty() ? "" : ", ") + leaf;
    return Error{ErrorCode::kInvalid,
                 folder_ + "/adapter_config.json: target_modules: " + list_names(unknown) +
                     " is no linear layer of a " + model_.model_type +
                     " model's layers; allowed are " + allowed};
  }

  Error broken(const std::string& tensor, const std::string& what) const {
    return {ErrorCode::kInvalid, file_->path() + ": tensor '" + tensor + "': " + what};
  }
  std::string other_model() const {
    return config_.base().empty() ? "the adapter is of another model"
                                  : "the adapter is of '" + config_.base() + "'";
  }

  Result<const TensorEntry*> matrix(const std::string& name, std::int64_t rows,
                                    std::int64_t columns, const std::string& of) {
    const std::string tensor = std::string(kPrefix) + name + of;
    const auto found = entries_.find(tensor);
    if (found == entries_.end()) {
      return broken(tensor, "is missing, and target_modules names its layer");
    }
    seen_.insert(tensor);
    const TensorEntry& entry = found->second;
    if (entry.type != "F32" && entry.type != "F16" && entry.type != "BF16") {
      return broken(tensor, "its type is " + entry.type + "; allowed are F32, F16 and BF16");
    }
    const std::vector<std::int64_t> shape{rows, columns};
    if (entry.shape == shape) {
      const auto size = static_cast<std::uint64_t>(rows * columns * (entry.type == "F32" ? 4 : 2));
      if (entry.size == size) return &entry;
      return broken(tensor, "has " + std::to_string(entry.size) + " bytes, and by its shape " +
                                text_of(shape) + " and type " + std::to_string(size));
    }
    const bool is_rank =
        entry.shape.size() == 2 && entry.shape[of == kA ? 1 : 0] == shape[of == kA ? 1 : 0];
    return broken(tensor, "its shape is " + text_of(entry.shape) + ", and " +
                              (is_rank ? "by adapter_config.json's rank it is "
                                       : other_model() + ": this model's layer takes ") +
                              text_of(shape));
  }

  // The part's delta, where it has one.
  Result<void> add(const WeightStack& linear, const WeightPart& part, std::int64_t first_output) {
    const auto found = config_.find(part.name);
    if (!found) return found.error();
    if (!*found) return {};
    const int rank = (*found)->rank;
    if (rank > options_.rank_max) {
      return Error{ErrorCode::kInvalid,
                   folder_ + "/adapter_config.json: rank " + std::to_string(rank) + " of '" +
                       part.name + "': allowed are at most " + std::to_string(options_.rank_max) +
                       " (--max-lora-rank)"};
    }
    const auto a = matrix(part.name, rank, linear.k, std::string(kA));
    if (!a) return a.error();
    const auto b = matrix(part.name, part.n(), rank, std::string(kB));
    if (!b) return b.error();
    kernels::LoraDelta delta{.a = num_elements_,
                             .rank = rank,
                             .first_output = static_cast<int>(first_output),
                             .num_outputs = static_cast<int>(part.n())};
    delta.b = delta.a + kernels::lora_size(rank, linear.k);
    num_elements_ = delta.b + kernels::lora_size(rank, part.n());
    weights_.deltas.push_back(delta);
    sources_.push_back({.name = part.name,
                        .a = *a,
                        .b = *b,
                        .k = linear.k,
                        .scale = (*found)->scale * linear.scale,
                        .permutation = linear.permutation.empty() ? nullptr : &linear.permutation});
    return {};
  }

  Result<void> check_rest() const {
    for (const auto& [tensor, entry] : entries_) {
      if (seen_.contains(tensor)) continue;
      const bool is_matrix = tensor.ends_with(kA) || tensor.ends_with(kB);
      if (!is_matrix) return broken(tensor, kind_of(tensor));
      const std::string name =
          tensor.starts_with(kPrefix)
              ? tensor.substr(kPrefix.size(), tensor.size() - kPrefix.size() - kA.size())
              : tensor;
      const bool is_there = std::ranges::any_of(linears_, [&](const WeightStack& linear) {
        return std::ranges::find(linear.parts, name, &WeightPart::name) != linear.parts.end();
      });
      if (model_.experts.count > 0 && name.find(".experts") != std::string::npos) {
        return broken(tensor,
                      "adapters of experts are not served: only those of attention and of what is "
                      "dense are allowed");
      }
      return broken(tensor,
                    is_there ? "is there, and target_modules does not name its layer"
                             : "a " + model_.model_type +
                                   " model's layers have no such linear layer: " + other_model());
    }
    if (sources_.empty()) {
      return Error{ErrorCode::kInvalid, folder_ +
                                            "/adapter_config.json: target_modules: names no "
                                            "linear layer of this model: " +
                                            other_model()};
    }
    return {};
  }

  Result<std::vector<float>> values_of(const TensorEntry& entry) const {
    const auto type = entry.type == "F32"   ? kernels::ElementType::kF32
                      : entry.type == "F16" ? kernels::ElementType::kF16
                                            : kernels::ElementType::kBF16;
    std::vector<std::byte> bytes(entry.size);
    if (Result<void> done = file_->read(entry.begin, entry.size, bytes.data()); !done) {
      return done.error();
    }
    const std::int64_t count = entry.shape[0] * entry.shape[1];
    std::vector<float> values(static_cast<std::size_t>(count));
    kernels::convert_to_f32(bytes.data(), type, count, values.data());
    return values;
  }

  // False where it is not finite.
  bool put(std::int64_t at, float value) {
    if (!std::isfinite(value)) return false;
    if (weights_.type == kernels::ElementType::kF32) {
      reinterpret_cast<float*>(weights_.elements.data())[at] = value;
      return true;
    }
    auto bits = std::bit_cast<std::uint32_t>(value);
    bits += 0x7FFF + (bits >> 16 & 1);  // to the nearest, ties to even
    reinterpret_cast<std::uint16_t*>(weights_.elements.data())[at] =
        static_cast<std::uint16_t>(bits >> 16);
    return (bits >> 23 & 0xFF) != 0xFF;
  }

  Result<void> read_delta(const Source& source, const kernels::LoraDelta& delta) {
    constexpr std::int64_t kRanks = kernels::kLoraRanks;
    constexpr std::int64_t kLanes = kernels::kLoraLanes;
    const auto a = values_of(*source.a);
    if (!a) return a.error();
    const auto b = values_of(*source.b);
    if (!b) return b.error();
    const std::int64_t rank = delta.rank;
    bool is_finite = true;
    for (std::int64_t r = 0; r < rank; ++r) {
      for (std::int64_t k = 0; k < source.k; ++k) {
        const std::int64_t chunk = r / kRanks * kernels::lora_lane_groups(source.k) + k / kLanes;
        is_finite &= put(delta.a + chunk * kernels::kLoraChunk + r % kRanks * kLanes + k % kLanes,
                         (*a)[static_cast<std::size_t>(r * source.k + k)]);
      }
    }
    for (std::int64_t n = 0; n < delta.num_outputs; ++n) {
      // A permutation is of the whole stack, and leaves each part's rows in the part.
      const std::int64_t of_stack = delta.first_output + n;
      const std::int64_t row =
          source.permutation == nullptr
              ? n
              : (*source.permutation)[static_cast<std::size_t>(of_stack)] - delta.first_output;
      for (std::int64_t r = 0; r < rank; ++r) {
        const std::int64_t chunk = n / kLanes * kernels::lora_rank_groups(rank) + r / kRanks;
        is_finite &= put(delta.b + chunk * kernels::kLoraChunk + r % kRanks * kLanes + n % kLanes,
                         source.scale * (*b)[static_cast<std::size_t>(row * rank + r)]);
      }
    }
    if (is_finite) return {};
    return broken(std::string(kPrefix) + source.name + std::string(kB),
                  "it, or its lora_A, has numbers that are not finite");
  }

  Result<LoraWeights> read_all() {
    weights_.type = options_.type;
    const std::int64_t num_bytes = num_elements_ * kernels::element_size(options_.type);
    if (num_bytes > options_.bytes_max) {
      return Error{
          ErrorCode::kInvalid,
          folder_ + ": takes " + std::to_string(num_bytes) +
              " bytes of the KV cache, and beside a stream of the whole context there are " +
              std::to_string(std::max<std::int64_t>(0, options_.bytes_max)) +
              "; give a larger --kv-cache"};
    }
    weights_.elements.resize(static_cast<std::size_t>(num_bytes));
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (options_.goes_on && !options_.goes_on()) {
        return Error{ErrorCode::kStopping, folder_ + ": reading it was given up"};
      }
      if (Result<void> done = read_delta(sources_[i], weights_.deltas[i]); !done) {
        return done.error();
      }
    }
    if (Result<void> same = file_->check_unchanged(); !same) return same.error();
    return std::move(weights_);
  }

  const std::string folder_;
  const ModelConfig& model_;
  const LoraOptions options_;
  LoraConfig config_;
  std::vector<WeightStack> linears_;
  std::unique_ptr<WeightsFile> file_;
  TensorEntries entries_;
  std::set<std::string> seen_;
  std::int64_t num_elements_ = 0;
  std::vector<Source> sources_;
  LoraWeights weights_;
};

}  // namespace

Result<LoraWeights> read_lora(const std::string& folder, const ModelConfig& config,
                              const LoraOptions& options) {
  return Reading(folder, config, options).read();
}

}  // namespace lmtp::model
