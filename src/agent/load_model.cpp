#include "load_model.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device_api.h"
#include "kernels/norm.h"
#include "lmtp/agent/model_memory.h"
#include "lmtp/base/check.h"
#include "lmtp/base/log.h"

namespace lmtp::agent {

int longest_stream(const AgentOptions& options) {
  return options.context_length > 0 ? options.context_length : options.config.context_length;
}

namespace {

// Of the matrices that are int8, whether --dtype or the checkpoint says so; with int4 the tables.
Result<void> check_int8_inputs(const AgentOptions& options) {
  const model::ModelConfig& config = options.config;
  const bool is_rounded = std::ranges::any_of(
      config.quantization.schemes, [](const auto& scheme) { return scheme.rounds_activations; });
  const bool are_all = options.weight_type == kernels::WeightType::kInt8 || is_rounded;
  if (!are_all && options.weight_type != kernels::WeightType::kInt4) return {};
  std::int64_t most = config.hidden_size;
  if (are_all) {
    most = std::max<std::int64_t>({most, config.mlp_size, config.experts.size,
                                   config.experts.shared_size,
                                   std::int64_t{config.num_heads} * config.head_dim});
  }
  if (most <= kernels::kInt8InputsMax) return {};
  return Error{ErrorCode::kInvalid,
               "a matrix of this model has " + std::to_string(most) + " inputs; one of int8 has " +
                   std::to_string(kernels::kInt8InputsMax) +
                   " at most: serve an unquantised checkpoint with --dtype bfloat16"};
}

}  // namespace

Result<std::int64_t> count_weights(const AgentOptions& options) {
  if (options.cuda_device && options.config.hidden_size > kernels::kDeviceNormWidthMax) {
    return Error{ErrorCode::kInvalid,
                 "this model's hidden size is " + std::to_string(options.config.hidden_size) +
                     ", and the CUDA kernels take " + std::to_string(kernels::kDeviceNormWidthMax) +
                     " at most; serve it on the CPU"};
  }
  if (options.cuda_device && options.config.head_dim > kernels::kDeviceHeadDimMax) {
    return Error{ErrorCode::kInvalid,
                 "this model's heads have " + std::to_string(options.config.head_dim) +
                     " dimensions, and the CUDA kernels take " +
                     std::to_string(kernels::kDeviceHeadDimMax) + " at most; serve it on the CPU"};
  }
  if (options.cuda_device && options.config.experts.count > 0) {
    return Error{ErrorCode::kInvalid,
                 "this model is a mixture of experts, which the CUDA kernels do not compute; a CPU "
                 "is needed: serve it on the CPU"};
  }
  if (const auto share = model::rank_config(options.config, options.num_ranks); !share.ok()) {
    return Error{share.error().code, "--tensor-parallel-size: " + share.error().message};
  }
  if (const auto fits = check_int8_inputs(options); !fits.ok()) return fits.error();
  const auto tensors = model::describe_tensors(options.config);
  if (!tensors.ok()) return tensors.error();
  std::int64_t num_elements = 0;
  for (const model::TensorSpec& tensor : *tensors) num_elements += tensor.num_elements();
  return num_elements;
}

Result<void> enough_devices(const AgentOptions& options, int num_devices) {
  const int first = options.cuda_device.value();
  const int most = num_devices - first;
  if (options.num_ranks <= most) return {};
  return Error{ErrorCode::kInvalid,
               "--tensor-parallel-size: " + std::to_string(options.num_ranks) +
                   " ranks need as many CUDA devices, and from cuda:" + std::to_string(first) +
                   " on there " + (most == 1 ? "is " : "are ") + std::to_string(most) +
                   "; give at most " + std::to_string(most)};
}

namespace {

// What a rank has of a matrix.
struct MatrixShare {
  model::Split split = model::Split::kNone;
  std::int64_t num_elements = 0;
};

// Of the matrices that are divided, by name; the others every rank has.
std::map<std::string, MatrixShare> matrix_shares(const model::ModelConfig& config, int num_ranks) {
  std::map<std::string, MatrixShare> shares;
  if (num_ranks == 1) return shares;
  model::ModelConfig own = model::rank_config(config, num_ranks).value();
  own.kv_copies = 1;  // described as a model by itself
  const auto divided = model::describe_divided(own);
  for (const model::WeightStack& stack : divided.value()) {
    for (const model::WeightPart& part : stack.parts) {
      const std::int64_t slices = std::max<std::int64_t>(part.num_slices, 1);
      shares[part.name] = {stack.split, part.n() * stack.k * slices};
    }
  }
  return shares;
}

// As a GGUF file's scheme names what the model asks for: its tensors are of all experts, gate and
// up apart.
std::string module_in_gguf(std::string module) {
  constexpr std::string_view kExperts = ".experts.";
  for (const auto& [theirs, own] :
       {std::pair<std::string, const char*>{"block_sparse_moe.input_linear",
                                            "mlp.experts.*.gate_proj"},
        {"block_sparse_moe.output_linear", "mlp.experts.*.down_proj"}}) {
    if (module.ends_with(theirs)) return module.substr(0, module.size() - theirs.size()) + own;
  }
  const std::size_t at = module.find(kExperts);
  if (at == std::string::npos) return module;
  const std::size_t number = at + kExperts.size();
  const std::size_t end = module.find_first_not_of("0123456789", number);
  if (end > number && end != std::string::npos) return module.replace(number, end - number, "*");
  module.insert(number, "*.");
  if (module.ends_with("gate_up_proj")) module.replace(module.rfind("gate_up"), 7, "gate");
  return module;
}

// Of a tensor that --dtype packs.
std::int64_t packed_bytes(kernels::WeightType type, bool is_table, std::int64_t num_elements) {
  if (type != kernels::WeightType::kInt4) return num_elements * 4 / kernels::inputs_per_unit(type);
  return is_table ? num_elements : num_elements * 9 / 16;  // int8, or 4 bits and a part of a scale
}

// The type that a model's matrices are kept in: narrower than f32 on a CPU where the files, if they
// are there already, have nearly 2 bytes for each element.
kernels::WeightType type_in_memory(const AgentOptions& options,
                                   const std::vector<model::TensorSpec>& tensors) {
  const model::QuantMethod method = options.config.quantization.method;
  if (!options.cuda_device && method == model::QuantMethod::kMxFp4) {
    return kernels::kept_type(options.weight_type, options.config.weight_type, 0);
  }
  if (options.cuda_device || method != model::QuantMethod::kNone) return options.weight_type;
  if (options.source.kind == SourceKind::kRandom) {
    return kernels::kept_type(options.weight_type, options.config.weight_type, 0);
  }
  std::int64_t num_elements = 0;
  for (const model::TensorSpec& tensor : tensors) num_elements += tensor.num_elements();
  std::int64_t num_bytes = 0;
  for (const std::filesystem::path& file : weight_files(options.source.folder)) {
    std::error_code failed;
    const std::uintmax_t size = std::filesystem::file_size(file, failed);
    if (!failed) num_bytes += static_cast<std::int64_t>(size);
  }
  const bool is_narrow = 10 * num_bytes > 19 * num_elements && 4 * num_bytes < 9 * num_elements;
  return is_narrow ? kernels::kept_type(options.weight_type, kernels::ElementType::kBF16, 0)
                   : options.weight_type;
}

}  // namespace

std::vector<std::filesystem::path> weight_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const char* extension : {".safetensors", ".bin"}) {
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
      if (entry.path().extension() == extension) files.push_back(entry.path());
    }
    if (!files.empty()) break;
  }
  std::ranges::sort(files);
  return files;
}

std::int64_t count_weight_bytes(const AgentOptions& options) {
  const model::Quantization& quantization = options.config.quantization;
  // On a device not in float32, nor where inputs may be in an order of their own.
  const bool may_be_narrow =
      !options.cuda_device.has_value() ||
      (options.weight_type != kernels::WeightType::kF32 && !quantization.ordered);
  constexpr std::string_view kWeight = ".weight";
  std::int64_t num_bytes = 0;
  std::map<std::string, const model::QuantScheme*> schemes;  // of a GGUF file, by module
  const auto shares = matrix_shares(options.config, options.num_ranks);
  const auto tensors = model::describe_tensors(options.config);
  const kernels::WeightType type = type_in_memory(options, tensors.value());
  for (const model::TensorSpec& tensor : tensors.value()) {
    const model::QuantScheme* scheme = nullptr;
    // Embeddings and heads seldom are, whatever is said; but GGUF files name their matrices.
    const bool is_table =
        tensor.shape.size() == 2 && tensor.shape.front() == options.config.vocab_size;
    const auto share = shares.find(tensor.name);
    // A rank's share of the inputs of codes is widened.
    const bool is_gguf = quantization.method == model::QuantMethod::kGguf;
    const bool is_likely = (is_gguf || !is_table) &&
                           (share == shares.end() || share->second.split != model::Split::kInputs);
    // Experts have no order of their inputs (WeightStack::in_order).
    const bool is_widened =
        quantization.ordered && tensor.name.find(".experts.") != std::string::npos;
    if (is_gguf && is_likely && may_be_narrow && tensor.shape.size() >= 2) {
      const bool has_leaf = tensor.name.ends_with(kWeight);
      const std::string module = module_in_gguf(
          tensor.name.substr(0, tensor.name.size() - (has_leaf ? kWeight.size() : 0)));
      // A layer's experts are looked for once.
      const auto [known, is_new] = schemes.try_emplace(module, nullptr);
      if (is_new) known->second = model::find_scheme(quantization, module);
      scheme = known->second;
    } else if (quantization.method == model::QuantMethod::kMxFp4) {
      const bool is_stack = tensor.shape.size() == 3 && is_likely;
      scheme = is_stack ? model::find_scheme(quantization, tensor.name) : nullptr;
    } else if (may_be_narrow && is_likely && !is_widened && tensor.shape.size() == 2 &&
               tensor.name.ends_with(kWeight)) {
      scheme = model::find_scheme(quantization,
                                  tensor.name.substr(0, tensor.name.size() - kWeight.size()));
    }
    const std::int64_t num_elements =
        share != shares.end() ? share->second.num_elements
                              : tensor.num_elements() / (is_table ? options.num_ranks : 1);
    num_bytes += scheme != nullptr ? model::coded_bytes(*scheme, num_elements)
                                   : packed_bytes(type, is_table, num_elements);
  }
  return num_bytes;
}

bool may_have_codes(const AgentOptions& options) {
  return kernels::is_grouped(options.weight_type) ||
         options.config.quantization.method != model::QuantMethod::kNone;
}

namespace {

int num_threads_of(const AgentOptions& options) {
  return options.num_threads > 0 ? options.num_threads
                                 : static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::unique_ptr<kernels::WorkerPool> make_pool(const AgentOptions& options) {
  return std::make_unique<kernels::WorkerPool>(
      std::clamp(num_threads_of(options), 1, kernels::WorkerPool::kMaxThreads));
}

AgentOptions options_of_rank(const AgentOptions& options, int rank) {
  const int num_ranks = options.num_ranks;
  AgentOptions own = options;
  own.num_ranks = 1;
  own.config = model::rank_config(options.config, num_ranks).value();
  const int num_threads = num_threads_of(options);
  own.num_threads = std::max(1, num_threads / num_ranks + (rank < num_threads % num_ranks ? 1 : 0));
  own.kv_cache_bytes /= num_ranks;
  own.swap_bytes /= num_ranks;
  if (own.cuda_device.has_value()) *own.cuda_device += rank;
  return own;
}

std::vector<Binding> rank_bindings(const AgentOptions& options,
                                   const std::vector<Processor>& processors) {
  const auto is_elsewhere = [&](const Processor& one) {
    return one.node != processors.front().node;
  };
  if (options.cuda_device.has_value() || std::ssize(processors) < options.num_ranks ||
      std::ranges::none_of(processors, is_elsewhere)) {
    return {};
  }
  std::vector<Binding> bindings;
  for (const ProcessorShare& share : split_processors(processors, options.num_ranks)) {
    bindings.emplace_back(share);
  }
  return bindings;
}

Result<LoadedModel> load_model(const AgentOptions& options, std::int64_t num_weights,
                               model::WeightStore& store, model::Communicator& communicator,
                               const scheduler::LoadProgress& progress) {
  LoadedModel loaded;
  std::unique_ptr<model::TensorSource> tensors;
  if (options.source.kind == SourceKind::kRandom) {
    tensors = model::make_random_source(options.source.seed, options.config.weight_type);
  } else {
    auto checkpoint = model::open_checkpoint(options.source.folder);
    if (!checkpoint.ok()) return checkpoint.error();
    tensors = model::dequantized(std::move(*checkpoint), options.config.quantization);
    auto notes = model::check_tensors(options.config, *tensors, options.force);
    if (!notes.ok()) return notes.error();
    if (const auto values = tensors->check_values(); !values.ok()) return values.error();
    for (const std::string& note : *notes) log::warning(options.source.name + ": " + note);
    loaded.notes = std::move(*notes);
  }
  model::WeightLoader loader(*tensors, store, num_weights, progress, communicator.shard());
  auto model =
      model::make_causal_lm(options.config, loader,
                            {.max_tokens = options.batch.max_tokens, .communicator = communicator});
  if (!model.ok()) return model.error();
  if (const auto unchanged = tensors->check_unchanged(); !unchanged.ok()) return unchanged.error();
  loaded.model = std::move(*model);
  loaded.num_widened = loader.num_widened();
  loaded.weights_bytes = store.num_bytes();
  if (loaded.num_widened > 0) {
    loaded.notes.push_back(std::to_string(loaded.num_widened) +
                           " quantised matrices are widened to " + dtype_name(options.weight_type));
  }
  return loaded;
}

model::KvGroups kv_groups(const AgentOptions& options) {
  const model::ModelConfig own = model::rank_config(options.config, options.num_ranks).value();
  const std::vector<model::KvSpec> specs = model::kv_specs(own);
  model::KvGroups groups = options.debug.kv_groups
                               ? model::kv_groups(specs, options.config.context_length)
                               : model::one_kv_group(specs);
  // A device's memory for attention is that of tables of so many blocks as there are, and stubs are
  // more; those of a context beyond this would take more memory than the blocks.
  constexpr int kStubbedContextMax = 1 << 17;
  if (groups.layout.has_stubs &&
      (options.cuda_device.has_value() || options.config.context_length > kStubbedContextMax)) {
    groups = model::one_kv_group(specs);
  }
  groups.layout.num_written_max = 2 * options.batch.max_tokens;  // a step, and one ahead of it
  return groups;
}

std::int64_t num_blocks_min(const AgentOptions& options) {
  return kv_groups(options).layout.num_held_max(longest_stream(options)) + 1;
}

std::int64_t kv_block_bytes(const AgentOptions& options) {
  return options.num_ranks * model::kv_block_bytes(kv_groups(options).slots, kv_type(options));
}

std::int64_t adapter_block_bytes(const AgentOptions& options) {
  const std::vector<model::KvSpec> slots = kv_groups(options).slots;
  return 2 * std::ssize(slots) * model::kv_piece_bytes(slots, kv_type(options));
}

Result<int> count_blocks(const AgentOptions& options) {
  const std::int64_t kv_bytes = options.kv_cache_bytes;
  LMTP_CHECK(kv_bytes > 0, kv_bytes);
  const std::int64_t block_bytes = kv_block_bytes(options);
  const std::int64_t num_blocks =
      std::min<std::int64_t>(kv_bytes / block_bytes, INT32_MAX / kBlockSize / 2);
  const std::int64_t needed = num_blocks_min(options);
  if (num_blocks < needed) {
    return Error{ErrorCode::kUnavailable, "a KV cache of " + std::to_string(kv_bytes) +
                                              " bytes does not hold one stream of " +
                                              std::to_string(longest_stream(options)) +
                                              " tokens; give --kv-cache at least " +
                                              std::to_string(needed * block_bytes)};
  }
  return static_cast<int>(num_blocks);
}

int count_host_blocks(const AgentOptions& options) {
  return static_cast<int>(
      std::min<std::int64_t>(options.swap_bytes / kv_block_bytes(options), INT32_MAX / kBlockSize));
}

int logit_rows_max(const AgentOptions& options) {
  constexpr int kHostRows = 64;
  const int rows = options.batch.rows_max();
  return options.cuda_device.has_value() ? rows : std::min(rows, kHostRows);
}

std::size_t logits_bytes(const AgentOptions& options) {
  return static_cast<std::size_t>(logit_rows_max(options)) *
         static_cast<std::size_t>(options.config.vocab_size) * sizeof(float);
}

ErrorCode cause_of(const std::exception& thrown) {
  using kernels::DeviceError;
  const auto* error = dynamic_cast<const DeviceError*>(&thrown);
  if (error == nullptr || error->kind() == DeviceError::Kind::kFailed) {
    return exception_code(thrown);
  }
  const bool no_memory = error->kind() == DeviceError::Kind::kOutOfMemory;
  return no_memory ? ErrorCode::kUnavailable : ErrorCode::kDeviceLost;
}

kernels::OpLimits op_limits(const AgentOptions& options, int num_blocks) {
  const model::ModelConfig& config = options.config;
  const int rows = options.batch.rows_max();
  model::KvSpec kv;
  for (const model::KvSpec& spec : model::kv_specs(config)) {
    kv.num_heads = std::max(kv.num_heads, spec.num_heads);
    kv.head_dim = std::max(kv.head_dim, spec.head_dim);
  }
  return {.weight_type = options.weight_type,
          .rows = options.batch.max_tokens,
          .inputs = std::max({config.hidden_size, config.mlp_size, config.experts.size,
                              config.num_heads * config.head_dim, config.embedding_size}),
          .may_have_codes = may_have_codes(options),
          .kv_type = kv_type(options),
          .num_kv_heads = kv.num_heads,
          .head_dim = kv.head_dim,
          .num_sequences = rows,
          .num_table_blocks = num_blocks + rows};
}

}  // namespace lmtp::agent
