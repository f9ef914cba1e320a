// What Instance sees of the other classes' inside.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "api.h"
#include "lmtp/wasm/wasm.h"
#include "module_info.h"
#include "ticker.h"

namespace lmtp::wasm {

struct Module::Impl {
  Impl(const Api& the_api, wasmtime_module_t* the_module, ModuleInfo the_info)
      : api(the_api), module(the_module), info(std::move(the_info)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { api.wasmtime_module_delete(module); }

  const Api& api;
  wasmtime_module_t* const module;
  const ModuleInfo info;
};

struct Engine::Impl {
  explicit Impl(const Api& the_api);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const Api& api;
  wasm_engine_t* const engine;
  std::unique_ptr<Ticker> ticker;
};

// What a host function's callback gets from wasmtime.
struct HostBinding {
  const Api* api;
  HostFunction function;
};

struct Imports::Impl {
  Impl(std::shared_ptr<Engine> the_engine, wasmtime_linker_t* the_linker)
      : engine(std::move(the_engine)), linker(the_linker) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { engine->impl_->api.wasmtime_linker_delete(linker); }

  const std::shared_ptr<Engine> engine;
  wasmtime_linker_t* const linker;
  std::vector<HostBinding> bindings;  // its elements stay where they are
};

// The callback of all host functions; env is a HostBinding.
wasm_trap_t* call_host(void* env, wasmtime_caller_t* caller, wasmtime_val_raw_t* values,
                       std::size_t num_values);

}  // namespace lmtp::wasm
