// MainServer: the steps of sequences, on the main channel: in dialect A or in C.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/json.h"

namespace lmtp::aicirt {

struct MainOptions {
  int vocab_size = 0;
  TokenId eos = 0;
  std::span<unsigned char> rows;  // the memory of biases
  std::chrono::milliseconds step_time{150};
  std::chrono::milliseconds pre_step_time{4};  // A: how long one that waits is waited for
  int timeout_steps = 10;                      // C: in a row, after which it fails
  std::size_t rows_offset = 0;                 // C: the first row is this one; for tests
  float fill = 0;                              // of memory that has no row; for tests
};

// Owner: main(); one thread.
class MainServer {
 public:
  virtual ~MainServer() = default;
  // The answer to a command, "stop" excepted.
  virtual Json take(const std::string& message) = 0;
  // What instantiate() gave and its answer could not say. Any thread.
  virtual void add_appended(const std::string& request_id, aici::Instantiated made) = 0;
};

std::unique_ptr<MainServer> make_server_a(aici::Runtime& runtime, MainOptions options);
std::unique_ptr<MainServer> make_server_c(aici::Runtime& runtime, MainOptions options);

}  // namespace lmtp::aicirt
