// One stream's tokens on their way through the model.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/runtime.h"
#include "lmtp/cache/score_cache.h"
#include "lmtp/cache/sequence_blocks.h"
#include "lmtp/request/request.h"

namespace lmtp::scheduler {

// kWaiting: not admitted, holds no blocks. kRunning: holds blocks and may have a row in each step.
// kSuspended: as waiting, but no plan looks at it. A preempted or edited sequence is kWaiting
// again, with the tokens that it has.
enum class SequenceStatus { kWaiting, kRunning, kSuspended };

// What an API key, or a connection without one, was served and runs (FairShares).
struct ClientAccount {
  std::int64_t served = 0;  // tokens, on a clock that all accounts have in common
  int num_sequences = 0;    // >= 1; suspended ones are not counted
  int num_running = 0;      // of those
  int num_passed = 0;       // admissions since the oldest of those that waited was admitted
};

// A sequence's row in the step that is being executed, while the next one is planned.
struct RowInFlight {
  int row = -1;  // of that plan; -1: none
  int num_tokens = 0;
  int num_logits = 0;
  bool draws = false;
};

// Owner: the Scheduler, on the engine's thread.
//
// There are no phases: a sequence has tokens, and a cursor of those whose keys and values are in
// the cache. Prefill, chunked prefill, decode and scoring are all "move the cursor towards the
// end".
struct Sequence {
  SequenceId id = 0;
  StreamKey key;
  runtime::Clock::time_point arrival;
  ConnectionId share = 0;            // Request::share()
  ClientAccount* account = nullptr;  // of `share`; null while it is suspended
  RequestKind kind = RequestKind::kGenerate;
  std::shared_ptr<const Adapter> weights_of_adapter;  // null: none
  int adapter = 0;                                    // its number; 0: none
  std::string cache_salt;                             // Request's
  int name_space = 0;         // CacheScopes': those of one share prefixes and scores
  bool uses_adapter = false;  // it runs: the adapter's weights are in its blocks
  SequenceStatus status = SequenceStatus::kWaiting;

  // Generate: prompt, then what was generated or appended. Score: prompt, then what is to be
  // scored. Embed: prompt.
  std::vector<TokenId> tokens;
  int num_prompt = 0;  // tokens[0, num_prompt) came as the prompt

  // KV exists for tokens[0, num_computed).
  int num_computed = 0;
  cache::SequenceBlocks blocks;
  int slot = -1;               // while it runs
  bool is_slot_known = false;  // a plan has started it
  cache::ScoreCache::Place score_place;
  // Log probabilities of the tokens before scores_end that are to be kept: added together, at the
  // end of their block or of the sequence.
  std::array<float, kBlockSize> new_scores = {};
  int num_new_scores = 0;
  int scores_end = 0;
  RowInFlight in_flight;

  // Speculation: so many drafts next, not before this step, and then a pause if they are refused.
  int num_drafts_next = 1;
  std::int64_t drafts_from = 0;
  int draft_pause = 32;

  SamplingParams params;
  int num_resumed = 0;                 // of the prompt's last tokens, those that count as generated
  std::shared_ptr<StopChecker> stops;  // null: none
  std::shared_ptr<const MaskSource> mask_source;  // null: none
  // It is held after each token that it draws, until a program has decided how it goes on.
  bool is_controlled = false;
  bool is_held = false;        // running or waiting, but no plan gives it a row
  bool awaits_recall = false;  // a Score: more of it may be known, see Scheduler::set_recalls()
  bool wants_notices = false;
  // Before min_tokens: params.logit_bias forbids what would end the stream, and own_bias is the one
  // of the request, which takes its place then.
  bool is_end_withheld = false;
  std::shared_ptr<const LogitBias> own_bias;
  int num_generated_max = 0;  // max_tokens after clamping to the context
  // Tokens after the prompt that were reported. A Score has others after these, and a Generate
  // those that were forced or appended.
  int num_emitted = 0;
  int forced_end = 0;       // of the tokens that are not reported, those before here were forced
  int num_backtracked = 0;  // tokens that the client knows and that were dropped; not yet reported
  int num_forks = 0;
  bool is_fork = false;
  int num_preempted = 0;
  bool is_preempted = false;         // and not admitted again
  bool is_returning = false;         // it has been admitted before: it precedes those that have not
  bool keeps_place = false;          // so does what goes on with a stream that has just ended
  int priority = 0;                  // Request's
  int num_cached_hint = 0;           // tokens found in the prefix cache by the last look-up
  int num_known = 0;                 // tokens that were in it when it was set back, or forked
  bool lacks_blocks = false;         // since it waits it has not fitted
  std::int64_t waiting_since = 0;    // step of arrival, or of the last preemption
  std::int64_t admission_step = 0;   // the last one
  std::int64_t protected_until = 0;  // not preempted for another connection before this step

  int length() const { return static_cast<int>(tokens.size()); }
  int num_generated() const { return length() - num_prompt; }
  // What min_tokens counts.
  int num_counted() const { return num_emitted + num_resumed; }
  // The last token of a Score is never fed: nothing follows it.
  int num_to_compute() const { return kind == RequestKind::kScore ? length() - 1 : length(); }

  // As they will be after the row that is in flight.
  int length_ahead() const { return length() + (in_flight.draws ? 1 : 0); }
  int num_computed_ahead() const { return num_computed + in_flight.num_tokens; }
  int num_emitted_ahead() const { return num_emitted + in_flight.num_logits; }
};

}  // namespace lmtp::scheduler
