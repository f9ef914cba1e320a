// A Runtime whose controllers run in another program: an aicirt, or lmtp-aicirt, which it starts
// and speaks to by shared memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/result.h"

namespace lmtp::aici {

// What a runtime speaks: A of v0.0.5 to v0.0.10, C from v0.2.0 on.
enum class Dialect { kAuto, kA, kC };

struct ProcessOptions {
  std::string path;       // of the program
  std::string tokenizer;  // as its --tokenizer; the model's
  int vocab_size = 0;     // of the logits
  Dialect dialect = Dialect::kAuto;
  int json_mib = 8;   // of each of four areas of messages
  int bias_mib = 16;  // of the area of rows
  bool futex = false;
  std::chrono::milliseconds busy_wait{1};
  std::chrono::milliseconds pre_step_time{4};  // dialect A
  std::chrono::milliseconds step_time{150};
  std::chrono::milliseconds init_time{1000};
  int forks_max = 16;
  int memory_mib = 64;
  std::string folder = ".";                      // the program's, with its cache/ of modules
  std::string trace_path;                        // prompts and all; empty: no trace
  std::chrono::milliseconds start_time{60'000};  // until it answers
  // After its end it is started again so much later; twice as long each time, up to half a minute.
  std::chrono::milliseconds back_off{100};
};

// Starts the program, which takes seconds; what is asked before waits. A program that ends, hangs
// or answers what makes no sense is ended with all that it has started, its sequences fail with the
// reason, and it is started again, after back_off at first and then at longer and longer intervals;
// requests are refused meanwhile. Modules stay in its cache. Nothing of its shared
// memory is left in /dev/shm. Errors: kInvalid for options that cannot work.
Result<std::unique_ptr<Runtime>> make_process_runtime(ProcessOptions options);

}  // namespace lmtp::aici
