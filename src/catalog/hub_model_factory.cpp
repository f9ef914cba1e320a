#include "lmtp/catalog/hub_model_factory.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "lmtp/agent/adapter.h"
#include "lmtp/agent/agent.h"
#include "lmtp/agent/model_memory.h"
#include "lmtp/aici/embedded_runtime.h"
#include "lmtp/aici/process_runtime.h"
#include "lmtp/base/log.h"
#include "lmtp/base/text.h"
#include "lmtp/catalog/device_choice.h"
#include "lmtp/catalog/dtype_choice.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"
#include "lmtp/text/chat_template.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::catalog {
namespace {

// Of a folder in the hub's cache, .../snapshots/COMMIT.
std::string commit_of(const std::string& folder) {
  std::filesystem::path path(folder);
  if (is_gguf(folder)) path = path.parent_path();
  return path.parent_path().filename() == "snapshots" ? path.filename().string() : "";
}

// What clients, metrics and the log call it.
std::string shown_name(const ModelSource& source, const ModelOptions& options) {
  return options.served_names.empty() ? source.name : options.served_names.front();
}

// How transformers makes the same model.
std::string constructor_of(const ModelSource& source) {
  const std::string make = "AutoModelForCausalLM.";
  if (source.kind == SourceKind::kRandom) return make + "from_config('" + source.shape + "')";
  if (!is_gguf(source.folder)) return make + "from_pretrained('" + source.name + "')";
  const std::filesystem::path path(source.folder);
  return make + "from_pretrained('" + path.parent_path().string() + "', gguf_file='" +
         path.filename().string() + "')";
}

// `longest`: the context that is served.
registry::ModelDescription describe(const ModelSource& source, const model::ModelConfig& config,
                                    const agent::AgentOptions& agent, int longest,
                                    const ModelOptions& options) {
  const bool is_folder = source.kind == SourceKind::kFolder;
  const int wanted = options.context_length;
  registry::ModelDescription description;
  description.name = shown_name(source, options);
  description.hides_path = !options.served_names.empty();
  description.type = config.model_type;
  description.architecture = config.architecture;
  description.constructor = constructor_of(source);
  description.tokenizer = is_folder ? source.folder : "gpt2";
  if (description.hides_path && is_folder) {
    description.constructor = "AutoModelForCausalLM.from_pretrained('" + description.name + "')";
    description.tokenizer = description.name;
  }
  description.commit = commit_of(source.folder);
  description.device = agent::device_name(agent);
  description.dtype = agent::dtype_name(agent.weight_type);
  description.kv_dtype = agent::kv_dtype_name(agent::kv_type(agent));
  description.quantization = config.quantization.name;
  for (const model::QuantScheme& scheme : config.quantization.schemes) {
    description.quantized_weights.push_back(scheme.text());
  }
  description.trained_context_length = longest;
  description.notes = config.notes;
  if (wanted > longest) {
    description.notes.push_back("the context is the model's own, " + std::to_string(longest) +
                                " tokens");
  }
  return description;
}

model::ConfigOptions config_options(const ModelOptions& options) {
  return {.force = options.force,
          .context_length = options.context_length,
          .tie_embeddings = options.tie_embeddings};
}

// With what its weights say of its head, where they are there already: their names alone, or what
// they hold, which may be gigabytes. What else is wrong with them is for the one who loads them.
Result<model::ModelConfig> config_of(const ModelSource& source, const ModelOptions& options,
                                     bool reads_head) {
  auto config = model::load_model_config(source, config_options(options));
  if (!config || !config->settles_head) return config;
  auto file = model::open_checkpoint(source.folder);
  if (!file) return config;
  const auto weights = model::dequantized(std::move(*file), config->quantization);
  const Result<void> settled = model::settle_head(*weights, reads_head, *config);
  return settled ? config : settled.error();
}

Result<std::optional<kernels::ElementType>> kv_cache_type_of(const std::string& option,
                                                             const agent::AgentOptions& agent) {
  auto type = parse_kv_cache_dtype(option);
  if (type && *type == kernels::ElementType::kE4M3 && agent.config.quantization.scales_kv_cache) {
    return Error{ErrorCode::kInvalid,
                 "--kv-cache-dtype: this checkpoint has scales of its own for keys and values of 8 "
                 "bits (kv_cache_scheme), which are not applied; leave the option out, or give "
                 "bfloat16"};
  }
  return type;
}

// But for its types, its KV cache and the context.
agent::AgentOptions agent_options(const ModelSource& source, const model::ModelConfig& config,
                                  const ModelOptions& options, std::optional<int> cuda_device) {
  agent::AgentOptions agent;
  agent.source = source;
  agent.config = config;
  agent.cuda_device = cuda_device;
  agent.num_ranks = options.tensor_parallel_size;
  agent.transport = parse_communicator(options.communicator, options.tensor_parallel_size,
                                       cuda_device.has_value())
                        .value();
  agent.num_threads = options.num_threads;
  agent.batch = options.batch;
  agent.force = options.force;
  agent.swap_bytes = options.swap_bytes;
  return agent;
}

// Sets the agent's types, and `reason` if that of the weights is not the usual default. Returns the
// memory that the model then takes.
Result<agent::ModelMemory> choose_dtype(const ModelOptions& options,
                                        std::optional<std::int64_t> free_bytes,
                                        agent::AgentOptions& agent, std::string& reason) {
  const bool on_device = agent.cuda_device.has_value();
  const Result<DtypeChoice> dtype = parse_dtype(options.dtype, on_device);
  if (!dtype) return dtype.error();
  const auto kv_cache_type = kv_cache_type_of(options.kv_cache_dtype, agent);
  if (!kv_cache_type) return kv_cache_type.error();
  agent.kv_cache_type = *kv_cache_type;
  agent.weight_type =
      dtype->type.value_or(on_device ? kernels::WeightType::kBF16 : kernels::WeightType::kF32);
  Result<agent::ModelMemory> memory = agent::estimate_memory(agent);
  if (!memory || dtype->type || on_device || !free_bytes) return memory;
  if (memory->weights_bytes <= *free_bytes / 2) return memory;
  agent.weight_type = kernels::WeightType::kBF16;
  Result<agent::ModelMemory> narrower = agent::estimate_memory(agent);
  if (narrower && narrower->weights_bytes >= memory->weights_bytes) {  // of a file of 16 bits
    agent.weight_type = kernels::WeightType::kF32;
    return memory;
  }
  reason = "float32 would take more than half of the free memory";
  return narrower;
}

registry::LoadedTokenizer load_tokenizer(const ModelSource& source) {
  if (source.kind != SourceKind::kFolder) {
    return Error{ErrorCode::kNotFound, "its weights are random"};
  }
  auto loaded = tokenizer::load_tokenizer(source.folder);
  if (!loaded) return loaded.error();
  return std::shared_ptr<const tokenizer::Tokenizer>(std::move(*loaded));
}

text::LoadedChatTemplate load_chat_template(const ModelSource& source,
                                            const std::string& template_file,
                                            std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  const auto files = text::read_chat_template(source.folder, template_file);
  if (!files) return files.error();
  return text::ChatTemplate::make(*files, std::move(tokenizer));
}

// What clients are told of a model that has a name of its own.
Error without_path(Error error, const std::string& folder, const std::string& name) {
  for (std::size_t at = folder.empty() ? std::string::npos : error.message.find(folder);
       at != std::string::npos; at = error.message.find(folder, at + name.size())) {
    error.message.replace(at, folder.size(), name);
  }
  return error;
}

// What reads its texts.
void add_texts(const ModelSource& source, const ModelOptions& options,
               registry::ServedModel& served) {
  const auto shown = [source, name = served.description.name,
                      hides_path = served.description.hides_path](Error error) {
    return hides_path ? without_path(std::move(error), source.folder, name) : error;
  };
  served.load_tokenizer = [source, shown]() -> registry::LoadedTokenizer {
    auto loaded = load_tokenizer(source);
    return loaded ? std::move(loaded) : shown(loaded.error());
  };
  served.load_chat_template =
      [source, shown, template_file = options.chat_template_file](
          std::shared_ptr<const tokenizer::Tokenizer> tokenizer) -> text::LoadedChatTemplate {
    auto loaded = load_chat_template(source, template_file, std::move(tokenizer));
    return loaded ? std::move(loaded) : shown(loaded.error());
  };
  served.load_decisions =
      [source, shown, decisions = options.decisions](
          std::shared_ptr<const tokenizer::Tokenizer> tokenizer) -> text::LoadedDecisions {
    auto loaded = text::read_decision_config(source.folder, decisions, std::move(tokenizer));
    return loaded ? std::move(loaded) : shown(loaded.error());
  };
  served.load_embeddings = [source, shown]() -> text::LoadedEmbeddings {
    auto loaded = text::read_embedding_config(source.folder);
    return loaded ? std::move(loaded) : shown(loaded.error());
  };
}

// A KV cache that does not even serve streams of so many tokens (or of the whole context, where
// that is less) is not worth loading a model for.
constexpr int kContextOfLeast = 1024;

}  // namespace

HubModelFactory::HubModelFactory(ModelOptions options, bool one_model, NamePolicy policy,
                                 std::function<void(const std::string& reason)> on_device_gone)
    : options_(std::move(options)),
      one_model_(one_model),
      policy_(std::move(policy)),
      on_device_gone_(std::move(on_device_gone)),
      cuda_device_(*parse_device(options_.device)),
      free_bytes_at_start_(free_bytes()) {}

Result<registry::ServedModel> HubModelFactory::find(const std::string& name) {
  hub::FetchOptions here;
  here.allow_download = false;
  const auto source = resolve_name(name, policy_, here);
  if (source) return make(*source, one_model_);
  if (!may_download(name, policy_) || !may_be_on_hub(name)) return source.error();
  return Error{
      ErrorCode::kNotFound,
      "'" + name +
          "' is not on this machine; a GENERATE or SCORE that names it downloads it, if the "
          "hub has it"};
}

Result<registry::ServedModel> HubModelFactory::fetch(const std::string& name,
                                                     const DownloadProgress& progress) {
  hub::FetchOptions options;
  options.download_bytes_max = options_.download_bytes_max;
  options.accept_config = [&](const std::string& folder) { return accept(name, folder); };
  options.accept_weights = [&](const std::string& folder,
                               const std::vector<WeightHeader>& headers) -> Result<void> {
    auto config = model::read_model_config(folder, config_options(options_));
    if (!config) return config.error();
    auto headers_alone = model::open_headers(folder, headers);
    if (!headers_alone) return headers_alone.error();
    const auto tensors = model::dequantized(std::move(*headers_alone), config->quantization);
    if (const auto settled = model::settle_head(*tensors, false, *config); !settled) {
      return settled.error();
    }
    const auto notes = model::check_tensors(*config, *tensors, options_.force);
    return notes ? Result<void>() : notes.error();
  };
  options.progress = [&](const hub::FetchProgress& now) {
    return progress({now.bytes_done, now.bytes_total});
  };
  const auto source = resolve_name(name, policy_, options);
  if (!source) return source.error();
  return make(*source, true);
}

// What is not supported, and what would never fit, is not downloaded.
Result<void> HubModelFactory::accept(const std::string& name, const std::string& folder) const {
  ModelSource source;
  source.name = name;
  source.folder = folder;
  const auto served = make(source, false);
  if (!served) return served.error();
  const registry::MemoryNeed& need = served->memory;
  const std::int64_t needed = need.weights_bytes + std::max(need.kv_bytes_min, need.kv_bytes);
  const auto free = std::max(free_bytes_at_start_, free_bytes());
  if (!free || needed <= *free) return {};
  const std::string sizes = "'" + name + "' needs about " + size_text(needed) +
                            " of memory (weights " + size_text(need.weights_bytes) + "), and " +
                            size_text(*free) + " are free";
  if (options_.force && one_model_) {
    log::warning(sizes);
    return {};
  }
  return Error{ErrorCode::kUnavailable,
               sizes +
                   ", so it is not downloaded; free some, or choose a narrower --dtype or a "
                   "smaller --kv-cache" +
                   (one_model_ ? "; --force goes on" : "")};
}

std::optional<std::int64_t> HubModelFactory::free_memory_bytes() { return free_bytes(); }

std::optional<std::int64_t> HubModelFactory::free_bytes() const {
  return agent::available_memory_bytes(cuda_device_, options_.tensor_parallel_size);
}

Result<registry::ServedModel> HubModelFactory::make(const ModelSource& source,
                                                    bool is_loaded) const {
  const Result<model::ModelConfig> config = config_of(source, options_, is_loaded);
  if (!config) return config.error();
  const int longest = options_.context_length > 0
                          ? std::min(options_.context_length, config->context_length)
                          : config->context_length;
  agent::AgentOptions agent = agent_options(source, *config, options_, cuda_device_);
  agent.on_device_gone = on_device_gone_;
  agent.context_length = std::min(longest, kContextOfLeast);
  std::string dtype_reason;
  const Result<agent::ModelMemory> memory =
      choose_dtype(options_, free_bytes_at_start_, agent, dtype_reason);
  if (!memory) return memory.error();
  const auto with_kv = [agent, longest](std::int64_t kv_bytes) {
    agent::AgentOptions sized = agent;
    sized.kv_cache_bytes = kv_bytes;
    sized.context_length = std::min(agent::servable_context(sized), longest);
    return sized;
  };
  const auto context_of = [with_kv](std::int64_t kv_bytes) {
    return with_kv(kv_bytes).context_length;
  };

  registry::ServedModel served;
  served.key = source.kind == SourceKind::kFolder
                   ? source.folder
                   : "random:" + source.shape + ":" + std::to_string(source.seed);
  served.description = describe(source, *config, agent, longest, options_);
  served.description.dtype_reason = std::move(dtype_reason);
  served.description.num_parameters = memory->num_parameters;
  served.names = options_.served_names;
  served.names.insert(served.names.end(), source.names.begin(), source.names.end());
  served.limits.vocab_size = config->vocab_size;
  served.limits.eos_ids = config->eos_ids;
  served.limits.generates = config->has_head;
  served.limits.max_input_tokens = options_.max_input_tokens;
  // What all running streams may come to have bounds each of them.
  served.limits.max_total_tokens =
      options_.max_total_tokens > 0 ? options_.max_total_tokens : options_.batch.max_total_tokens;
  served.options.batch = options_.batch;
  served.options.max_drafts = options_.max_drafts;
  served.options.score_cache_bytes = options_.score_cache_bytes;
  served.options.max_concurrent_requests = options_.max_concurrent_requests;
  served.options.trace = options_.trace;
  served.options.name = served.description.name;
  served.memory.weights_bytes = memory->weights_bytes;
  served.memory.kv_bytes_min = memory->kv_bytes_min;
  served.memory.kv_bytes = options_.kv_cache_bytes;
  served.memory.on_device = cuda_device_.has_value();
  // With what is free now, until the registry has decided about its memory.
  served.limits.context_length = context_of(registry::kv_bytes_wanted(served.memory, free_bytes()));
  served.context_of = context_of;
  served.load = [with_kv, name = served.options.name, notes = served.description.notes](
                    std::int64_t kv_bytes, const scheduler::LoadProgress& progress) {
    for (const std::string& note : notes) log::warning(name + ": " + note);
    return agent::make_agent(with_kv(kv_bytes), progress);
  };
  add_texts(source, options_, served);
  served.tool_call_format = options_.tool_call_format;
  served.adapters = options_.adapters;
  served.adapters_max = static_cast<std::size_t>(options_.max_cpu_loras);
  served.load_adapter = adapters(agent);
  served.load_controllers = controllers(config->vocab_size, config->eos_ids, source.folder);
  return served;
}

registry::LoadAdapter HubModelFactory::adapters(const agent::AgentOptions& agent) const {
  return [agent, policy = policy_, rank_max = options_.max_lora_rank](
             AdapterSource source,
             const registry::AdapterReading& reading) -> Result<std::shared_ptr<const Adapter>> {
    if (reading.by_request) {
      Result<std::string> folder = resolve_adapter(source.folder, policy);
      if (!folder) return folder.error();
      source.folder = *std::move(folder);
    }
    return agent::read_adapter(
        agent, source,
        {.rank_max = rank_max, .blocks_max = reading.blocks_max, .goes_on = reading.goes_on});
  };
}

// What runs them is made with the model, whose tokenizer it needs.
registry::LoadControllers HubModelFactory::controllers(int vocab_size,
                                                       const std::vector<TokenId>& eos_ids,
                                                       const std::string& folder) const {
  if (!options_.aicirt.path.empty()) return process_controllers(vocab_size, folder);
  if (!options_.aici) return {};
  aici::EmbeddedOptions options;
  options.vocab_size = vocab_size;
  options.eos_id = eos_ids.empty() ? -1 : eos_ids.front();
  options.cache_folder = options_.aici_cache;
  options.limits = options_.aici_limits;
  return [options](const std::shared_ptr<const tokenizer::Tokenizer>& tokenizer)
             -> registry::LoadedControllers {
    aici::EmbeddedOptions of_model = options;
    of_model.tokenizer = tokenizer;
    auto runtime = aici::make_embedded_runtime(of_model);
    if (!runtime) return runtime.error();
    return std::shared_ptr<aici::Runtime>(std::move(*runtime));
  };
}

// The program reads the tokenizer by itself.
registry::LoadControllers HubModelFactory::process_controllers(int vocab_size,
                                                               const std::string& folder) const {
  aici::ProcessOptions options = options_.aicirt;
  options.path = std::filesystem::absolute(options.path).string();  // it has a folder of its own
  options.vocab_size = vocab_size;
  if (options.tokenizer.empty()) options.tokenizer = folder;
  options.folder = options_.aici_cache;
  options.step_time = options_.aici_limits.step_time;
  options.init_time = options_.aici_limits.init_time;
  options.forks_max = options_.aici_limits.forks_max;
  options.memory_mib = static_cast<int>(options_.aici_limits.memory_bytes >> 20);
  return [options](const std::shared_ptr<const tokenizer::Tokenizer>& /*tokenizer*/)
             -> registry::LoadedControllers {
    std::error_code ignored;  // where there is no folder the program says so
    std::filesystem::create_directories(options.folder, ignored);
    auto runtime = aici::make_process_runtime(options);
    if (!runtime) return runtime.error();
    return std::shared_ptr<aici::Runtime>(std::move(*runtime));
  };
}

}  // namespace lmtp::catalog
