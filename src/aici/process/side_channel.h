// SideChannel: questions that have nothing to do with a step, many at a time, whose answers come in
// any order.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lmtp/base/bounded_queue.h"
#include "lmtp/base/json.h"
#include "lmtp/base/log.h"
#include "process/message_area.h"
#include "process/trace.h"

namespace lmtp::aici {

// Owner: a RuntimeProcess. All handlers are called on a thread of its own.
class SideChannel {
 public:
  struct Handlers {
    std::function<void(Error)> on_broken;  // what the runtime writes makes no sense; nothing more
                                           // will be answered but with this error
    std::function<void(const Json& command)> on_late;  // it was done after all, for nobody
  };
  // trace: null for none.
  SideChannel(std::unique_ptr<MessageArea> commands, std::unique_ptr<MessageArea> answers,
              Trace* trace, Handlers handlers);
  // As end() with kStopping, where it was not called.
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  using Answered = std::function<void(Result<Json> data)>;
  // `answered` is called once. Errors beside the runtime's own: kInvalid for a message without
  // room, kTimeout. Any thread.
  void ask(Json command, std::chrono::milliseconds time, Answered answered);
  // The last call: what is under way is answered with `why`.
  void end(const Error& why);
  void unlink();

 private:
  struct Question {
    Json command;
    Time until;
    Answered answered;  // empty: it is too late
  };

  void run();
  void send(Question question);
  void take_answer(const std::string& text);
  void end_late();
  void answer_all(const Error& why);
  void break_off(const Error& why);

  std::unique_ptr<MessageArea> commands_;
  std::unique_ptr<MessageArea> answers_;
  Trace* const trace_;
  const Handlers handlers_;
  BoundedQueue<Question> queue_;
  Error end_;  // written before is_ending_
  std::atomic<bool> is_ending_ = false;
  log::RateLimited log_;

  // Of the thread.
  std::map<std::string, Question> pending_;  // by "$rid"
  std::uint64_t num_asked_ = 0;
  bool is_broken_ = false;
  Error broken_;
  std::thread thread_;
};

}  // namespace lmtp::aici
