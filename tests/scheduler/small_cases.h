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

// A Generate with a prompt of the tokens first, first + 1, ...
inline scheduler::Sequence sequence_of(StreamId id, int first, int length,
                                       ConnectionId connection = 1) {
  scheduler::Sequence sequence;
  sequence.id = static_cast<SequenceId>(id);
  sequence.key = {connection, id};
  sequence.share = connection;
  sequence.tokens = counting(first, length);
  sequence.num_prompt = length;
  sequence.num_generated_max = 100;
  return sequence;
}

}  // namespace lmtp::testing
