// The events of a request's stream, and where they are delivered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/request/top_logprobs.h"

namespace lmtp {

enum class FinishReason { kNone, kStop, kLength };

// [ModelConfig::hidden_size, or what the model projects it to] f32, finite; not normalised. Null:
// none. Immutable.
using Embedding = std::shared_ptr<const std::vector<float>>;

inline constexpr TokenId kNoToken = -1;

// One token of one stream. With a finish reason it is the stream's last event.
struct TokenEvent {
  StreamId stream_id = 0;
  TokenId token = 0;  // kNoToken: the stream ends, or loses tokens, without another one
  float logprob = 0.0F;
  FinishReason finish_reason = FinishReason::kNone;
  // Most probable first; always contains the token itself. Absent for a Score without top_logprobs.
  std::optional<TopLogprobs> top_logprobs = {};
  int sample = 0;  // StreamKey::sample
  // So many tokens before this one, of those reported and then of the prompt, are not the stream's
  // any more.
  int num_backtracked = 0;
  bool is_appended = false;  // by a Backtrack
  bool is_forced = false;    // nothing else could follow (NextTokens), so it was not drawn
  // With a stream's first token: of its prompt's, those that the prefix cache had, or all where the
  // score cache answers by that token; -1: not told.
  int num_cached = -1;
  // One for each of SamplingParams::logprob_token_ids, in their order; null: none are asked for.
  TokenLogprobs listed_logprobs = {};
  Measured measured = {};
  Embedding embedding = {};  // RequestKind::kEmbed's
};

// The end of a stream by an error.
struct StreamError {
  StreamId stream_id = 0;
  Error error;
  bool no_model = false;  // the model is unknown, or could not be downloaded or loaded
  int sample = 0;         // StreamKey::sample
};

// Tells a waiting stream how far its model has been loaded.
struct LoadingNotice {
  StreamId stream_id = 0;
  std::string model;         // as the request named it
  int progress_percent = 0;  // [0, 100]
};

// What happens to a stream whose request asked for notices.
struct StreamNotice {
  // kMoved: a balancer goes on with it at another server. kRecomputes: it runs again, or as a fork,
  // from before where it was, since blocks that windows had passed are gone.
  enum class Kind { kQueued, kPreempted, kResumed, kRecomputes, kDraining, kMoved };

  StreamId stream_id = 0;
  int sample = 0;  // StreamKey::sample
  Kind kind = Kind::kQueued;
  int position = 0;  // kQueued: 1 is next
  // kQueued: until it is likely to begin; kDraining: until it is ended where it has not by itself.
  std::int64_t wait_ms = 0;
  int num_tokens = 0;  // kRecomputes: that were computed before, and are computed once more
};

// The answer to RequestKind::kAwaitModel, and the last event of that key.
struct ModelReady {
  StreamId stream_id = 0;
  // Not 0 where a session tells itself that a text has been encoded, or a grammar compiled: which
  // one, since the stream may have ended in the meantime and its id be another one's.
  std::uint64_t encoding = 0;
};

// A fork has begun. Its parent's events up to there have been delivered, and no others.
struct ForkBegun {
  StreamId stream_id = 0;
  StreamId fork_of = 0;
  int num_prompt = 0;       // tokens of its prompt: the first of the parent's
  int num_shared = 0;       // of the parent's tokens behind that, those that it begins with
  int num_backtracked = 0;  // of those that the parent has reported, dropped ones; not yet reported
};

// A Backtrack was refused; the stream goes on as if it had not come.
struct EditRefused {
  StreamId stream_id = 0;
  Error error;
};

// The stream's controller has forked it: from here on there is one sample more.
struct SampleForked {
  StreamId stream_id = 0;
  int sample = 0;           // of the new one
  int fork_of = 0;          // the sample whose tokens it begins with
  int num_shared = 0;       // of those behind the prompt
  int num_backtracked = 0;  // as ForkBegun's
};

// What a stream's controller has written.
struct ControllerOutput {
  StreamId stream_id = 0;
  int sample = 0;
  std::string logs;
  std::string storage;  // a JSON list of the variables that it wrote; empty: none
  std::int64_t micros = 0;
};

using StreamEvent = std::variant<TokenEvent, StreamError, LoadingNotice, StreamNotice, ModelReady,
                                 ForkBegun, EditRefused, SampleForked, ControllerOutput>;

// Whether nothing comes after it on its stream.
bool is_last(const StreamEvent& event);
// Streams that end by these events, and those that begin by them (SampleForked).
int num_ended(std::span<const StreamEvent> events);
int num_forked(std::span<const StreamEvent> events);

// Moves the events to the end of those. Where it throws, none has been moved.
void take_events(std::span<StreamEvent> events, std::vector<StreamEvent>& to);

// Wakes those who take what was delivered.
class Waker {
 public:
  virtual ~Waker() = default;
  virtual void wake() noexcept = 0;
};

// Receives one connection's events: called at most once a step, with all events of all its streams.
// Owner: shared by the connection and its requests in flight. deliver() is called on the thread of
// an engine, of a loader or of the caller of cancel, possibly with locks held: it must not block,
// call back, or destroy an object that has streams. It leaves them for the connection's own strand.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // The events are moved from. Where it throws, none has been taken.
  virtual void deliver(std::span<StreamEvent> events) = 0;
  // What is to be woken once the deliveries to all connections have been made, so that a step wakes
  // once and not for each of them. Null: nothing is.
  virtual std::shared_ptr<Waker> waker() { return nullptr; }
};

// Where there is one delivery, and not a step's.
void deliver_now(EventSink& sink, std::span<StreamEvent> events);
void deliver_now(EventSink& sink, StreamEvent event);

}  // namespace lmtp
