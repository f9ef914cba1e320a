#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "api.h"
#include "impl.h"
#include "lmtp/base/guarded.h"
#include "lmtp/wasm/wasm.h"

namespace lmtp::wasm {

namespace {

constexpr std::int64_t kTableElementsMax = 100'000;
constexpr std::int64_t kTablesMax = 2;
constexpr std::size_t kPageBytes = std::size_t{64} << 10;
constexpr std::size_t kHostParamsMax = 9;  // WASI's path_open
constexpr std::size_t kCallParamsMax = 4;

std::chrono::nanoseconds processor_time() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::uint64_t num_ticks(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, time / Instance::kTick)) + 1;
}

}  // namespace

struct Instance::Impl {
  Impl(std::shared_ptr<const Imports> the_imports, std::shared_ptr<const Module> the_module,
       InstanceLimits the_limits)
      : imports(std::move(the_imports)),
        module(std::move(the_module)),
        limits(the_limits),
        engine(*imports->impl_->engine->impl_),
        api(engine.api) {}
  ~Impl() {
    if (store != nullptr) api.wasmtime_store_delete(store);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void begin(std::chrono::milliseconds the_time_max) {
    time_max = the_time_max;
    time_begin.reset();
    is_late = false;
    api.wasmtime_context_set_epoch_deadline(context, 1);
    engine.ticker->begin();
  }
  // error, trap: of the call.
  Result<void> end(wasmtime_error_t* error, wasm_trap_t* trap) {
    engine.ticker->end();
    if (error == nullptr && trap == nullptr) return {};
    std::string text = take_message(api, error, trap);
    if (is_late) {
      return Error{ErrorCode::kTimeout, "it took longer than " + std::to_string(time_max.count()) +
                                            " ms of the processor's time"};
    }
    return Error{ErrorCode::kInvalid, std::move(text)};
  }
  // At a tick: whether time is up. The clock that counts is the thread's, which others do not take
  // time from. It is read from the first tick on, since most calls see none and reading it takes as
  // long as they do.
  static wasmtime_error_t* on_deadline(wasmtime_context_t* /*context*/, void* data,
                                       std::uint64_t* delta, std::uint8_t* kind) {
    auto& impl = *static_cast<Impl*>(data);
    if (!impl.time_begin) impl.time_begin = processor_time();
    const auto left = *impl.time_begin + impl.time_max - processor_time();
    impl.is_late = left.count() <= 0;
    if (impl.is_late) return impl.api.wasmtime_error_new("time is up");
    *delta = num_ticks(left);
    *kind = kDeadlineContinue;
    return nullptr;
  }
  Result<void> start(Instance& instance) {
    store = api.wasmtime_store_new(engine.engine, &instance, nullptr);
    context = api.wasmtime_store_context(store);
    api.wasmtime_store_limiter(store, static_cast<std::int64_t>(limits.memory_bytes),
                               kTableElementsMax, 1, kTablesMax, 1);
    api.wasmtime_store_epoch_deadline_callback(store, on_deadline, this, nullptr);
    begin(limits.start_time);
    wasm_trap_t* trap = nullptr;
    wasmtime_error_t* const error = api.wasmtime_linker_instantiate(
        imports->impl_->linker, context, module->impl_->module, &exports, &trap);
    if (Result<void> done = end(error, trap); !done) return done;
    wasmtime_extern_t found = {};
    if (!get("memory", found) || found.kind != kExternMemory) {
      return Error{ErrorCode::kInvalid, "no memory is exported by the name memory"};
    }
    memory = found.of.memory;
    has_memory = true;
    return {};
  }
  bool get(std::string_view name, wasmtime_extern_t& found) const {
    return api.wasmtime_instance_export_get(context, &exports, name.data(), name.size(), &found);
  }

  const std::shared_ptr<const Imports> imports;
  const std::shared_ptr<const Module> module;
  const InstanceLimits limits;
  Engine::Impl& engine;
  const Api& api;
  wasmtime_store_t* store = nullptr;
  wasmtime_context_t* context = nullptr;  // of the store
  wasmtime_instance_t exports = {};
  wasmtime_memory_t memory = {};
  bool has_memory = false;
  // Of the call that runs.
  std::chrono::milliseconds time_max{};
  std::optional<std::chrono::nanoseconds> time_begin;
  bool is_late = false;
};

Instance::Instance(std::unique_ptr<Impl> impl, void* data) : impl_(std::move(impl)), data_(data) {}

Instance::~Instance() = default;

Result<std::unique_ptr<Instance>> Instance::make(std::shared_ptr<const Imports> imports,
                                                 std::shared_ptr<const Module> module,
                                                 InstanceLimits limits, void* data) {
  std::unique_ptr<Instance> made(
      new Instance(std::make_unique<Impl>(std::move(imports), std::move(module), limits), data));
  if (Result<void> done = made->impl_->start(*made); !done) return done.error();
  return made;
}

Result<std::unique_ptr<Instance>> Instance::copy(void* data) const {
  if (!impl_->module->copy_obstacle().empty()) {
    return Error{ErrorCode::kInvalid, impl_->module->copy_obstacle()};
  }
  Result<std::unique_ptr<Instance>> made = make(impl_->imports, impl_->module, impl_->limits, data);
  if (!made) return made;
  const std::span<const std::uint8_t> from = memory();
  const std::size_t size = (*made)->memory().size();
  if (size < from.size()) {
    std::uint64_t before = 0;
    wasmtime_error_t* const error =
        impl_->api.wasmtime_memory_grow((*made)->impl_->context, &(*made)->impl_->memory,
                                        (from.size() - size) / kPageBytes, &before);
    if (error != nullptr) {
      return Error{ErrorCode::kUnavailable, take_message(impl_->api, error, nullptr)};
    }
  }
  std::ranges::copy(from, (*made)->memory().begin());
  return made;
}

Result<Instance::Function> Instance::find(std::string_view name, int num_params,
                                          bool has_result) const {
  const auto quoted = [&] { return "the function " + std::string(name); };
  wasmtime_extern_t found = {};
  if (!impl_->get(name, found) || found.kind != kExternFunc) {
    return Error{ErrorCode::kNotFound, quoted() + " is not exported"};
  }
  const Api& api = impl_->api;
  wasm_functype_t* const type = api.wasmtime_func_type(impl_->context, &found.of.func);
  const auto are_i32 = [&](const wasm_valtype_vec_t* types, std::size_t num) {
    return types->size == num && std::all_of(types->data, types->data + num, [&](const auto* each) {
             return api.wasm_valtype_kind(each) == kKindI32;
           });
  };
  const bool fits = are_i32(api.wasm_functype_params(type), static_cast<std::size_t>(num_params)) &&
                    are_i32(api.wasm_functype_results(type), has_result ? 1 : 0);
  api.wasm_functype_delete(type);
  if (!fits) {
    return Error{ErrorCode::kInvalid, quoted() + " must have " + std::to_string(num_params) +
                                          " parameters of type i32 and " +
                                          (has_result ? "an i32 as result" : "no result")};
  }
  Function function;
  static_assert(sizeof(function.words) == sizeof(found.of.func));
  std::memcpy(function.words, &found.of.func, sizeof(function.words));
  function.has_result = has_result;
  return function;
}

Result<std::uint32_t> Instance::call(const Function& function, std::span<const std::uint32_t> args,
                                     std::chrono::milliseconds time_max) {
  LMTP_CHECK(args.size() <= kCallParamsMax);
  std::array<wasmtime_val_raw_t, kCallParamsMax> values = {};
  for (std::size_t i = 0; i < args.size(); ++i) values[i].i32 = static_cast<std::int32_t>(args[i]);
  wasmtime_func_t called = {};
  std::memcpy(&called, function.words, sizeof(called));
  wasm_trap_t* trap = nullptr;
  impl_->begin(time_max);
  wasmtime_error_t* const error = impl_->api.wasmtime_func_call_unchecked(
      impl_->context, &called, values.data(), values.size(), &trap);
  if (Result<void> done = impl_->end(error, trap); !done) return done.error();
  return function.has_result ? static_cast<std::uint32_t>(values[0].i32) : 0;
}

std::span<std::uint8_t> Instance::memory() const {
  if (!impl_->has_memory) return {};
  return {impl_->api.wasmtime_memory_data(impl_->context, &impl_->memory),
          impl_->api.wasmtime_memory_data_size(impl_->context, &impl_->memory)};
}

Result<std::span<std::uint8_t>> Instance::memory(std::uint32_t first, std::uint32_t size) const {
  const std::span<std::uint8_t> all = memory();
  if (first > all.size() || size > all.size() - first) {
    return Error{ErrorCode::kInvalid, "an address beyond the module's memory"};
  }
  return all.subspan(first, size);
}

wasm_trap_t* call_host(void* env, wasmtime_caller_t* caller, wasmtime_val_raw_t* values,
                       std::size_t /*num_values*/) {
  const auto& binding = *static_cast<const HostBinding*>(env);
  const Api& api = *binding.api;
  auto& instance =
      *static_cast<Instance*>(api.wasmtime_context_get_data(api.wasmtime_caller_context(caller)));
  const std::string_view params = binding.function.params;
  std::array<std::int64_t, kHostParamsMax> args = {};
  for (std::size_t i = 0; i < params.size(); ++i) {
    args[i] = params[i] == 'I' ? values[i].i64 : std::bit_cast<std::uint32_t>(values[i].i32);
  }
  const Result<void> done = guarded([&] { return binding.function.call(instance, args); });
  if (!done) {
    const std::string& text = done.error().message;
    return api.wasmtime_trap_new(text.data(), text.size());
  }
  if (binding.function.has_result) values[0].i32 = static_cast<std::int32_t>(args[0]);
  return nullptr;
}

}  // namespace lmtp::wasm
