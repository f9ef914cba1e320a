// ModelFactory: from a name to a model that can be loaded. The seam between the registry and hub,
// config and weights; tests put null agents behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/result.h"
#include "lmtp/engine/engine.h"
#include "lmtp/request/adapter.h"
#include "lmtp/scheduler/model_agent.h"
#include "lmtp/text/chat_template.h"
#include "lmtp/text/decision_config.h"
#include "lmtp/text/embedding_config.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::registry {

// What MODEL_INFO shows of a model, besides the engine's counters.
struct ModelDescription {
  std::string name;          // as it was asked for, or as the operator has it called
  bool hides_path = false;   // the latter: clients are told no path, nor the name on the hub
  std::string type;          // config.json's model_type: "gpt2"
  std::string architecture;  // config.json's architectures[0]: "GPT2LMHeadModel"
  std::string constructor;   // how the reference would load it, as LMQL prints it
  std::string tokenizer;     // folder or name of the tokenizer
  std::string commit;        // of the hub's repository; empty: it is not from the hub's cache
  std::string dtype;
  std::string kv_dtype;      // of keys and values
  std::string dtype_reason;  // why it was chosen; empty if by --dtype or by default
  std::string quantization;  // how a quantised checkpoint calls itself: "gptq"; else empty
  std::vector<std::string> quantized_weights;  // "int4 in groups of 128"
  std::string device;
  std::int64_t num_parameters = 0;  // 0: not known before the weights are loaded
  int trained_context_length = 0;   // served unless memory is short: then less
  std::vector<std::string> notes;   // what a user should know of how the folder is read
};

// How an adapter is read.
struct AdapterReading {
  bool by_request = false;     // a client has named the folder, and may reach some alone
  int blocks_max = INT32_MAX;  // Adapter::num_blocks
  // Asked now and then; where it says no, reading ends with kStopping.
  std::function<bool()> goes_on = {};
};

// Reads an adapter for the agents of a model. Seconds; any thread.
using LoadAdapter = std::function<Result<std::shared_ptr<const Adapter>>(
    const AdapterSource& source, const AdapterReading& reading)>;

// What a model takes. An estimate, on the safe side.
struct MemoryNeed {
  std::int64_t weights_bytes = 0;  // and all else that does not depend on the KV cache
  std::int64_t kv_bytes_min = 0;   // the smallest that is worth loading the model for
  std::int64_t kv_bytes = 0;       // what the user wants; 0: kv_bytes_wanted() decides
  bool on_device = false;          // which takes its KV cache at once
};

// The size of the KV cache with so much memory free (nullopt: the system does not say): what the
// user wants, or the default, but at least kv_bytes_min. Any thread.
std::int64_t kv_bytes_wanted(const MemoryNeed& need, std::optional<std::int64_t> free_bytes);

// A model's tokenizer, or why it has none.
using LoadedTokenizer = Result<std::shared_ptr<const tokenizer::Tokenizer>>;

// What runs a model's controllers, or why there are none.
using LoadedControllers = Result<std::shared_ptr<aici::Runtime>>;
using LoadControllers =
    std::function<LoadedControllers(const std::shared_ptr<const tokenizer::Tokenizer>&)>;
inline const Error kNoControllers{
    ErrorCode::kInvalid, "this server runs none; start it with --aici, or leave controller out"};

// A model that has been found on this machine.
struct ServedModel {
  // The same for all names of one model, such as its canonical folder: what has one key is loaded
  // once.
  std::string key;
  ModelDescription description;
  std::vector<std::string> names;  // all that it answers to where it is served alone
  engine::ModelLimits limits;
  engine::EngineOptions options;
  MemoryNeed memory;
  // The longest stream that a KV cache of that size serves; empty: any serves
  // limits.context_length.
  std::function<int(std::int64_t kv_bytes)> context_of;
  // Loads it, with a KV cache of that size. Seconds; any thread.
  std::function<Result<std::unique_ptr<scheduler::ModelAgent>>(
      std::int64_t kv_bytes, const scheduler::LoadProgress& progress)>
      load;
  // Its tokenizer; empty: it has none. Any thread, beside load().
  std::function<LoadedTokenizer()> load_tokenizer = {};
  // Its chat template, over its tokenizer; empty: it has none. Any thread, beside load().
  std::function<text::LoadedChatTemplate(std::shared_ptr<const tokenizer::Tokenizer>)>
      load_chat_template = {};
  // How it is asked for decisions; empty: by the defaults. As well.
  std::function<text::LoadedDecisions(std::shared_ptr<const tokenizer::Tokenizer>)> load_decisions =
      {};
  // How it makes embeddings; empty: by the defaults. Any thread, beside load().
  std::function<text::LoadedEmbeddings()> load_embeddings = {};
  // How it writes calls: a name as text::find_reply_layout takes it; empty: by its template.
  std::string tool_call_format = {};
  // What runs its controllers, over its tokenizer; empty: none are run. As well.
  LoadControllers load_controllers = {};
  std::vector<AdapterSource> adapters = {};  // that it is served with from its start
  std::size_t adapters_max = 64;             // held in memory at a time
  LoadAdapter load_adapter = {};             // empty: it takes none
};

// How far a download is.
struct DownloadState {
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;  // 0: not known yet

  int percent() const;  // [0, 100]
};

// Owner: Registry. Any thread, several at once.
class ModelFactory {
 public:
  virtual ~ModelFactory() = default;

  // What is on this machine under that name, or why there is nothing and what would help. Reads a
  // few small files; uses no network.
  virtual Result<ServedModel> find(const std::string& name) = 0;

  // Called with the progress of a download; false: it should end soon with an error.
  using DownloadProgress = std::function<bool(const DownloadState& state)>;

  // As find, but what is missing is downloaded where that is allowed: it may take as long as that.
  // `progress` is called only where something is downloaded, from one thread at a time.
  virtual Result<ServedModel> fetch(const std::string& name, const DownloadProgress& progress) = 0;

  // Memory that may still be taken; nullopt if the system does not say.
  virtual std::optional<std::int64_t> free_memory_bytes() = 0;
};

}  // namespace lmtp::registry
