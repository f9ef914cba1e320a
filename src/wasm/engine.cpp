#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "api.h"
#include "impl.h"
#include "lmtp/wasm/wasm.h"
#include "module_info.h"

namespace lmtp::wasm {

namespace {

constexpr std::size_t kStackBytesMax = std::size_t{512} << 10;

wasm_engine_t* make_engine(const Api& api) {
  wasm_config_t* const config = api.wasm_config_new();
  api.wasmtime_config_epoch_interruption_set(config, true);
  api.wasmtime_config_max_wasm_stack_set(config, kStackBytesMax);
  // A module that is compiled must not take the model's processors.
  api.wasmtime_config_parallel_compilation_set(config, false);
  api.wasmtime_config_wasm_threads_set(config, false);
  api.wasmtime_config_wasm_tail_call_set(config, false);
  api.wasmtime_config_wasm_gc_set(config, false);
  api.wasmtime_config_wasm_function_references_set(config, false);
  api.wasmtime_config_wasm_exceptions_set(config, false);
  api.wasmtime_config_wasm_reference_types_set(config, false);
  api.wasmtime_config_wasm_relaxed_simd_set(config, false);
  api.wasmtime_config_wasm_multi_memory_set(config, false);
  api.wasmtime_config_wasm_memory64_set(config, false);
  api.wasmtime_config_wasm_component_model_async_set(config, false);
  api.wasmtime_config_wasm_component_model_set(config, false);
  return api.wasm_engine_new_with_config(config);  // takes the config
}

wasm_valtype_vec_t make_types(const Api& api, std::string_view letters) {
  std::vector<wasm_valtype_t*> types;
  types.reserve(letters.size());
  for (const char letter : letters) {
    types.push_back(api.wasm_valtype_new(letter == 'I' ? kKindI64 : kKindI32));
  }
  wasm_valtype_vec_t taken = {};
  api.wasm_valtype_vec_new(&taken, types.size(), types.data());
  return taken;
}

Result<void> define(const Api& api, wasmtime_linker_t* linker, HostBinding& binding) {
  const HostFunction& function = binding.function;
  wasm_valtype_vec_t params = make_types(api, function.params);
  wasm_valtype_vec_t results = make_types(api, function.has_result ? "i" : "");
  wasm_functype_t* const type = api.wasm_functype_new(&params, &results);
  wasmtime_error_t* const error = api.wasmtime_linker_define_func_unchecked(
      linker, function.module, std::strlen(function.module), function.name,
      std::strlen(function.name), type, call_host, &binding, nullptr);
  api.wasm_functype_delete(type);
  if (error == nullptr) return {};
  return Error{ErrorCode::kInternal, "wasmtime: " + take_message(api, error, nullptr)};
}

const std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const std::uint8_t*>(text.data());
}

}  // namespace

Engine::Impl::Impl(const Api& the_api)
    : api(the_api),
      engine(make_engine(api)),
      ticker(std::make_unique<Ticker>(Instance::kTick,
                                      [this] { api.wasmtime_engine_increment_epoch(engine); })) {}

Engine::Impl::~Impl() {
  ticker.reset();
  api.wasm_engine_delete(engine);
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::shared_ptr<Engine>> Engine::make() {
  const Result<const Api*> api = load_api();
  if (!api) return api.error();
  return std::shared_ptr<Engine>(new Engine(std::make_unique<Impl>(**api)));
}

Result<std::shared_ptr<const Module>> Engine::compile(std::string_view wasm) {
  if (wasm.size() > kModuleBytesMax) {
    return Error{ErrorCode::kInvalid, "the module has " + std::to_string(wasm.size()) +
                                          " bytes; allowed are " + std::to_string(kModuleBytesMax)};
  }
  wasmtime_module_t* module = nullptr;
  wasmtime_error_t* const error =
      impl_->api.wasmtime_module_new(impl_->engine, bytes_of(wasm), wasm.size(), &module);
  if (error != nullptr) {
    return Error{ErrorCode::kInvalid, "it is no WebAssembly module that can be run: " +
                                          take_message(impl_->api, error, nullptr)};
  }
  return std::shared_ptr<const Module>(
      new Module(std::make_unique<Module::Impl>(impl_->api, module, module_info(wasm))));
}

Result<std::shared_ptr<const Module>> Engine::deserialize(std::string_view wasm,
                                                          std::string_view serialized) {
  wasmtime_module_t* module = nullptr;
  wasmtime_error_t* const error = impl_->api.wasmtime_module_deserialize(
      impl_->engine, bytes_of(serialized), serialized.size(), &module);
  if (error != nullptr) {
    return Error{ErrorCode::kInvalid, take_message(impl_->api, error, nullptr)};
  }
  return std::shared_ptr<const Module>(
      new Module(std::make_unique<Module::Impl>(impl_->api, module, module_info(wasm))));
}

Module::Module(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Module::~Module() = default;

Result<std::string> Module::serialize() const {
  const Api& api = impl_->api;
  wasm_byte_vec_t bytes = {};
  wasmtime_error_t* const error = api.wasmtime_module_serialize(impl_->module, &bytes);
  if (error != nullptr) {
    return Error{ErrorCode::kInternal, "wasmtime: " + take_message(api, error, nullptr)};
  }
  std::string text(bytes.data, bytes.size);
  api.wasm_byte_vec_delete(&bytes);
  return text;
}

bool Module::exports(std::string_view name) const { return impl_->info.exports.contains(name); }

const std::string& Module::copy_obstacle() const { return impl_->info.copy_obstacle; }

Imports::Imports(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Imports::~Imports() = default;

Result<std::shared_ptr<const Imports>> Imports::make(std::shared_ptr<Engine> engine,
                                                     std::span<const HostFunction> functions) {
  const Api& api = engine->impl_->api;
  wasmtime_linker_t* const linker = api.wasmtime_linker_new(engine->impl_->engine);
  auto impl = std::make_unique<Impl>(std::move(engine), linker);
  impl->bindings.reserve(functions.size());
  for (const HostFunction& function : functions) {
    impl->bindings.push_back({&api, function});
    if (Result<void> done = define(api, linker, impl->bindings.back()); !done) return done.error();
  }
  return std::shared_ptr<const Imports>(new Imports(std::move(impl)));
}

}  // namespace lmtp::wasm
