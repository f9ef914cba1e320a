// EngineTrace: what an engine records of its steps and streams, where there is a trace.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/engine/stream_record.h"
#include "lmtp/request/request.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"
#include "lmtp/trace/trace.h"

namespace lmtp::engine {

// A stream's track. 0: it has none, since it began while nothing was traced.
struct StreamTrace {
  std::uint64_t track = 0;
  bool waits = true;  // it has not been admitted
};

// Of a step that has ended, besides its plan.
struct TracedStep {
  const scheduler::StepPlan* plan = nullptr;
  std::int64_t number = 0;
  bool is_ahead = false;
  bool failed = false;
  int num_blocks_free = 0;
  int num_waiting = 0;
  int num_running = 0;
  std::int64_t num_preemptions = 0;  // since the engine's start, as the next two
  std::int64_t num_masks = 0;
  std::int64_t num_late_masks = 0;
};

// Without a trace each call is a branch. With one it takes no memory either: what is recorded waits
// in buffers of fixed size until it is flushed to the trace.
// Owner: the Engine; its thread.
class EngineTrace {
 public:
  using Clock = trace::Clock;

  // trace may be null. max_streams: at a time. num_preemptions: so far.
  EngineTrace(std::shared_ptr<trace::Trace> trace, std::string_view model, int max_streams,
              std::int64_t num_preemptions);

  bool is_on() const { return trace_ != nullptr && trace_->is_on(); }

  // A slice of the engine's thread, over its own life.
  class Slice {
   public:
    Slice(EngineTrace& trace, const char* name)
        : trace_(trace.is_on() ? &trace : nullptr), name_(name) {
      if (trace_ != nullptr) begin_ = Clock::now();
    }
    ~Slice() {
      if (trace_ != nullptr) trace_->slice(name_, begin_);
    }
    Slice(const Slice&) = delete;
    Slice& operator=(const Slice&) = delete;
    void drop() { trace_ = nullptr; }

   private:
    EngineTrace* trace_;
    const char* name_;
    Clock::time_point begin_;
  };
  // The same for what ends a step, with what is known of that then.
  class Turn {
   public:
    explicit Turn(EngineTrace& trace) : trace_(trace.is_on() ? &trace : nullptr) {
      if (trace_ != nullptr) begin_ = Clock::now();
    }
    ~Turn() {
      if (trace_ != nullptr) trace_->end_turn(begin_);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    EngineTrace* trace_;
    Clock::time_point begin_;
  };

  // REQUIRES of all below: is_on(), or where it has become false since, nothing happens.

  StreamTrace begin(const StreamKey& key, RequestKind kind, int num_prompt, int max_tokens,
                    Clock::time_point arrival);
  void admitted(StreamTrace& stream, int num_cached, int num_missing, Clock::time_point arrival,
                Clock::time_point now);
  // What a step did for a stream.
  void row(const StreamTrace& stream, const scheduler::Sequence& sequence,
           const scheduler::PlanRow& row, bool skipped, Clock::time_point begin,
           Clock::time_point end);
  void step(const TracedStep& step);
  // It has been given a token, or it has ended: in the trace once that is delivered.
  void token(const StreamTrace& stream);
  void end(const StreamTrace& stream, std::string_view outcome, Clock::time_point arrival);
  // What was given has been delivered. What is recorded so far goes to the trace.
  void delivered();

 private:
  void push(const trace::Record& record);
  void push_undelivered(const trace::Record& record);
  trace::Record of_stream(const StreamTrace& stream, trace::Record::Kind kind,
                          const char* name) const;
  void slice(const char* name, Clock::time_point begin);
  void end_turn(Clock::time_point begin);
  void flush();

  const std::shared_ptr<trace::Trace> trace_;
  int process_ = 0;
  std::vector<trace::Record> records_;      // not flushed
  std::vector<trace::Record> undelivered_;  // whose time is not known yet
  trace::Record step_;                      // of this turn; without numbers: none has ended
  std::int64_t num_preemptions_;            // when the last step had ended, as the next two
  std::int64_t num_masks_ = 0;
  std::int64_t num_late_masks_ = 0;
};

}  // namespace lmtp::engine
