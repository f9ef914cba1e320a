// What a request gives back: the events of its stream, and where they go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp {

enum class FinishReason { kNone, kStop, kLength };

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;

  bool operator==(const TokenLogprob&) const = default;
};

// One token of one stream. With a finish reason it is the stream's last event.
struct TokenEvent {
  StreamId stream_id = 0;
  TokenId token = 0;
  float logprob = 0.0F;
  FinishReason finish_reason = FinishReason::kNone;
  // Best first; always holds the token itself. Absent for a Score that asked for none.
  std::optional<std::vector<TokenLogprob>> top_logprobs = {};
  int sample = 0;  // StreamKey::sample
};

// The end of a stream by an error.
struct StreamError {
  StreamId stream_id = 0;
  Error error;
  bool no_model = false;  // its model could not be had
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
  enum class Kind { kQueued, kPreempted, kResumed, kDraining };

  StreamId stream_id = 0;
  int sample = 0;  // StreamKey::sample
  Kind kind = Kind::kQueued;
  int position = 0;  // kQueued: 1 is next
  // kQueued: until it is likely to begin; kDraining: until it is ended where it has not by itself.
  std::int64_t wait_ms = 0;
};

// The answer to RequestKind::kAwaitModel, and the last event of that key.
struct ModelReady {
  StreamId stream_id = 0;
};

using StreamEvent = std::variant<TokenEvent, StreamError, LoadingNotice, StreamNotice, ModelReady>;

// Whether nothing comes after it on its stream.
bool is_last(const StreamEvent& event);

// Where one connection's events go: called once a step at most, with all events of all its streams.
// Owner: shared by the connection and its requests in flight. deliver() is called on the thread of
// an engine, a loader or whoever cancels, also within their locks: it must neither block nor call
// back nor end the life of anything that has streams. It posts to the connection's own strand.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void deliver(std::vector<StreamEvent> events) = 0;
};

}  // namespace lmtp
