#include "foreign_options.h"

#include <algorithm>
#include <iterator>

#include "common/edit_distance.h"

namespace lmtp::tools {
namespace {

constexpr const char* kBits = "write --dtype int8 or --dtype int4";
constexpr const char* kDtype = "write --dtype";
constexpr const char* kDevice = "write --cuda, or --device cuda:N for one of several";
constexpr const char* kQuantized =
    "leave it out: config.json says how a checkpoint is quantised; --dtype int8 quantises at load";
constexpr const char* kLeaveOut = "leave it out; it has no meaning here";
constexpr const char* kToken = "set HF_TOKEN in the environment, or log in with `hf auth login`";
constexpr const char* kModel = "write MODEL by itself, as the first word";
constexpr const char* kCacheSize =
    "write --kv-cache SIZE, or leave it out: on a device what is free is taken";
constexpr const char* kStreams =
    "write --max-concurrent-requests N; how many run at a time follows from --kv-cache";
constexpr const char* kStep = "write --max-batched-tokens N";
constexpr const char* kAlways = "leave it out; it is always so";
constexpr const char* kRequests = "leave it out; each request says how it samples";
constexpr const char* kGrammars = "leave it out; grammars are compiled by llguidance";
constexpr const char* kDrafts =
    "write --speculate N: drafts of a stream's own text, without a second model";
constexpr const char* kHubCache = "set HF_HUB_CACHE in the environment";
constexpr const char* kQuiet = "write --log-level warning";
constexpr const char* kVerbose = "write --log-level debug";
constexpr const char* kMetrics = "leave it out; GET /metrics is always there, on the same port";
constexpr const char* kDevices = "write --tensor-parallel-size N";
constexpr const char* kServers =
    "write --layout Nx1, or lmtp-serve balance HOST:PORT... for servers on several machines";
constexpr const char* kPrefixes =
    "leave it out; prefixes are always cached, and give the same bits";
constexpr const char* kCode = "leave it out; code that comes with a model is not run here";
constexpr const char* kTraces = "write --trace FILE; there is no exporter";
constexpr const char* kAdapters = "write --lora-modules NAME=PATH";
constexpr const char* kPages = "write --allow-origin ORIGIN";
constexpr const char* kContext = "write --context-length N";
constexpr const char* kTypeOfCache = "write --kv-cache-dtype D";
constexpr const char* kThreads = "write --threads N";
constexpr const char* kConfig = "leave it out; config.json says it";
constexpr const char* kNotServed = "leave it out; that is not served here";
constexpr const char* kReasoning =
    "leave it out: the chat template says how reasoning is written; --tool-call-format names "
    "another format";

// The short ones are llama.cpp's.
constexpr ForeignOption kForeign[] = {
    {"single_thread", "LMQL",
     "leave it out; each model computes on threads of its own (--threads N)"},
    {"docker_hide_port", "LMQL", kLeaveOut},
    {"loader", "LMQL", kQuantized},
    {"balance", "LMQL", "write lmtp-serve balance HOST:PORT..., with no MODEL"},
    {"silent", "LMQL", kQuiet},
    {"bits", "transformers", kBits},
    {"load_in_8bit", "transformers", "write --dtype int8"},
    {"load_in_4bit", "transformers", "write --dtype int4"},
    {"quantization_config", "transformers", kQuantized},
    {"torch_dtype", "transformers", kDtype},
    {"device_map", "transformers", kDevice},
    {"max_memory", "transformers", "write --kv-cache SIZE"},
    {"cache_dir", "transformers", kHubCache},
    {"token", "transformers", kToken},
    {"use_auth_token", "transformers", kToken},
    {"local_files_only", "transformers", "set HF_HUB_OFFLINE=1 in the environment"},
    {"use_safetensors", "transformers", "leave it out; safetensors are taken where they are there"},
    {"low_cpu_mem_usage", "transformers", kLeaveOut},
    {"attn_implementation", "transformers", kLeaveOut},
    {"revision", "transformers, vLLM, SGLang, TGI", "write MODEL@REVISION"},
    {"trust_remote_code", "transformers, vLLM, SGLang, TGI", kCode},
    {"quantization", "vLLM, SGLang", kQuantized},
    {"load_format", "vLLM, SGLang", kLeaveOut},
    {"tokenizer_mode", "vLLM, SGLang", kLeaveOut},
    {"tool_call_parser", "vLLM, SGLang",
     "leave it out: the chat template says how calls are written; --tool-call-format names another "
     "format"},
    {"reasoning_parser", "vLLM, SGLang", kReasoning},
    {"download_dir", "vLLM, SGLang", kHubCache},
    {"tokenizer", "vLLM, SGLang", "leave it out; the model's own is taken"},
    {"chunked_prefill_size", "vLLM, SGLang", kStep},
    {"dist_init_addr", "vLLM, SGLang", kServers},
    {"nnodes", "vLLM, SGLang", kServers},
    {"disable_log_requests", "vLLM, SGLang", kQuiet},
    {"log_requests", "vLLM, SGLang", kVerbose},
    {"gpu_memory_utilization", "vLLM", kCacheSize},
    {"kv_cache_memory_bytes", "vLLM", kCacheSize},
    {"max_num_seqs", "vLLM", kStreams},
    {"enable_prefix_caching", "vLLM", kPrefixes},
    {"no_enable_prefix_caching", "vLLM", kPrefixes},
    {"enable_chunked_prefill", "vLLM", kAlways},
    {"enforce_eager", "vLLM", kLeaveOut},
    {"block_size", "vLLM", kLeaveOut},
    {"cpu_offload_gb", "vLLM", kLeaveOut},
    {"response_role", "vLLM", kLeaveOut},
    {"chat_template_content_format", "vLLM", kLeaveOut},
    {"api_server_count", "vLLM", kLeaveOut},
    {"enable_auto_tool_choice", "vLLM", kAlways},
    {"guided_decoding_backend", "vLLM", kGrammars},
    {"structured_outputs_config", "vLLM", kGrammars},
    {"pipeline_parallel_size", "vLLM", kDevices},
    {"data_parallel_size", "vLLM", kServers},
    {"disable_log_stats", "vLLM", kQuiet},
    {"uvicorn_log_level", "vLLM", kQuiet},
    {"enable_log_requests", "vLLM", "write --log-prompts, which shows how each prompt begins"},
    {"max_log_len", "vLLM", "write --log-prompts, which shows how each prompt begins"},
    {"root_path", "vLLM", "leave it out; a proxy in front may take a path off"},
    {"allowed_origins", "vLLM", kPages},
    {"allowed_methods", "vLLM",
     "leave it out; pages of --allow-origin may use all of them, without cookies"},
    {"allowed_headers", "vLLM",
     "leave it out; pages of --allow-origin may use all of them, without cookies"},
    {"allow_credentials", "vLLM",
     "leave it out; pages of --allow-origin may use all of them, without cookies"},
    {"seed", "vLLM", "leave it out; a request has its `seed`"},
    {"max_logprobs", "vLLM", "leave it out; a request may have up to 1024"},
    {"speculative_config", "vLLM", kDrafts},
    {"num_speculative_tokens", "vLLM", kDrafts},
    {"speculative_model", "vLLM", kDrafts},
    {"generation_config", "vLLM", kRequests},
    {"override_generation_config", "vLLM", kRequests},
    {"hf_token", "vLLM", kToken},
    {"enable_request_id_headers", "vLLM", kAlways},
    {"enable_sleep_mode", "vLLM", "write --unload-after TIME, with auto in the place of MODEL"},
    {"scheduling_policy", "vLLM",
     "leave it out; connections and keys have fair shares, and priority orders the requests of "
     "one"},
    {"otlp_traces_endpoint", "vLLM", kTraces},
    {"model_path", "SGLang", kModel},
    {"mem_fraction_static", "SGLang", kCacheSize},
    {"dp_size", "SGLang", kServers},
    {"max_running_requests", "SGLang", kStreams},
    {"max_prefill_tokens", "SGLang", "write --max-batch-prefill-tokens N"},
    {"schedule_policy", "SGLang", "leave it out; connections and keys have fair shares"},
    {"schedule_conservativeness", "SGLang", "leave it out; connections and keys have fair shares"},
    {"attention_backend", "SGLang", kLeaveOut},
    {"sampling_backend", "SGLang", kLeaveOut},
    {"cuda_graph_max_bs", "SGLang", kLeaveOut},
    {"disable_cuda_graph", "SGLang", kLeaveOut},
    {"mem_fraction", "SGLang", kLeaveOut},
    {"grammar_backend", "SGLang", kGrammars},
    {"disable_radix_cache", "SGLang", kPrefixes},
    {"enable_metrics", "SGLang", kMetrics},
    {"enable_deterministic_inference", "SGLang", kAlways},
    {"speculative_algorithm", "SGLang", kDrafts},
    {"speculative_num_steps", "SGLang", kDrafts},
    {"lora_paths", "SGLang", kAdapters},
    {"skip_server_warmup", "SGLang", kLeaveOut},
    {"model_id", "TGI", kModel},
    {"quantize", "TGI", kQuantized},
    {"sharded", "TGI", kDevices},
    {"hostname", "TGI", "write --host"},
    {"huggingface_hub_cache", "TGI", kHubCache},
    {"weights_cache_override", "TGI", kHubCache},
    {"cuda_memory_fraction", "TGI", kCacheSize},
    {"json_output", "TGI", "write --log-format json"},
    {"otlp_endpoint", "TGI", kTraces},
    {"otlp_service_name", "TGI", kTraces},
    {"cors_allow_origin", "TGI", kPages},
    {"max_batch_size", "TGI", kStreams},
    {"max_client_batch_size", "TGI", kLeaveOut},
    {"validation_workers", "TGI", kLeaveOut},
    {"master_port", "TGI", kLeaveOut},
    {"master_addr", "TGI", kLeaveOut},
    {"shard_uds_path", "TGI", kLeaveOut},
    {"disable_custom_kernels", "TGI", kLeaveOut},
    {"disable_grammar_support", "TGI", kLeaveOut},
    {"rope_scaling", "TGI", kConfig},
    {"rope_factor", "TGI", kConfig},
    {"tokenizer_config_path", "TGI", "leave it out; --chat-template FILE has another template"},
    {"prometheus_port", "TGI", kMetrics},
    {"lora_adapters", "TGI", kAdapters},
    {"trust_remote", "TGI", kCode},
    {"hf", "llama.cpp", kModel},
    {"hfr", "llama.cpp", kModel},
    {"hf_repo", "llama.cpp", kModel},
    {"n_ctx", "llama.cpp", kContext},
    {"ngl", "llama.cpp", kDevice},
    {"gpu_layers", "llama.cpp", kDevice},
    {"n_gpu_layers", "llama.cpp", kDevice},
    {"n_threads", "llama.cpp", kThreads},
    {"tb", "llama.cpp", kThreads},
    {"threads_batch", "llama.cpp", kThreads},
    {"b", "llama.cpp", kStep},
    {"ub", "llama.cpp", kStep},
    {"batch_size", "llama.cpp", kStep},
    {"ubatch_size", "llama.cpp", kStep},
    {"np", "llama.cpp", kStreams},
    {"parallel", "llama.cpp", kStreams},
    {"cb", "llama.cpp", kAlways},
    {"cont_batching", "llama.cpp", kAlways},
    {"fa", "llama.cpp", kLeaveOut},
    {"flash_attn", "llama.cpp", kLeaveOut},
    {"mlock", "llama.cpp", kLeaveOut},
    {"no_mmap", "llama.cpp", kLeaveOut},
    {"numa", "llama.cpp", kLeaveOut},
    {"prio", "llama.cpp", kLeaveOut},
    {"ctk", "llama.cpp", kTypeOfCache},
    {"cache_type_k", "llama.cpp", kTypeOfCache},
    {"ctv", "llama.cpp", kTypeOfCache},
    {"cache_type_v", "llama.cpp", kTypeOfCache},
    {"jinja", "llama.cpp", kAlways},
    {"reasoning_format", "llama.cpp", kReasoning},
    {"reasoning_budget", "llama.cpp", kReasoning},
    {"grammar", "llama.cpp", "leave it out; a request has its grammar"},
    {"grammar_file", "llama.cpp", "leave it out; a request has its grammar"},
    {"json_schema", "llama.cpp", "leave it out; a request has its grammar"},
    {"n", "llama.cpp", kRequests},
    {"n_predict", "llama.cpp", kRequests},
    {"temp", "llama.cpp", kRequests},
    {"top_k", "llama.cpp", kRequests},
    {"top_p", "llama.cpp", kRequests},
    {"min_p", "llama.cpp", kRequests},
    {"repeat_penalty", "llama.cpp", kRequests},
    {"s", "llama.cpp", kRequests},
    {"lora", "llama.cpp", kAdapters},
    {"lora_scaled", "llama.cpp", kAdapters},
    {"md", "llama.cpp", kDrafts},
    {"model_draft", "llama.cpp", kDrafts},
    {"draft", "llama.cpp", kDrafts},
    {"draft_max", "llama.cpp", kDrafts},
    {"rope_freq_base", "llama.cpp", kConfig},
    {"embedding", "llama.cpp", kNotServed},
    {"embeddings", "llama.cpp", kNotServed},
    {"rerank", "llama.cpp", kNotServed},
    {"reranking", "llama.cpp", kNotServed},
    {"mmproj", "llama.cpp", kNotServed},
    {"ts", "llama.cpp", kDevices},
    {"tensor_split", "llama.cpp", kDevices},
    {"sm", "llama.cpp", kDevices},
    {"split_mode", "llama.cpp", kDevices},
    {"rpc", "llama.cpp", kServers},
    {"metrics", "llama.cpp", kMetrics},
    {"slots", "llama.cpp", kMetrics},
    {"no_webui", "llama.cpp", kLeaveOut},
    {"log_disable", "llama.cpp", kQuiet},
    {"lv", "llama.cpp", kVerbose},
    {"verbosity", "llama.cpp", kVerbose},
    {"keepalive", "Ollama", "write --unload-after TIME, with auto in the place of MODEL"},
    {"format", "Ollama", kRequests},
    {"think", "Ollama", kRequests},
    {"hidethinking", "Ollama", kRequests},
    {"nowordwrap", "Ollama", kLeaveOut},
    {"verbose", "LMQL, llama.cpp, Ollama", kVerbose},
};

// Misspelt: a letter or two are others, of a word of some length.
const std::string* nearest(std::string_view name, const std::vector<std::string>& own) {
  constexpr std::size_t kFarthest = 2;
  constexpr std::size_t kShortest = 4;
  if (name.size() < kShortest) return nullptr;
  const auto distance = [&](const std::string& option) {
    return edit_distance(name, std::string_view(option).substr(2));
  };
  const auto found = std::ranges::min_element(own, {}, distance);
  return found != own.end() && distance(*found) <= kFarthest ? &*found : nullptr;
}

}  // namespace

std::span<const ForeignOption> foreign_options() { return kForeign; }

void take_named_model(std::vector<std::string>& arguments) {
  constexpr std::string_view kWithValue = "--model=";
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    if (word->starts_with(kWithValue)) word->erase(0, kWithValue.size());
    const bool is_name = *word == "-m" || *word == "--model";
    if (is_name && word + 1 != arguments.end()) word = arguments.erase(word);
  }
}

std::string instead_of(std::string_view word, const std::vector<std::string>& own_options) {
  const std::string_view option = word.substr(0, word.find('='));
  const std::string_view bare =
      option.substr(std::min(option.find_first_not_of('-'), option.size()));
  std::string name(bare);
  std::replace(name.begin(), name.end(), '-', '_');
  const auto* const found = std::ranges::find(kForeign, name, &ForeignOption::name);
  const bool is_option = word.starts_with('-');
  if (found != std::end(kForeign) && (is_option || name.size() > 1)) {
    return std::string(option) + ": " + found->instead;
  }
  if (!is_option) {
    return "'" + std::string(word) +
           "' is one name too many; MODEL is one, and --served-model-name is repeated for each";
  }
  std::replace(name.begin(), name.end(), '_', '-');
  const std::string none = std::string(option) + " is no option of lmtp-serve";
  if (const std::string* own = nearest(name, own_options)) return none + "; is " + *own + " meant?";
  return none + ", which hands nothing on to transformers as `lmql serve-model` does";
}

}  // namespace lmtp::tools
