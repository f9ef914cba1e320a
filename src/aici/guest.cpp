#include "guest.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lmtp/base/utf8.h"
#include "token_trie.h"

namespace lmtp::aici {

namespace {

constexpr std::array<std::string_view, 3> kStepNames = {"aici_pre_process", "aici_mid_process",
                                                        "aici_post_process"};
constexpr std::size_t kMasksMax = 64;     // of one mid_process
constexpr std::size_t kWriteBytes = 128;  // beside name and value
constexpr std::size_t kCountedBytes = std::size_t{64} << 10;

using Clock = std::chrono::steady_clock;

}  // namespace

Result<std::shared_ptr<const World>> World::make(const EmbeddedOptions& options) {
  Result<std::shared_ptr<wasm::Engine>> engine = wasm::Engine::make();
  if (!engine) return engine.error();
  Result<std::shared_ptr<const wasm::Imports>> imports_a =
      wasm::Imports::make(*engine, host_functions(ModuleDialect::kA));
  if (!imports_a) return imports_a.error();
  Result<std::shared_ptr<const wasm::Imports>> imports_c =
      wasm::Imports::make(*engine, host_functions(ModuleDialect::kC));
  if (!imports_c) return imports_c.error();
  const int vocab_size = options.vocab_size;
  return std::make_shared<const World>(World{
      *engine, *imports_a, *imports_c, options.tokenizer,
      make_token_trie(*options.tokenizer, vocab_size, options.eos_id), vocab_size, options.eos_id,
      options.limits, std::make_shared<MemoryLimit>(options.limits.total_bytes)});
}

Result<std::unique_ptr<Guest>> Guest::make(std::shared_ptr<const World> world,
                                           std::shared_ptr<const wasm::Module> module,
                                           ModuleDialect dialect, std::string arg,
                                           Variables& variables) {
  std::unique_ptr<Guest> made(new Guest(std::move(world), dialect, variables));
  const World& its = *made->world_;
  Result<std::unique_ptr<wasm::Instance>> instance = wasm::Instance::make(
      dialect == ModuleDialect::kA ? its.imports_a : its.imports_c, std::move(module),
      {.memory_bytes = its.limits.memory_bytes, .start_time = its.limits.init_time}, made.get());
  if (!instance) return instance.error();
  made->instance_ = std::move(*instance);
  made->set_blob(kModuleArg, std::move(arg));
  if (Result<void> done = made->count_memory(made->num_bytes()); !done) return done.error();
  if (Result<void> done = made->find_functions(); !done) return done.error();
  return made;
}

Result<std::unique_ptr<Guest>> Guest::copy() const {
  if (has_failed_) return Error{ErrorCode::kInvalid, kPreviousError};
  std::unique_ptr<Guest> made(new Guest(world_, dialect_, variables_));
  if (Result<void> done = made->count_memory(num_bytes()); !done) return done.error();
  Result<std::unique_ptr<wasm::Instance>> instance = instance_->copy(made.get());
  if (!instance) return instance.error();
  made->instance_ = std::move(*instance);
  if (Result<void> done = made->find_functions(); !done) return done.error();
  made->handle_ = handle_;
  made->blobs_ = blobs_;
  return made;
}

// Those of another instance of the module are no good for this one.
Result<void> Guest::find_functions() {
  for (std::size_t i = 0; i < kStepNames.size(); ++i) {
    if (dialect_ == ModuleDialect::kC && static_cast<Entry>(i) != Entry::kMid) continue;
    Result<wasm::Instance::Function> found = instance_->find(kStepNames[i], 1, false);
    if (!found) return found.error();
    steps_[i] = *found;
  }
  return {};
}

Result<std::uint32_t> Guest::call(const wasm::Instance::Function& function,
                                  std::span<const std::uint32_t> args,
                                  std::chrono::milliseconds time) {
  if (has_failed_) return Error{ErrorCode::kInvalid, kPreviousError};
  result_.clear();
  const auto begin = Clock::now();
  Result<std::uint32_t> done = instance_->call(function, args, time);
  run_time_ += Clock::now() - begin;
  if (done) {
    if (Result<void> counted = count_memory(num_bytes()); !counted) done = counted.error();
  }
  has_failed_ = !done;
  if (has_failed_) {
    instance_.reset();
    (void)memory_.set(0);
  }
  return done;
}

// What a call has grown by is counted after it.
Result<void> Guest::count_memory(std::size_t bytes) {
  if (memory_.replace(memory_.bytes(), bytes)) return {};
  return Error{ErrorCode::kOverloaded,
               "controllers take more than " + std::to_string(world_->limits.total_bytes) +
                   " bytes together (--aici-max-total-memory); allowed is what others leave; retry "
                   "later"};
}

std::size_t Guest::num_bytes() const {
  std::size_t sum = result_.size() + log_.logs.size();
  for (const std::string& blob : blobs_) sum += blob.size();
  sum += masks_.size() * world_->num_words() * sizeof(std::uint32_t);
  // In steps: what changes from call to call by some bytes asks for nothing.
  return instance_->memory().size() + (sum / kCountedBytes + 1) * kCountedBytes;
}

Result<std::string> Guest::init(std::string process_arg) {
  const Result<wasm::Instance::Function> init = instance_->find("aici_init", 0, false);
  const Result<wasm::Instance::Function> create = instance_->find("aici_create", 0, true);
  const Result<wasm::Instance::Function> prompt = instance_->find("aici_init_prompt", 1, false);
  for (const auto* function : {&init, &create, &prompt}) {
    if (!*function) return function->error();
  }
  const auto time = world_->limits.init_time;
  if (Result<std::uint32_t> done = call(*init, {}, time); !done) return done.error();
  const Result<std::uint32_t> handle = call(*create, {}, time);
  if (!handle) return handle.error();
  handle_ = *handle;
  set_blob(kProcessArg, std::move(process_arg));
  if (Result<std::uint32_t> done = call(*prompt, {&handle_, 1}, time); !done) return done.error();
  return std::move(result_);
}

Result<std::string> Guest::run(Entry entry, std::string process_arg) {
  set_blob(kProcessArg, std::move(process_arg));
  if (entry == Entry::kMid) masks_.clear();
  const Result<std::uint32_t> done =
      call(steps_[static_cast<std::size_t>(entry)], {&handle_, 1}, world_->limits.step_time);
  if (!done) return done.error();
  if (result_.empty()) {
    return Error{ErrorCode::kInvalid, "aici_host_return_process_result was not called"};
  }
  return std::move(result_);
}

CallLog Guest::take_log() {
  // Coarse, so that a controller's client cannot time the processor's caches by it.
  constexpr std::int64_t kMicrosStep = 10;
  CallLog taken = std::exchange(log_, {});
  num_storage_bytes_ = 0;
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(run_time_).count();
  taken.micros = micros / kMicrosStep * kMicrosStep;
  run_time_ = {};
  if (!is_utf8(taken.logs)) {
    std::string valid;
    append_valid_utf8(taken.logs, valid);
    taken.logs = std::move(valid);
  }
  return taken;
}

// Of a flood the end is kept, which says what happened.
void Guest::write_log(std::string_view text) {
  const std::size_t bytes_max = world_->limits.log_bytes;
  if (text.size() > bytes_max) text.remove_prefix(text.size() - bytes_max);
  log_.logs += text;
  // Cut by a quarter at once, so that a flood of short lines does not copy the log with each.
  if (log_.logs.size() > bytes_max) {
    log_.logs.erase(0, log_.logs.size() - bytes_max + bytes_max / 4);
  }
}

Result<std::string_view> Guest::blob(std::uint32_t id) const {
  if (id == kTrie) return std::string_view(world_->trie);
  if (id >= kNumBlobs) {
    return Error{ErrorCode::kInvalid,
                 "aici_host_read_blob: there is no blob " + std::to_string(id)};
  }
  return std::string_view(blobs_[id]);
}

// bytes: world().num_words() words, at any address.
Result<std::uint32_t> Guest::add_mask(std::span<const std::uint8_t> bytes) {
  if (masks_.size() >= kMasksMax) {
    return Error{ErrorCode::kInvalid,
                 "aici_host_return_logit_bias: more than " + std::to_string(kMasksMax) + " masks"};
  }
  std::vector<std::uint32_t> words(world_->num_words());
  std::memcpy(words.data(), bytes.data(), bytes.size());
  const int num_last = world_->vocab_size % 32;
  if (num_last != 0) words.back() &= (std::uint32_t{1} << num_last) - 1;
  masks_.push_back(std::move(words));
  return static_cast<std::uint32_t>(masks_.size() - 1);
}

Result<void> Guest::run_storage(std::string_view command) {
  const std::size_t num_before = log_.storage.size();
  Result<std::string> answer = variables_.run(command, log_.storage);
  if (!answer) return answer.error();
  if (log_.storage.size() > num_before) {
    // As JSON, where a name may be of control characters and a value is hexadecimal.
    const VariableWrite& last = log_.storage.back();
    num_storage_bytes_ += kWriteBytes + 6 * last.name.size() + 2 * last.value.size();
  }
  const std::size_t bytes_max = kWriteBytes + 6 * world_->limits.variable_bytes;
  if (num_storage_bytes_ > bytes_max) {
    return Error{ErrorCode::kInvalid, "aici_host_storage_cmd: one call has written more than " +
                                          std::to_string(bytes_max) + " bytes as JSON"};
  }
  set_blob(kStorageResult, std::move(*answer));
  return {};
}

}  // namespace lmtp::aici
