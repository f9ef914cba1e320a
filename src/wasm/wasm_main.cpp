// lmtp-wasm MODULE COMPILED: compiles a WebAssembly module, for a server that starts it. What a
// module takes of memory and time to be compiled is up to whoever wrote it: one that takes too much
// ends this process, not the server.
//
// Standard output says how it went: wasm::kCompiled, or what is wrong.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "lmtp/base/guarded.h"
#include "lmtp/wasm/wasm.h"

namespace lmtp::wasm {
namespace {

constexpr rlim_t kMemoryBytesMax = static_cast<rlim_t>(LMTP_WASM_MEMORY_MIB) << 20;

void limit_resources() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const rlimit memory{kMemoryBytesMax, kMemoryBytesMax};
  if (kMemoryBytesMax > 0) setrlimit(RLIMIT_AS, &memory);
  (void)!nice(10);  // the processors are the model's
}

Result<void> compile(const char* from, const char* to) {
  std::ifstream file(from, std::ios::binary);
  std::ostringstream wasm;
  wasm << file.rdbuf();
  const auto engine = Engine::make();
  if (!engine) return engine.error();
  const auto module = (*engine)->compile(wasm.view());
  if (!module) return module.error();
  const auto bytes = (*module)->serialize();
  if (!bytes) return bytes.error();
  std::ofstream compiled(to, std::ios::binary);
  compiled << *bytes << std::flush;
  if (!compiled) return Error{ErrorCode::kUnavailable, std::string(to) + " cannot be written"};
  return {};
}

}  // namespace
}  // namespace lmtp::wasm

int main(int argc, char** argv) {
  if (argc != 3) return EXIT_FAILURE;
  lmtp::wasm::limit_resources();
  const lmtp::Result<void> done =
      lmtp::guarded([&] { return lmtp::wasm::compile(argv[1], argv[2]); });
  const bool is_of_module = !done && done.error().code == lmtp::ErrorCode::kInvalid;
  if (!done && !is_of_module) std::putchar(lmtp::wasm::kUnavailable);
  std::fputs(done ? lmtp::wasm::kCompiled : done.error().message.c_str(), stdout);
  return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
