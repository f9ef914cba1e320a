#include "api.h"
#include "lmtp/base/installed.h"

#include <dlfcn.h>

#include <string>

namespace lmtp::wasm {

namespace {

constexpr const char* kLibraryPath = "lib/lmtp/libwasmtime.so";
constexpr const char* kRemedy = "): install all of a build with -DLMTP_WASM=ON";

// Looks up one function after the other.
class Functions {
 public:
  explicit Functions(void* library) : library_(library) {}

  template <typename F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

void find_engine(Functions& from, Api& api) {
  from.find(api.wasm_config_new, "wasm_config_new");
  from.find(api.wasm_engine_new_with_config, "wasm_engine_new_with_config");
  from.find(api.wasm_engine_delete, "wasm_engine_delete");
  from.find(api.wasmtime_config_epoch_interruption_set, "wasmtime_config_epoch_interruption_set");
  from.find(api.wasmtime_config_max_wasm_stack_set, "wasmtime_config_max_wasm_stack_set");
  from.find(api.wasmtime_config_parallel_compilation_set,
            "wasmtime_config_parallel_compilation_set");
  from.find(api.wasmtime_config_wasm_threads_set, "wasmtime_config_wasm_threads_set");
  from.find(api.wasmtime_config_wasm_tail_call_set, "wasmtime_config_wasm_tail_call_set");
  from.find(api.wasmtime_config_wasm_reference_types_set,
            "wasmtime_config_wasm_reference_types_set");
  from.find(api.wasmtime_config_wasm_function_references_set,
            "wasmtime_config_wasm_function_references_set");
  from.find(api.wasmtime_config_wasm_gc_set, "wasmtime_config_wasm_gc_set");
  from.find(api.wasmtime_config_wasm_exceptions_set, "wasmtime_config_wasm_exceptions_set");
  from.find(api.wasmtime_config_wasm_relaxed_simd_set, "wasmtime_config_wasm_relaxed_simd_set");
  from.find(api.wasmtime_config_wasm_multi_memory_set, "wasmtime_config_wasm_multi_memory_set");
  from.find(api.wasmtime_config_wasm_memory64_set, "wasmtime_config_wasm_memory64_set");
  from.find(api.wasmtime_config_wasm_component_model_set,
            "wasmtime_config_wasm_component_model_set");
  from.find(api.wasmtime_config_wasm_component_model_async_set,
            "wasmtime_config_wasm_component_model_async_set");
  from.find(api.wasmtime_engine_increment_epoch, "wasmtime_engine_increment_epoch");
  from.find(api.wasmtime_module_new, "wasmtime_module_new");
  from.find(api.wasmtime_module_serialize, "wasmtime_module_serialize");
  from.find(api.wasmtime_module_deserialize, "wasmtime_module_deserialize");
  from.find(api.wasmtime_module_delete, "wasmtime_module_delete");
  from.find(api.wasmtime_linker_new, "wasmtime_linker_new");
  from.find(api.wasmtime_linker_delete, "wasmtime_linker_delete");
  from.find(api.wasmtime_linker_define_func_unchecked, "wasmtime_linker_define_func_unchecked");
  from.find(api.wasmtime_linker_instantiate, "wasmtime_linker_instantiate");
  from.find(api.wasm_functype_new, "wasm_functype_new");
  from.find(api.wasm_functype_delete, "wasm_functype_delete");
  from.find(api.wasm_valtype_new, "wasm_valtype_new");
  from.find(api.wasm_valtype_vec_new, "wasm_valtype_vec_new");
}

void find_store(Functions& from, Api& api) {
  from.find(api.wasmtime_store_new, "wasmtime_store_new");
  from.find(api.wasmtime_store_delete, "wasmtime_store_delete");
  from.find(api.wasmtime_store_context, "wasmtime_store_context");
  from.find(api.wasmtime_store_limiter, "wasmtime_store_limiter");
  from.find(api.wasmtime_store_epoch_deadline_callback, "wasmtime_store_epoch_deadline_callback");
  from.find(api.wasmtime_context_get_data, "wasmtime_context_get_data");
  from.find(api.wasmtime_context_set_epoch_deadline, "wasmtime_context_set_epoch_deadline");
  from.find(api.wasmtime_caller_context, "wasmtime_caller_context");
  from.find(api.wasmtime_instance_export_get, "wasmtime_instance_export_get");
  from.find(api.wasmtime_func_call_unchecked, "wasmtime_func_call_unchecked");
  from.find(api.wasmtime_func_type, "wasmtime_func_type");
  from.find(api.wasm_functype_params, "wasm_functype_params");
  from.find(api.wasm_functype_results, "wasm_functype_results");
  from.find(api.wasm_valtype_kind, "wasm_valtype_kind");
  from.find(api.wasmtime_memory_data, "wasmtime_memory_data");
  from.find(api.wasmtime_memory_data_size, "wasmtime_memory_data_size");
  from.find(api.wasmtime_memory_grow, "wasmtime_memory_grow");
  from.find(api.wasmtime_trap_new, "wasmtime_trap_new");
  from.find(api.wasm_trap_message, "wasm_trap_message");
  from.find(api.wasm_trap_delete, "wasm_trap_delete");
  from.find(api.wasmtime_error_new, "wasmtime_error_new");
  from.find(api.wasmtime_error_message, "wasmtime_error_message");
  from.find(api.wasmtime_error_delete, "wasmtime_error_delete");
  from.find(api.wasm_byte_vec_delete, "wasm_byte_vec_delete");
}

Result<Api> find_api() {
  const auto path = installed_path(kLibraryPath);
  if (!path) return path.error();
  void* const library = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{ErrorCode::kUnavailable,
                 std::string("wasmtime cannot be loaded (") + dlerror() + kRemedy};
  }
  Functions functions(library);
  Api api = {};
  find_engine(functions, api);
  find_store(functions, api);
  if (!functions.missing().empty()) {
    return Error{ErrorCode::kUnavailable, "wasmtime cannot be used (" + path->string() +
                                              " has no " + functions.missing() + kRemedy};
  }
  return api;
}

}  // namespace

Result<const Api*> load_api() {
  static const Result<Api> found = find_api();
  if (!found) return found.error();
  return &*found;
}

std::string take_message(const Api& api, wasmtime_error_t* error, wasm_trap_t* trap) {
  wasm_byte_vec_t bytes = {};
  if (error != nullptr) {
    api.wasmtime_error_message(error, &bytes);
    api.wasmtime_error_delete(error);
  } else {
    api.wasm_trap_message(trap, &bytes);
  }
  if (trap != nullptr) api.wasm_trap_delete(trap);
  std::string text(bytes.data, bytes.size);
  api.wasm_byte_vec_delete(&bytes);
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
  return text;
}

}  // namespace lmtp::wasm
