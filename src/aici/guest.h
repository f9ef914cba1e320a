// Guest: one instance of a controller's module, and what the host's functions do for it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/aici/embedded_runtime.h"
#include "lmtp/aici/runtime.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/wasm/wasm.h"
#include "variables.h"

namespace lmtp::aici {

enum class ModuleDialect {
  kA,  // pre_process, mid_process, post_process
  kC,  // mid_process alone
};

// What all guests of a runtime share. Immutable; any thread.
struct World {
  std::shared_ptr<wasm::Engine> engine;
  std::shared_ptr<const wasm::Imports> imports_a;  // they differ in the type of one function
  std::shared_ptr<const wasm::Imports> imports_c;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::string trie;
  int vocab_size = 0;
  TokenId eos_id = -1;
  Limits limits = {};
  std::shared_ptr<MemoryLimit> memory;  // of all guests

  std::size_t num_words() const { return (static_cast<std::size_t>(vocab_size) + 31) / 32; }
  static Result<std::shared_ptr<const World>> make(const EmbeddedOptions& options);
};

// The numbers by which controllers read their blobs are AICI's.
enum BlobId : std::uint32_t {
  kModuleArg = 1,
  kTokenize = 2,
  kTokens = 3,
  kProcessArg = 4,
  kStorageResult = 5,
  kNumBlobs = 6,
  kTrie = 100,
};

// Owner: a sequence; one thread at a time.
class Guest {
 public:
  // variables: outlive the guest.
  static Result<std::unique_ptr<Guest>> make(std::shared_ptr<const World> world,
                                             std::shared_ptr<const wasm::Module> module,
                                             ModuleDialect dialect, std::string arg,
                                             Variables& variables);
  // A copy as it is now. The error says why the module cannot be copied.
  Result<std::unique_ptr<Guest>> copy() const;
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  // Up to the prompt; gives what the controller returned.
  Result<std::string> init(std::string process_arg);
  enum class Entry { kPre, kMid, kPost };
  // The same of a step. After an error each call gives kPreviousError.
  Result<std::string> run(Entry entry, std::string process_arg);
  static constexpr const char* kPreviousError = "Previous WASM Error";

  void set_sequence(Sequence sequence) { sequence_ = sequence; }
  // What was logged and written since the last time.
  CallLog take_log();
  // The masks of the last mid_process, in order.
  std::vector<std::vector<std::uint32_t>>& masks() { return masks_; }

  // For the host's functions.
  void write_log(std::string_view text);
  Result<std::string_view> blob(std::uint32_t id) const;
  void set_blob(BlobId id, std::string bytes) { blobs_[id] = std::move(bytes); }
  void set_result(std::string_view result) { result_ = result; }
  Result<std::uint32_t> add_mask(std::span<const std::uint8_t> bytes);
  Result<void> run_storage(std::string_view command);
  const World& world() const { return *world_; }
  Sequence sequence() const { return sequence_; }

 private:
  Guest(std::shared_ptr<const World> world, ModuleDialect dialect, Variables& variables)
      : world_(std::move(world)),
        dialect_(dialect),
        variables_(variables),
        memory_(*world_->memory) {}

  Result<void> find_functions();
  Result<void> count_memory(std::size_t bytes);
  std::size_t num_bytes() const;
  Result<std::uint32_t> call(const wasm::Instance::Function& function,
                             std::span<const std::uint32_t> args, std::chrono::milliseconds time);

  const std::shared_ptr<const World> world_;
  const ModuleDialect dialect_;
  Variables& variables_;
  MemoryLimit::Part memory_;
  std::unique_ptr<wasm::Instance> instance_;
  std::array<wasm::Instance::Function, 3> steps_;
  std::uint32_t handle_ = 0;
  Sequence sequence_ = 0;
  bool has_failed_ = false;

  std::array<std::string, kNumBlobs> blobs_;
  std::string result_;
  std::vector<std::vector<std::uint32_t>> masks_;
  CallLog log_;
  std::size_t num_storage_bytes_ = 0;  // of log_, which a client gets in one message
  std::chrono::nanoseconds run_time_{};
};

// The functions of a dialect's controllers.
std::vector<wasm::HostFunction> host_functions(ModuleDialect dialect);

}  // namespace lmtp::aici
