// What we use of wasmtime's C interface, by our own declarations: its wheel has no header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lmtp/base/result.h"

// Their names and layouts are wasmtime's; tests/wasm/layout_test.py compares the sizes.
// NOLINTBEGIN(readability-identifier-naming)
struct wasm_config_t;
struct wasm_engine_t;
struct wasm_functype_t;
struct wasm_trap_t;
struct wasm_valtype_t;
struct wasmtime_caller_t;
struct wasmtime_context_t;
struct wasmtime_error_t;
struct wasmtime_linker_t;
struct wasmtime_module_t;
struct wasmtime_store_t;

struct wasm_byte_vec_t {
  std::size_t size;
  char* data;
};
struct wasm_valtype_vec_t {
  std::size_t size;
  wasm_valtype_t** data;
};
union wasmtime_val_raw_t {
  std::int32_t i32;
  std::int64_t i64;
  std::uint8_t v128[16];
};
struct wasmtime_func_t {
  std::uint64_t store_id;
  void* index;
};
struct wasmtime_instance_t {
  std::uint64_t store_id;
  std::size_t index;
};
struct wasmtime_memory_t {
  struct {
    std::uint64_t store_id;
    std::uint32_t instance;
  } owner;
  std::uint32_t index;
};
struct wasmtime_extern_t {
  std::uint8_t kind;
  union {
    wasmtime_func_t func;
    wasmtime_memory_t memory;
    std::uint64_t largest[3];
  } of;
};
// NOLINTEND(readability-identifier-naming)

namespace lmtp::wasm {

inline constexpr std::uint8_t kExternFunc = 0;
inline constexpr std::uint8_t kExternMemory = 3;
inline constexpr std::uint8_t kKindI32 = 0;
inline constexpr std::uint8_t kKindI64 = 1;
inline constexpr std::uint8_t kDeadlineContinue = 0;

using Callback = wasm_trap_t* (*)(void* env, wasmtime_caller_t* caller, wasmtime_val_raw_t* values,
                                  std::size_t num_values);
using DeadlineCallback = wasmtime_error_t* (*)(wasmtime_context_t* context, void* data,
                                               std::uint64_t* delta, std::uint8_t* kind);
using Finalizer = void (*)(void*);

// The functions, by their names in the library.
struct Api {
  wasm_config_t* (*wasm_config_new)();
  wasm_engine_t* (*wasm_engine_new_with_config)(wasm_config_t*);
  void (*wasm_engine_delete)(wasm_engine_t*);
  void (*wasmtime_config_epoch_interruption_set)(wasm_config_t*, bool);
  void (*wasmtime_config_max_wasm_stack_set)(wasm_config_t*, std::size_t);
  void (*wasmtime_config_parallel_compilation_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_threads_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_tail_call_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_reference_types_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_function_references_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_gc_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_exceptions_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_relaxed_simd_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_multi_memory_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_memory64_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_component_model_set)(wasm_config_t*, bool);
  void (*wasmtime_config_wasm_component_model_async_set)(wasm_config_t*, bool);
  void (*wasmtime_engine_increment_epoch)(wasm_engine_t*);

  wasmtime_error_t* (*wasmtime_module_new)(wasm_engine_t*, const std::uint8_t*, std::size_t,
                                           wasmtime_module_t**);
  wasmtime_error_t* (*wasmtime_module_serialize)(wasmtime_module_t*, wasm_byte_vec_t*);
  wasmtime_error_t* (*wasmtime_module_deserialize)(wasm_engine_t*, const std::uint8_t*, std::size_t,
                                                   wasmtime_module_t**);
  void (*wasmtime_module_delete)(wasmtime_module_t*);

  wasmtime_linker_t* (*wasmtime_linker_new)(wasm_engine_t*);
  void (*wasmtime_linker_delete)(wasmtime_linker_t*);
  wasmtime_error_t* (*wasmtime_linker_define_func_unchecked)(wasmtime_linker_t*, const char*,
                                                             std::size_t, const char*, std::size_t,
                                                             const wasm_functype_t*, Callback,
                                                             void*, Finalizer);
  wasmtime_error_t* (*wasmtime_linker_instantiate)(wasmtime_linker_t*, wasmtime_context_t*,
                                                   const wasmtime_module_t*, wasmtime_instance_t*,
                                                   wasm_trap_t**);
  wasm_functype_t* (*wasm_functype_new)(wasm_valtype_vec_t*, wasm_valtype_vec_t*);
  void (*wasm_functype_delete)(wasm_functype_t*);
  wasm_valtype_t* (*wasm_valtype_new)(std::uint8_t);
  void (*wasm_valtype_vec_new)(wasm_valtype_vec_t*, std::size_t, wasm_valtype_t* const*);

  wasmtime_store_t* (*wasmtime_store_new)(wasm_engine_t*, void*, Finalizer);
  void (*wasmtime_store_delete)(wasmtime_store_t*);
  wasmtime_context_t* (*wasmtime_store_context)(wasmtime_store_t*);
  void (*wasmtime_store_limiter)(wasmtime_store_t*, std::int64_t, std::int64_t, std::int64_t,
                                 std::int64_t, std::int64_t);
  void (*wasmtime_store_epoch_deadline_callback)(wasmtime_store_t*, DeadlineCallback, void*,
                                                 Finalizer);
  void* (*wasmtime_context_get_data)(const wasmtime_context_t*);
  void (*wasmtime_context_set_epoch_deadline)(wasmtime_context_t*, std::uint64_t);
  wasmtime_context_t* (*wasmtime_caller_context)(wasmtime_caller_t*);
  bool (*wasmtime_instance_export_get)(wasmtime_context_t*, const wasmtime_instance_t*, const char*,
                                       std::size_t, wasmtime_extern_t*);
  wasmtime_error_t* (*wasmtime_func_call_unchecked)(wasmtime_context_t*, const wasmtime_func_t*,
                                                    wasmtime_val_raw_t*, std::size_t,
                                                    wasm_trap_t**);
  wasm_functype_t* (*wasmtime_func_type)(const wasmtime_context_t*, const wasmtime_func_t*);
  const wasm_valtype_vec_t* (*wasm_functype_params)(const wasm_functype_t*);
  const wasm_valtype_vec_t* (*wasm_functype_results)(const wasm_functype_t*);
  std::uint8_t (*wasm_valtype_kind)(const wasm_valtype_t*);
  std::uint8_t* (*wasmtime_memory_data)(const wasmtime_context_t*, const wasmtime_memory_t*);
  std::size_t (*wasmtime_memory_data_size)(const wasmtime_context_t*, const wasmtime_memory_t*);
  wasmtime_error_t* (*wasmtime_memory_grow)(wasmtime_context_t*, const wasmtime_memory_t*,
                                            std::uint64_t, std::uint64_t*);

  wasm_trap_t* (*wasmtime_trap_new)(const char*, std::size_t);
  void (*wasm_trap_message)(const wasm_trap_t*, wasm_byte_vec_t*);
  void (*wasm_trap_delete)(wasm_trap_t*);
  wasmtime_error_t* (*wasmtime_error_new)(const char*);
  void (*wasmtime_error_message)(const wasmtime_error_t*, wasm_byte_vec_t*);
  void (*wasmtime_error_delete)(wasmtime_error_t*);
  void (*wasm_byte_vec_delete)(wasm_byte_vec_t*);
};

// Loads the library lib/lmtp/libwasmtime.so beside bin/ on the first call; it is never unloaded.
// The error says what to do. Any thread.
Result<const Api*> load_api();

// The text of an error or trap, which is deleted. REQUIRES: one of them is not null.
std::string take_message(const Api& api, wasmtime_error_t* error, wasm_trap_t* trap);

}  // namespace lmtp::wasm
