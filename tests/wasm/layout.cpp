// Prints the sizes of our declarations of wasmtime's types, for layout_test.py.
#include <cstddef>
#include <iostream>

#include "api.h"

int main() {
  std::cout << LMTP_WASMTIME_WHEEL << '\n'
            << "wasm_byte_vec_t " << sizeof(wasm_byte_vec_t) << ' '
            << offsetof(wasm_byte_vec_t, data) << " data\n"
            << "wasm_valtype_vec_t " << sizeof(wasm_valtype_vec_t) << ' '
            << offsetof(wasm_valtype_vec_t, data) << " data\n"
            << "wasmtime_val_raw_t " << sizeof(wasmtime_val_raw_t) << ' '
            << offsetof(wasmtime_val_raw_t, i64) << " i64\n"
            << "wasmtime_func_t " << sizeof(wasmtime_func_t) << ' '
            << offsetof(wasmtime_func_t, index) << " __private\n"
            << "wasmtime_instance_t " << sizeof(wasmtime_instance_t) << ' '
            << offsetof(wasmtime_instance_t, index) << " __private\n"
            << "wasmtime_memory_t " << sizeof(wasmtime_memory_t) << ' '
            << offsetof(wasmtime_memory_t, index) << " __private2\n"
            << "wasmtime_extern_t " << sizeof(wasmtime_extern_t) << ' '
            << offsetof(wasmtime_extern_t, of) << " of\n";
  return 0;
}
