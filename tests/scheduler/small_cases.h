// Settings of the scheduler's tests: short prompts, a small step, a model without weights.
#pragma once

#include "counting.h"
#include "fake_agent.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp::testing {

inline constexpr int kSmallVocab = 1000;

inline scheduler::SchedulerOptions small_options() {
  scheduler::SchedulerOptions options;
  options.vocab_size = kSmallVocab;
  options.context_length = 256;
  options.batch.max_tokens = 64;
  return options;
}

inline FakeAgentOptions small_agent(int num_blocks = 200) {
  FakeAgentOptions options;
  options.vocab_size = kSmallVocab;
  options.num_blocks = num_blocks;
  return options;
}

}  // namespace lmtp::testing
