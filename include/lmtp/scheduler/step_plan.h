// What one step of the engine will do, and its result, as values: what is in a plan can be sent to
// another process.
//
// A plan is complete when it is made: every block it writes is already reserved. Executing it needs
// no decision, and none of its results is visible before Scheduler::commit.
//
// A running sequence has a slot, in [0, BatchLimits::rows_max()), from the plan that starts it to
// the one that says that it has ended. Whoever executes plans keeps what is known of each slot
// (slot_table.h): a plan says only what has changed since the one before.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/request/adapter.h"
#include "lmtp/request/event.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp::scheduler {

// What may be added to a step, in tokens; two blocks are always allowed, of prefills beside decodes
// one. Set by the engine, which measures how long tokens take.
struct StepLimits {
  static constexpr int kAny = std::numeric_limits<int>::max();
  int prefill = kAny;  // beside decodes; and never more than a quarter of the step
  int cached = kAny;   // beside decodes, of sequences that lack at most a block of being cached
  int alone = kAny;    // of both, if nothing decodes
  // Blocks that may come from the host; one sequence may have more. 0: computing them is faster.
  int fetched = kAny;
};

// A sequence that begins to run, or does so again.
struct SlotStart {
  int slot = -1;
  StreamKey key;
  int adapter = 0;              // 0: none
  std::vector<TokenId> tokens;  // all that are known
  std::vector<BlockId> blocks;  // SlotState's; those of its row in this plan included
  SamplingParams params;
};

// Tokens after those that are known, which no step drew.
struct SlotTokens {
  int slot = -1;
  std::vector<TokenId> tokens;
};

// Entry `index` of SlotState::blocks, a new one or one that takes the place of another.
struct SlotBlock {
  int slot = -1;
  int index = 0;  // at most the number of entries
  BlockId block = kNoBlock;
};

// Another SamplingParams::logit_bias, from this plan's row on: min_tokens are reached.
struct SlotBias {
  int slot = -1;
  std::shared_ptr<const LogitBias> logit_bias;
};

// What is to be known of slots beside the rows of a plan and what those before it drew. In this
// order.
struct SlotChanges {
  std::vector<int> ended;  // those where nothing runs are ignored
  std::vector<SlotStart> started;
  std::vector<SlotTokens> tokens;
  std::vector<SlotBlock> blocks;
  std::vector<SlotBias> biases;

  void clear();
};

// The tokens [first_position, first_position + num_tokens) of one sequence go through the model.
struct PlanRow {
  int slot = -1;
  int first_position = 0;
  int num_tokens = 0;  // >= 1
  // Logits are wanted for the last num_logits of these tokens; 0 for an unfinished prefill. The
  // first num_scored of them are of tokens that are followed in the sequence already, and give the
  // log probability of what follows; from each of those that are left a token is drawn.
  int num_logits = 0;
  int num_scored = 0;  // 0 where num_logits is
  // The last num_drafts of these tokens are not the sequence's: StepPlan::drafts guesses that they
  // will be drawn. num_logits - num_scored is one more, or 0 or 1 where there are none. A
  // sequence's MaskSource allows anything before and after each of them: the row needs no mask.
  int num_drafts = 0;
  // In a plan made ahead: the row of the plan before it that samples this row's one input token,
  // which is not known yet; else -1.
  int input_row = -1;

  bool draws() const { return num_logits > num_scored; }
};

// The first num_tokens tokens of block `from` are copied to block `to` before anything is written
// to one, in every layer: a hit inside a block that another sequence goes on writing; or a block
// that goes to the host, or comes back, whose blocks are numbered after the others.
struct BlockCopy {
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
  int num_tokens = 0;  // [1, kBlockSize]
};

// An adapter's weights are written to its blocks before the forward pass. They stay there as long
// as rows have the adapter, and until the blocks are used for something else.
struct AdapterLoad {
  int adapter = 0;  // its number, >= 1
  std::shared_ptr<const Adapter> weights;
  std::vector<BlockId> blocks;
};

// A sequence that is scheduled for the first time.
struct AdmittedSequence {
  StreamKey key;
  int num_cached = 0;  // tokens of its prompt that the prefix cache held
};

// A sequence that asks for notices, and what this plan did to it.
struct SequenceNotice {
  StreamKey key;
  StreamNotice::Kind kind = StreamNotice::Kind::kPreempted;  // or kResumed, kRecomputes
  int num_tokens = 0;                                        // StreamNotice's
};

struct StepPlan {
  SlotChanges changes;
  std::vector<AdapterLoad> adapter_loads;
  std::vector<BlockCopy> copies;  // in this order
  std::vector<PlanRow> rows;
  std::vector<TokenId> drafts;  // of all rows, in their order
  std::vector<AdmittedSequence> admitted;
  std::vector<SequenceNotice> notices;  // in the order in which it happened
  int num_admissions = 0;               // of `admitted`, and of preempted sequences
  int num_tokens = 0;                   // sum over rows
  int num_logits = 0;                   // sum over rows
  // A row's sequence has a MaskSource, and the row draws, or one that was taken out again did:
  // choose() comes later than forward().
  bool waits_for_masks = false;

  bool empty() const { return rows.empty(); }
  void clear();  // keeps memory
};

inline void SlotChanges::clear() {
  ended.clear();
  started.clear();
  tokens.clear();
  blocks.clear();
  biases.clear();
}

inline void StepPlan::clear() {
  changes.clear();
  adapter_loads.clear();
  copies.clear();
  rows.clear();
  drafts.clear();
  admitted.clear();
  notices.clear();
  num_admissions = num_tokens = num_logits = 0;
  waits_for_masks = false;
}

// What a row of a plan may draw, beside what its parameters say. The log probabilities that are
// reported are those before it.
struct RowMask {
  enum class State {
    kNone,    // anything
    kReady,   // token i, if bit i % 32 of words[i / 32] is set; if none is possible, the row fails
    kLate,    // not known in time: the row is skipped
    kHeld,    // nothing is to be drawn
    kFailed,  // nothing: the row fails with `error`
  };
  State state = State::kNone;
  const std::uint32_t* words = nullptr;  // [ceil(vocabulary / 32)], until choose() returns
  Error error = {};
};

// One sampled or scored token.
struct TokenResult {
  TokenId token = 0;
  float logprob = 0.0F;
  TopLogprobs top_logprobs;            // best first; empty for a Score that asks for none
  TokenLogprobs listed_logprobs = {};  // as TokenEvent has them
  Measured measured = {};
};

// The result of one row of the plan.
struct RowResult {
  // [num_logits], less one for each draft that was refused: it was not drawn, or one before it.
  std::vector<TokenResult> tokens;
  std::optional<Error> error;  // this row alone failed
  // Its mask was late (RowMask): nothing was chosen, tokens is empty. The tokens of which logits
  // were wanted go through the model again.
  bool skipped = false;
  // Nothing was drawn (RowMask::kHeld): `tokens` has the scored ones alone.
  bool held = false;
  // Appended to the token that it drew (NextTokens), by whoever had its mask made.
  std::vector<TokenId> forced = {};
  // Null unless the row has the last token of a slot whose parameters have a pooling.
  Embedding embedding = {};
};

struct StepResult {
  std::vector<RowResult> rows;  // of the plan's rows, in the same order
  // The time since the step's start during which a device is known to have worked on it: a lower
  // bound.
  std::chrono::nanoseconds device_wait{0};

  // Keeps memory.
  void clear() {
    for (RowResult& row : rows) {
      row.tokens.clear();
      row.error.reset();
      row.skipped = false;
      row.held = false;
      row.forced.clear();
      row.embedding.reset();
    }
    device_wait = {};
  }
};

}  // namespace lmtp::scheduler
