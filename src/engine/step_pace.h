// StepPace: how long steps take, from the steps before.
#pragma once

#include <chrono>

#include "lmtp/base/runtime.h"
#include "lmtp/scheduler/debug_options.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::engine {

// Moving averages. Owner: the Engine; its thread.
class StepPace {
 public:
  using Duration = runtime::Clock::duration;

  // Adds a finished step. The average time per token leaves out steps of few tokens and steps of
  // decodes only: their time is that of reading the weights.
  // num_decodes: rows of one token, drafts aside. num_moves: of blocks from and to the host, whose
  // time is not counted. num_drafts: of the tokens; a decode remains one.
  void add(int num_tokens, int num_decodes, Duration time, int num_moves = 0, int num_drafts = 0);

  // How long a block takes from the host, of which tokens have one in each group of layers; 0:
  // there are none.
  void set_fetch_time(std::chrono::nanoseconds time, int num_groups = 1) {
    fetch_time_ = time;
    num_groups_ = num_groups;
  }

  // Before the first sample: a fixed number of tokens, zero time.
  int tokens_within(Duration time) const;
  Duration time_for(int num_tokens) const;

  // What a step may compute beside its decodes: prefill delays the streams that decode in it and
  // the requests that arrive during it; prompts that are nearly all cached may take as long as the
  // decodes do. 0: no limit.
  scheduler::StepLimits limits(const scheduler::DebugOptions& options) const;

  // Of a step of decodes alone; 0 before the first. While prompts come without a pause there is
  // none; if there are more decodes by now, they take at least as long as so many tokens of the
  // steps that have prompts.
  Duration decode_time() const;

 private:
  double seconds_per_token_ = 0.0;   // 0: not known
  double seconds_of_decodes_ = 0.0;  // of a step
  int num_measured_ = 0;             // decodes of the last step of decodes only
  int num_decodes_ = 0;              // of the last step
  std::chrono::nanoseconds fetch_time_{0};
  int num_groups_ = 1;
};

}  // namespace lmtp::engine
