// The Runtime in this process: controllers run under wasmtime, on threads of the runtime.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/result.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::aici {

// What a controller may take. Times are of the processor, not of the clock, but for compile_time.
struct Limits {
  std::chrono::milliseconds compile_time{10'000};    // of a module
  std::size_t memory_bytes = std::size_t{64} << 20;  // of a sequence's controller
  // All controllers have together, arguments and logs included. What is beyond it fails.
  std::size_t total_bytes = std::size_t{2} << 30;
  std::chrono::milliseconds init_time{1000};          // up to the prompt
  std::chrono::milliseconds step_time{150};           // of each call after that
  int forks_max = 16;                                 // live sequences of a request
  int requests_max = 256;                             // live requests
  std::size_t log_bytes = std::size_t{64} << 10;      // of an answer; the beginning is left out
  std::size_t variable_bytes = std::size_t{1} << 20;  // of a request, names and values
};

struct EmbeddedOptions {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  int vocab_size = 0;        // of the logits
  TokenId eos_id = -1;       // -1: none
  std::string cache_folder;  // of uploaded modules and tags; several runtimes may share it
  Limits limits = {};
  int num_threads = 2;
};

// Whether controllers can be run by this program; the error says why not. The first call loads
// wasmtime. Any thread.
Result<void> embedded_support();

// REQUIRES: what is in the cache folder was written by this program, since compiled modules are run
// as they are. Errors: as embedded_support.
Result<std::unique_ptr<Runtime>> make_embedded_runtime(const EmbeddedOptions& options);

}  // namespace lmtp::aici
