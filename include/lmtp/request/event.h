// What a request gives back: the events of its stream, and where they go.
#pragma once

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
  // Best first; always holds the token itself. Absent for a Score.
  std::optional<std::vector<TokenLogprob>> top_logprobs = {};
};

// The end of a stream by an error.
struct StreamError {
  StreamId stream_id = 0;
  Error error;
  bool no_model = false;  // its model could not be had
};

// Tells a waiting stream how far its model has been loaded.
struct LoadingNotice {
  StreamId stream_id = 0;
  std::string model;         // as the request named it
  int progress_percent = 0;  // [0, 100]
};

using StreamEvent = std::variant<TokenEvent, StreamError, LoadingNotice>;

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
