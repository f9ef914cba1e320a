// What is read of a module's bytes.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace lmtp::wasm {

struct ModuleInfo {
  std::set<std::string, std::less<>> exports;
  // Why a copy of the memory is no copy of an instance; empty: it is. A module of LLVM has one
  // mutable global, the stack's pointer, which is back at its place between calls; with another
  // one, or with instructions that write a table, it has more state.
  std::string copy_obstacle;
};

// REQUIRES: valid Wasm; of anything else the result means nothing.
ModuleInfo module_info(std::string_view wasm);

}  // namespace lmtp::wasm
