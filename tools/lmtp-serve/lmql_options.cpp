#include "lmql_options.h"

#include <algorithm>

namespace lmtp::tools {
namespace {

struct Advice {
  std::string_view option;  // as LMQL, transformers and llama.cpp write it
  const char* instead;
};

constexpr const char* kBits = "write --dtype int8 or --dtype int4";
constexpr const char* kDtype = "write --dtype";
constexpr const char* kDevice = "write --cuda, or --device cuda:N for one of several";
constexpr const char* kQuantized =
    "leave it out: config.json says how a checkpoint is quantised; --dtype int8 quantises at load";
constexpr const char* kLeaveOut = "leave it out; it has no meaning here";
constexpr const char* kToken = "set HF_TOKEN in the environment, or log in with `hf auth login`";

constexpr Advice kAdvice[] = {
    {"single_thread", "leave it out; each model computes on threads of its own (--threads N)"},
    {"docker_hide_port", kLeaveOut},
    {"loader", kQuantized},
    {"balance", "write lmtp-serve balance HOST:PORT..., with no MODEL"},
    {"bits", kBits},
    {"load_in_8bit", "write --dtype int8"},
    {"load_in_4bit", "write --dtype int4"},
    {"quantization_config", kQuantized},
    {"torch_dtype", kDtype},
    {"device_map", kDevice},
    {"n_gpu_layers", kDevice},
    {"batch_size", "write --max-batched-tokens; requests of all clients share one batch"},
    {"max_memory", "write --kv-cache SIZE"},
    {"n_ctx", "write --context-length N"},
    {"n_threads", "write --threads N"},
    {"revision", "write MODEL@REVISION"},
    {"cache_dir", "set HF_HUB_CACHE in the environment"},
    {"token", kToken},
    {"use_auth_token", kToken},
    {"local_files_only", "set HF_HUB_OFFLINE=1 in the environment"},
    {"trust_remote_code", "leave it out; code that comes with a model is not run here"},
    {"use_safetensors", "leave it out; safetensors are taken where they are there"},
    {"low_cpu_mem_usage", kLeaveOut},
    {"attn_implementation", kLeaveOut},
    {"silent", "write --log-level warning"},
    {"verbose", "write --log-level debug"},
};

}  // namespace

std::string instead_of(std::string_view word) {
  const std::string_view option = word.substr(0, word.find('='));
  std::string name(option.substr(std::min(option.find_first_not_of('-'), option.size())));
  std::replace(name.begin(), name.end(), '-', '_');
  const auto* const found = std::find_if(std::begin(kAdvice), std::end(kAdvice),
                                         [&](const Advice& known) { return known.option == name; });
  if (found != std::end(kAdvice)) return std::string(option) + ": " + found->instead;
  if (!word.starts_with('-')) {
    return "'" + std::string(word) +
           "' is one name too many; MODEL is one, and --served-model-name is repeated for each";
  }
  return std::string(option) +
         " is no option of lmtp-serve, which hands nothing on to transformers as `lmql "
         "serve-model` "
         "does";
}

}  // namespace lmtp::tools
