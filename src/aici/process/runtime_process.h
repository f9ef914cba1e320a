// RuntimeProcess: one start of a runtime's program, with the shared memory between it and us.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "lmtp/aici/process_runtime.h"
#include "lmtp/base/json.h"
#include "process/child_process.h"
#include "process/message_area.h"
#include "process/side_channel.h"
#include "process/trace.h"

namespace lmtp::aici {

// The main channel, on which one command is under way at a time.
class MainChannel {
 public:
  virtual ~MainChannel() = default;

  // The data of its answer. After an error nothing is known of the runtime's state.
  virtual Result<Json> ask(const Json& command, std::chrono::milliseconds time) = 0;
  // The rows of the last answer, until the next command.
  virtual std::span<const std::byte> biases() const = 0;
};

// Owner: a ProcessRuntime, on whose thread it is made, used and ended.
class RuntimeProcess : public MainChannel {
 public:
  // Once it has answered on both channels. is_ending: gives up. trace: null for none.
  static Result<std::unique_ptr<RuntimeProcess>> start(const ProcessOptions& options, Trace* trace,
                                                       const std::atomic<bool>& is_ending,
                                                       SideChannel::Handlers handlers);
  // Ends the program and all that it has started.
  ~RuntimeProcess() override = default;

  Result<Json> ask(const Json& command, std::chrono::milliseconds time) override;
  std::span<const std::byte> biases() const override { return biases_.bytes(); }

  SideChannel& side() { return *side_; }
  Dialect dialect() const { return dialect_; }  // not kAuto
  int vocab_size() const { return vocab_size_; }
  pid_t pid() const { return child_->pid(); }
  // Empty while it runs.
  std::string end_reason() { return child_->end_reason(); }

 private:
  RuntimeProcess(SharedMemory biases, Trace* trace, const std::atomic<bool>& is_ending);

  Result<void> make_areas(const ProcessOptions& options, const std::string& prefix,
                          SideChannel::Handlers handlers);
  Result<void> greet(const ProcessOptions& options);
  Result<void> greet_side(Time until);
  Result<Dialect> find_dialect(Time until);
  Result<Json> exchange(const Json& command, Time until);
  // Why to wait no longer.
  Result<void> check(Time until);

  SharedMemory biases_;
  Trace* const trace_;
  const std::atomic<bool>& is_ending_;
  std::unique_ptr<MessageArea> commands_;
  std::unique_ptr<MessageArea> answers_;
  std::unique_ptr<SideChannel> side_;
  Dialect dialect_ = Dialect::kAuto;
  int vocab_size_ = 0;
  std::unique_ptr<ChildProcess> child_;  // ends before its memory does
};

}  // namespace lmtp::aici
